// The largest magnitude is found wherever it lies: threads share out a tensor in parts, of which
// the last is short.

#include <gtest/gtest.h>

#include "ridge/cpu/device.h"
#include "ridge/cpu/elementwise.h"
#include "ridge/ops/quantize.h"
#include "tests/ops/sample_runner.h"

namespace ridge {
namespace {

using testing::Reals;

TEST(QuantizeInParts, FindsTheLargestInEachOfThem) {
  constexpr std::int64_t count = 3 * elements_per_task + 7;
  for (const std::int64_t at : {std::int64_t{0}, elements_per_task - 1, elements_per_task,
                                3 * elements_per_task, count - 1})
    for (const std::int64_t columns : {std::int64_t{1}, count}) {
      Reals x(static_cast<std::size_t>(count), 0.25);
      x[static_cast<std::size_t>(at)] = 448;
      const Quantize op{.to = DType::f8e4m3};
      const TensorType in[] = {{DType::f32, {count / columns, columns}}};
      const std::vector<TensorType> out = op.infer(in);
      CpuDevice device(2);
      const auto bytes = testing::run_kernel(device, op, in, out, {x});
      EXPECT_EQ(testing::decode(bytes[0], out[0].dtype), Reals{1.0}) << at << ", " << columns;
      EXPECT_EQ(testing::decode(bytes[1], out[1].dtype)[static_cast<std::size_t>(at)], 448);
    }
}

}  // namespace
}  // namespace ridge
