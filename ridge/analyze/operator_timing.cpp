#include "ridge/analyze/operator_timing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>
#include <variant>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

// Several times the last cache, where the device does not say how large it is.
constexpr std::size_t enough_for_most = std::size_t{192} << 20;
// So many sets of small operands do not leave the caches, but no more are worth the wait.
constexpr std::size_t most_sets = 1024;

std::size_t padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

// Positive numbers between 1/4 and 4, in f32 and in bf16 alike: a card is faster on zeros, and
// optimizers take roots. As f16 the same words are between 1.6 and 2.3.
std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::uint16_t> words(bytes / 2);
  std::array<std::uint32_t, 4> random{};
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i % 8 == 0) random = philox(7, i / 8, 0);
    const std::uint32_t bits = random[i % 8 / 2] >> (i % 2 * 16);
    words[i] = static_cast<std::uint16_t>((125 + (bits >> 8 & 3)) << 7 | (bits & 0x7F));
  }
  const auto* begin = reinterpret_cast<const std::byte*>(words.data());
  return {begin, begin + bytes};
}

class Memory {
 public:
  Memory(Device& device, std::size_t bytes)
      : device_(device), bytes_(bytes), data_(static_cast<std::byte*>(device.allocate(bytes))) {}
  ~Memory() {
    settle(device_);
    device_.deallocate(data_, bytes_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }

  void fill(const std::vector<std::byte>& with) const {
    for (std::size_t at = 0; at < bytes_; at += with.size())
      device_.upload(data_ + at, with.data(), std::min(with.size(), bytes_ - at));
  }

 private:
  Device& device_;
  std::size_t bytes_;
  std::byte* data_;
};

// The operands of one launch, laid out from `begin` on.
struct Operands {
  std::vector<const void*> in;
  std::vector<void*> out;
  std::byte* end;

  Operands(const OperatorCase& c, Types outputs, std::byte* begin) : end(begin) {
    for (const TensorType& type : c.in) in.push_back(take(type));
    for (std::uint32_t o = 0; o < outputs.size(); ++o)
      if (const auto alias = aliased_input(c.op, o, c.in))
        out.push_back(const_cast<void*>(in[alias->input]));
      else if (c.in_place && o == 0)
        out.push_back(const_cast<void*>(in[0]));
      else
        out.push_back(take(outputs[o]));
  }

 private:
  std::byte* take(const TensorType& type) {
    std::byte* const here = end;
    end += padded(type.bytes());
    return here;
  }
};

std::size_t bytes_of(const OperatorCase& c, Types outputs) {
  const Operands operands(c, outputs, nullptr);
  return static_cast<std::size_t>(operands.end - static_cast<std::byte*>(nullptr));
}

void upload_ids(Device& device, const OperatorCase& c, const Operands& operands,
                std::uint64_t set) {
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    if (c.in[i].dtype != DType::i32) continue;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(c.in[i].numel()));
    const auto rows = static_cast<double>(id_range(c.op, c.in));
    for (std::size_t k = 0; k < ids.size(); ++k)
      ids[k] =
          static_cast<std::int32_t>(rows * std::pow(philox(3, k, set)[0] * 0x1p-32, c.id_skew));
    device.upload(const_cast<void*>(operands.in[i]), ids.data(), c.in[i].bytes());
  }
}

// How many sets of operands there are to rotate over.
std::size_t sets_of(const Device& device, std::size_t set, std::size_t workspace,
                    std::size_t most) {
  if (workspace + set > most)
    throw OutOfMemoryError("the operands take {}, and the {} has {} for them",
                           format_bytes(workspace + set), device.name(), format_bytes(most));
  const std::size_t enough =
      device.info().cache_bytes > 0 ? 3 * device.info().cache_bytes : enough_for_most;
  return std::clamp<std::size_t>((enough + set - 1) / set, 1,
                                 std::min(most_sets, (most - workspace) / set));
}

}  // namespace

struct TimedOperator::Prepared {
  Device& device;
  PreparedKernel kernel;
  std::unique_ptr<Memory> memory;  // the workspace, and then the sets
  std::vector<Operands> operands;  // by set
  std::size_t launches;            // of a repetition
  KernelPtr captured;              // null where the device cannot capture

  void enqueue() const {
    for (std::size_t l = 0; l < launches; ++l) {
      const Operands& o = operands[l % operands.size()];
      if (kernel.kernel)
        kernel.kernel->launch({.inputs = o.in, .outputs = o.out, .workspace = memory->data()});
    }
  }
};

TimedOperator::TimedOperator(Device& device, const OperatorCase& what, const OperatorTiming& how) {
  const std::vector<TensorType> outputs = infer(what.op, what.in);
  PreparedKernel kernel = device.prepare(what.op, what.in, outputs, how.kernels);
  const std::size_t set = std::max<std::size_t>(256, bytes_of(what, outputs));
  const std::size_t workspace = padded(kernel.workspace);
  const std::size_t most = std::min(how.most_bytes, device.available_memory());
  const std::size_t sets = sets_of(device, set, workspace, most);
  const auto launches =
      std::max<std::size_t>(sets, sets == 1 ? 4 : static_cast<std::size_t>(how.launches));
  auto memory = std::make_unique<Memory>(device, workspace + sets * set);
  prepared_ = std::make_unique<Prepared>(
      Prepared{device, std::move(kernel), std::move(memory), {}, launches, nullptr});
  Prepared& p = *prepared_;
  p.memory->fill(pattern(std::size_t{64} << 20));
  for (std::size_t s = 0; s < sets; ++s) {
    p.operands.emplace_back(what, outputs, p.memory->data() + workspace + s * set);
    upload_ids(device, what, p.operands.back(), s);
  }
  p.enqueue();  // first launches may load code, which cannot be captured
  const DeviceWork work{.enqueue = [&p] { p.enqueue(); }};
  p.captured = device.capture({&work, 1});
}

TimedOperator::~TimedOperator() = default;

double TimedOperator::seconds() {
  const Prepared& p = *prepared_;
  p.device.mark(0);
  p.captured ? p.captured->launch({}) : p.enqueue();
  p.device.mark(1);
  p.device.wait(1);
  return p.device.seconds_between(0, 1) / static_cast<double>(p.launches);
}

std::vector<double> time_operator(Device& device, const OperatorCase& what,
                                  const OperatorTiming& how) {
  TimedOperator timed(device, what, how);
  for (std::int64_t i = 0; i < how.warmup; ++i) timed.seconds();
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < how.repetitions; ++i) seconds.push_back(timed.seconds());
  return seconds;
}

Cost cost_of(const OperatorCase& what) { return cost(what.op, what.in, infer(what.op, what.in)); }

}  // namespace ridge
