// Values that are shared out among ranks, seen from outside: each rank keeps its part, and who
// writes or reads the whole does so as if it were there.

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/part.h"
#include "ridge/ops/op.h"
#include "ridge/run/executor.h"
#include "tests/base/message_of.h"
#include "tests/dist/ranks.h"

namespace ridge {
namespace {

// Two parameters that are packed into one of 9 x 8 elements.
struct Packed {
  Graph graph;
  Value a = graph.parameter("a", {4, 8}, Init::normal(1.0f));
  Value b = graph.parameter("b", {5, 8}, Init::normal(1.0f));
  Value whole = graph.pack(std::vector{a, b}, "ab");
};

std::vector<float> counted(std::int64_t n, float first) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(SharedOut, TakesThePartsMemoryAlone) {
  Packed p;
  const Value own = p.graph.share_out(p.whole, part_of(72, 1, 2));
  EXPECT_EQ(own.type(), (TensorType{DType::f32, {24}}));
  EXPECT_EQ(p.graph.info(own.id).name, "ab.shard");
  EXPECT_EQ(p.graph.parameters(), (std::vector{p.a, p.b})) << "as before";
  EXPECT_EQ(p.graph.trainables(), (std::vector{p.whole}));
  for (const Value& value : {p.a, p.b, p.whole}) {
    EXPECT_FALSE(p.graph.info(value.id).persistent);
    EXPECT_TRUE(p.graph.outlives_runs(value.id));
    EXPECT_EQ(p.graph.shared_out(value.id), p.whole.id);
  }
  EXPECT_FALSE(p.graph.outlives_runs(own.id)) << "which is counted as the whole";
  EXPECT_EQ(p.graph.shared_out(own.id), std::nullopt);
}

TEST(SharedOut, IsAWholeOfItsOwn) {
  Packed p;
  EXPECT_EQ(message_of<UsageError>([&] {
              p.graph.share_out(p.a, {0, 16});
            }),
            "a cannot be shared out: it is no persistent value of its own");
  const Value computed = scale(p.whole, 2.0f);
  EXPECT_THROW(p.graph.share_out(computed, {0, 16}), UsageError);
}

TEST(SharedOut, IsWrittenInPartsAndReadAsAWhole) {
  for (const int ranks : {1, 2, 3})
    on_ranks(ranks, [&](Device& device) {
      Packed p;
      const Value own = p.graph.share_out(p.whole, part_of(72, device.rank(), ranks));
      Executor executor(p.graph, device);
      const std::vector<float> a = counted(32, 100), b = counted(40, 500);
      executor.write(p.a, std::span(a));
      executor.write(p.b, std::span(b));
      EXPECT_EQ(executor.read_floats(p.a), a);
      EXPECT_EQ(executor.read_floats(p.b), b);
      std::vector<float> all = a;
      all.insert(all.end(), b.begin(), b.end());
      EXPECT_EQ(executor.read_floats(p.whole), all);
      const auto [first, count] = part_of(72, device.rank(), ranks);
      EXPECT_EQ(executor.read_floats(own),
                std::vector(all.begin() + first, all.begin() + first + count));
      executor.fill_zero(p.b);
      EXPECT_EQ(executor.read_floats(p.a), a);
      EXPECT_EQ(executor.read_floats(p.b), std::vector<float>(40, 0.0f));
    });
}

// A function of seed and name, whoever has which part.
TEST(SharedOut, BeginsAsItWouldAlone) {
  Packed alone;
  std::vector<float> expected;
  on_ranks(1, [&](Device& device) {
    Executor executor(alone.graph, device);
    executor.initialize(7);
    expected = executor.read_floats(alone.whole);
  });
  on_ranks(3, [&](Device& device) {
    Packed p;
    p.graph.share_out(p.whole, part_of(72, device.rank(), 3));
    Executor executor(p.graph, device);
    executor.initialize(7);
    EXPECT_EQ(executor.read_floats(p.whole), expected);
  });
}

}  // namespace
}  // namespace ridge
