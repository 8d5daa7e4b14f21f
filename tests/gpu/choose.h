#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "ridge/device/tuner.h"
#include "tests/ops/cases.h"

namespace ridge::testing {

// Chooses the candidate it is told to, or the last, having run it; the first if there is no such
// kernel.
class Choose final : public Tuner {
 public:
  explicit Choose(std::size_t candidate) : candidate_(candidate) {}
  std::size_t choose(std::string_view, std::size_t candidates,
                     const std::function<void(std::size_t)>& run) override {
    most_ = std::max(most_, candidates);
    const std::size_t choice = std::min(candidate_, candidates - 1);
    try {
      run(choice);
    } catch (const NoSuchCandidate&) {
      return 0;
    }
    return choice;
  }
  void tell(std::string_view, std::string_view choice) override { told = choice; }
  bool is_last() const { return candidate_ + 1 >= most_; }

  std::string told;  // what was chosen last, in words

 private:
  std::size_t candidate_, most_ = 0;
};

// Compares a sample's results with the reference's by every candidate of the tuner, up to `most` of
// them. `least_absolute`: a bound of the absolute tolerance from below.
template <class T>
void expect_all_candidates_right(Device& device, const Sample<T>& sample, DType dtype,
                                 KernelChoice choice = {}, double least_absolute = 0,
                                 std::size_t most = 1000) {
  const std::vector<TensorType> in = operand_types(sample, dtype);
  const Op op(sample.op);
  const std::vector<TensorType> out = sample.op.infer(in);
  const auto values = operand_values(sample, in);
  const auto expected = run_reference(op, in, out, values);
  for (std::size_t candidate = 0; candidate < most; ++candidate) {
    Choose tuner(candidate);
    choice.tuner = &tuner;
    const auto actual = run_kernel(device, op, in, out, values, choice);
    SCOPED_TRACE(
        fmt::format("{} of {}, candidate {}: {}", T::name, list_of(in), candidate, tuner.told));
    for (std::size_t o = 0; o < out.size(); ++o) {
      Tolerance tolerance = tolerance_of_result(sample.op, out[o], in);
      tolerance.absolute = std::max(tolerance.absolute, least_absolute);
      expect_close(decode(actual[o], out[o].dtype), expected[o], tolerance);
    }
    if (tuner.is_last()) break;
  }
}

}  // namespace ridge::testing
