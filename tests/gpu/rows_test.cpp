// Operators on rows, at lengths that take every way a GPU kernel has to share out a row: warps and
// blocks that hold it, rows that are read again, packs and single elements. Skipped where there is
// no GPU.

#include <algorithm>

#include "ridge/gpu/device.h"
#include "tests/gpu/gpu.h"
#include "tests/ops/cases.h"
#include "tests/ops/norm_results.h"
#include "tests/ops/types.h"

namespace ridge {
namespace {

using testing::Reals;

class RowsOnGpu : public testing::GpuTest {
 protected:
  template <class T>
  void check(const T& op, const std::vector<SampleInput>& inputs) {
    const Sample<T> sample{op, inputs};
    for (const DType dtype : dtypes_of<T>()) {
      const std::vector<TensorType> in = testing::operand_types(sample, dtype);
      SCOPED_TRACE(fmt::format("{}: {}", T::name, list_of(in)));
      const std::vector<TensorType> out = op.infer(in);
      const std::vector<Reals> values = testing::operand_values(sample, in);
      const std::vector<Reals> expected = testing::run_reference(Op(op), in, out, values);
      const auto actual = testing::run_kernel(device(), Op(op), in, out, values);
      for (std::size_t o = 0; o < out.size(); ++o) {
        SCOPED_TRACE(fmt::format("output {}: {}", o, out[o].to_string()));
        testing::expect_close(testing::decode(actual[o], out[o].dtype), expected[o],
                              testing::tolerance_of(out[o], in));
      }
      EXPECT_EQ(testing::run_kernel(device(), Op(op), in, out, values), actual)
          << "at a second launch";
    }
  }
};

const std::vector<Shape> shapes{{37, 128},  {300, 256}, {9, 250},  {700, 768}, {5, 1000},
                                {70, 2048}, {9, 2047},  {5, 4100}, {3, 9000},  {3, 8191},
                                {2, 20000}, {2, 20001}, {3, 70000}};

TEST_F(RowsOnGpu, Norms) {
  for (const Shape& shape : shapes) {
    const std::vector<SampleInput> operands{{f32(shape)},
                                            {f32(shape)},
                                            {f32(shape)},
                                            {f32({shape[-1]}), 0.5, 1.5},
                                            {f32({shape[0]}), 0.5, 2.0}};
    for (const DType y : {DType::f32, DType::bf16, DType::f16}) {
      check(RmsNorm{.out = y}, {operands[0], operands[3]});
      check(AddRmsNorm{.out = y}, {operands[0], operands[1], operands[3]});
    }
    const std::vector<SampleInput> without_sum(operands.begin() + 1, operands.end());
    for (const bool from_result : {false, true}) {
      check(RmsNormGrad{.from_result = from_result}, without_sum);
      check(AddRmsNormGrad{.from_result = from_result}, without_sum);
      for (const DType delta : {DType::bf16, DType::f16})
        check(AddRmsNormGrad{.round_delta = delta, .from_result = from_result}, operands);
    }
  }
}

// Rows that parts of a warp hold, whole and not, and more of them than there is room for at a time.
TEST_F(RowsOnGpu, LayerNorms) {
  for (const Shape& shape : {Shape{37, 8}, Shape{5, 96}, Shape{9, 104}, Shape{3, 128},
                             Shape{5, 200}, Shape{9, 384}, Shape{7, 512}, Shape{5, 1000},
                             Shape{7, 1024}, Shape{5, 1032}, Shape{2600, 520}, Shape{18000, 40}})
    check(LayerNorm{}, {{f32(shape), -1.0, 2.0}, {f32({shape[-1]}), 0.5, 1.5}, {f32({shape[-1]})}});
}

TEST_F(RowsOnGpu, GradientsOfNormsFromTheirResults) {
  for (const DType dtype : {DType::f32, DType::bf16})
    testing::expect_gradients_from_results(device(), dtype);
}

TEST_F(RowsOnGpu, Softmax) {
  for (const Shape& shape : shapes) {
    check(Softmax{}, {{f32(shape), -9.0, 9.0}});
    // Probabilities of a long row are small.
    check(SoftmaxGrad{},
          {{f32(shape)}, {f32(shape), 0.0, std::min(1.0, 1e3 / static_cast<double>(shape[-1]))}});
  }
  for (const std::int64_t extent : {128, 250, 512, 1023, 1040, 2100}) {
    const Shape shape{extent, extent};
    check(MaskedSoftmax{.scale = 0.3f}, {{f32(shape), -9.0, 9.0}});
    check(MaskedSoftmaxGrad{.scale = 0.3f}, {{f32(shape)}, {f32(shape), 0.0, 1.0}});
  }
}

TEST_F(RowsOnGpu, CrossEntropy) {
  for (const Shape& shape : shapes) {
    const auto columns = static_cast<double>(shape[-1]);
    const SampleInput logits{f32(shape), -4.0, 4.0};
    const SampleInput targets{{DType::i32, {shape[0]}}, 0.0, columns};
    check(CrossEntropy{}, {logits, targets});
    for (const bool in_place : {false, true})
      check(CrossEntropyGrad{in_place},
            {{f32({}), 0.5, 2.0}, logits, targets, {f32({shape[0]}), 4.0, 7.0}});
  }
}

TEST_F(RowsOnGpu, SwiGlu) {
  for (const Shape& shape : shapes) {
    const Shape packed{shape[0], 2 * shape[1]};
    check(SwiGlu{}, {{f32(packed), -8.0, 8.0}});
    check(SwiGluGrad{.in_place = true, .result = true}, {{f32(shape)}, {f32(packed), -8.0, 8.0}});
    check(SwiGluGrad{}, {{f32(shape)}, {f32(shape), -8.0, 8.0}, {f32(shape)}});
  }
}

TEST_F(RowsOnGpu, Rope) {
  for (const Shape& shape : {Shape{3, 5, 130, 64}, Shape{9, 2048, 32}, Shape{2, 3, 77, 6}})
    check(Rope{}, {{f32(shape)}});
}

}  // namespace
}  // namespace ridge
