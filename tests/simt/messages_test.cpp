// Which tensors go to other ranks as one message. Nothing is run: it is their places that count.

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "ridge/gpu/kernels/collective/by_copies.h"

namespace ridge {
namespace {

// An arena, of which nothing is read.
alignas(256) std::array<std::byte, 4096> arena;

std::optional<gpu::Summand> message(const std::vector<TensorType>& types,
                                    const std::vector<std::size_t>& places) {
  std::vector<void*> tensors;
  for (const std::size_t place : places) tensors.push_back(&arena[place]);
  return gpu::OneMessage(types).of(tensors);
}

TEST(Messages, EndWhereTheLastTensorEnds) {
  const auto alone = message({{DType::f32, {}}}, {256});
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->data, &arena[256]);
  EXPECT_EQ(alone->elements, 1u);
  EXPECT_EQ(alone->dtype, DType::f32);
  // 300 bytes, 256, and 6, each from a multiple of 256 bytes on.
  const auto three =
      message({{DType::bf16, {3, 50}}, {DType::bf16, {128}}, {DType::bf16, {3}}}, {256, 768, 1024});
  ASSERT_TRUE(three);
  EXPECT_EQ(three->data, &arena[256]);
  EXPECT_EQ(three->elements, (1024 - 256 + 6) / 2u);
  EXPECT_EQ(three->dtype, DType::bf16);
}

TEST(Messages, AreNotMadeOfTensorsThatLieApartOrDiffer) {
  const std::vector<TensorType> types{{DType::f32, {5}}, {DType::f32, {7}}};
  EXPECT_TRUE(message(types, {0, 256}));
  EXPECT_FALSE(message(types, {0, 512}));
  EXPECT_FALSE(message(types, {256, 0}));
  EXPECT_FALSE(message({{DType::f32, {5}}, {DType::f16, {7}}}, {0, 256}));
}

}  // namespace
}  // namespace ridge
