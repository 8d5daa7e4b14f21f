// Captured launches, as the runtime of either vendor replays them: each after what it must follow,
// and marks at every replay.

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "ridge/ops/op.h"
#include "tests/gpu/gpu.h"

namespace ridge {
namespace {

const TensorType type{DType::f32, {1 << 20}};

class LaunchGraphs : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    for (void*& tensor : tensors_) tensor = device().allocate(type.bytes());
  }
  void TearDown() override {
    for (void* const tensor : tensors_)
      if (tensor) device().deallocate(tensor, type.bytes());
  }

  // Tensor `to` becomes the sum of two others.
  DeviceWork addition(std::size_t a, std::size_t b, std::size_t to,
                      std::vector<std::size_t> after) {
    const std::vector<TensorType> in{type, type};
    kernels_.push_back(device().prepare(Op{Add{}}, in, Types(&type, 1)).kernel);
    return {.enqueue =
                [this, a, b, to, kernel = kernels_.back().get()] {
                  const std::vector<const void*> inputs{tensors_[a], tensors_[b]};
                  void* const output = tensors_[to];
                  kernel->launch({.inputs = inputs, .outputs = std::span(&output, 1)});
                },
            .after = std::move(after)};
  }

  void fill(std::size_t tensor, float value) {
    const std::vector<float> values(std::size_t{1} << 20, value);
    device().upload(tensors_[tensor], values.data(), type.bytes());
  }
  float last_of(std::size_t tensor) {
    std::vector<float> values(std::size_t{1} << 20);
    device().download(values.data(), tensors_[tensor], type.bytes());
    return values.back();
  }

  std::array<void*, 4> tensors_{};
  std::vector<KernelPtr> kernels_;
};

// Two chains that both change what the end adds; one of them has a mark in its midst.
TEST_F(LaunchGraphs, KeepTheirOrderAndMarkEveryReplay) {
  const std::vector<DeviceWork> works{
      {.enqueue = [] { device().mark(0); }},
      addition(0, 0, 1, {0}),
      addition(1, 1, 1, {1}),
      addition(0, 0, 2, {0}),
      {.enqueue = [] { device().mark(1); }, .after = {2}},
      addition(1, 2, 3, {2, 3}),
      {.enqueue = [] { device().mark(2); }, .after = {4, 5}},
  };
  for (const float x : {1.0f, 3.0f}) {  // the first launches load the kernels' code
    fill(0, x);
    for (const DeviceWork& work : works) work.enqueue();
    EXPECT_EQ(last_of(3), 6 * x);
  }
  const KernelPtr captured = device().capture(works);
  ASSERT_NE(captured, nullptr);
  for (const float x : {5.0f, 7.0f, 9.0f}) {
    fill(0, x);
    captured->launch({});
    device().wait(2);
    EXPECT_GT(device().seconds_between(0, 1), 0);
    EXPECT_GE(device().seconds_between(0, 2), device().seconds_between(0, 1));
    EXPECT_EQ(last_of(3), 6 * x);
  }
}

}  // namespace
}  // namespace ridge
