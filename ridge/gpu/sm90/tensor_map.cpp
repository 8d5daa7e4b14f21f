#include "ridge/gpu/sm90/tensor_map.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

#include "ridge/base/error.h"
#include "ridge/gpu/device/context.h"
#include "ridge/gpu/kernels/product/split_bf16.h"

namespace ridge::gpu::sm90 {
namespace {

// One of the driver's encoders, looked up at run time so that nothing links against libcuda.
template <class Function>
Function find_encoder(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
  if (status != cudaSuccess || function == nullptr)
    throw DeviceError("this CUDA driver has no {} ({}); use driver 525 or later", name,
                      cudaGetErrorString(status));
  return reinterpret_cast<Function>(function);
}

const auto& encoder() {
  static const auto encode =
      find_encoder<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  return encode;
}

CUtensorMapSwizzle swizzle_of(int columns) {
  return columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
}

// The driver writes to multiples of 64 bytes alone. A variable here is one; where the caller puts
// what is returned may be none, for GCC aligns such temporaries to 16 bytes (its bug 110027).
[[gnu::noinline]] CUtensorMap copy_of(const CUtensorMap& map) { return map; }

}  // namespace

CUtensorMap matrix_map(const void* base, std::int64_t rows, std::int64_t columns, int box_rows) {
  return box_map(base, {columns, rows}, {box_extent, box_rows});
}

CUtensorMap split_map(const void* base, std::int64_t rows, std::int64_t columns) {
  const auto pitch = static_cast<cuuint64_t>(split_pitch(columns)) * 2;
  const std::array<cuuint64_t, 3> sizes{static_cast<cuuint64_t>(columns),
                                        static_cast<cuuint64_t>(rows), split_components};
  const std::array<cuuint64_t, 2> strides{pitch, pitch * sizes[1]};
  const std::array<cuuint32_t, 3> box{box_extent, box_extent, 1};
  const std::array<cuuint32_t, 3> steps{1, 1, 1};
  CUtensorMap map{};
  const CUresult status =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(base), sizes.data(),
                strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw DeviceError("cuTensorMapEncodeTiled failed with {} for components of {} rows of {} at {}",
                      static_cast<int>(status), rows, columns, base);
  return copy_of(map);
}

CUtensorMap head_map(DType dtype, const void* base, std::int64_t batch, std::int64_t seq,
                     std::int64_t heads, std::int64_t head_dim, std::int64_t stride, int box_rows) {
  constexpr std::int64_t element = 2;
  const auto size = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  const auto columns = static_cast<cuuint32_t>(std::min<std::int64_t>(head_dim, 64));
  const std::array<cuuint64_t, 4> sizes{size(head_dim), size(seq), size(heads), size(batch)};
  const std::array<cuuint64_t, 3> strides{size(stride * element), size(head_dim * element),
                                          size(seq * stride * element)};
  const std::array<cuuint32_t, 4> box{columns, static_cast<cuuint32_t>(box_rows), 1, 1};
  const std::array<cuuint32_t, 4> steps{1, 1, 1, 1};
  const auto type =
      dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  CUtensorMap map{};
  const CUresult status =
      encoder()(&map, type, 4, const_cast<void*>(base), sizes.data(), strides.data(), box.data(),
                steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw DeviceError(
        "cuTensorMapEncodeTiled failed with {} for batch {}, seq {}, heads {}, head_dim {}, stride "
        "{}, address {}",
        static_cast<int>(status), batch, seq, heads, head_dim, stride, base);
  return copy_of(map);
}

CUtensorMap box_map(const void* base, std::initializer_list<std::int64_t> sizes,
                    std::initializer_list<int> box) {
  constexpr std::size_t most = 4;
  std::array<cuuint64_t, most> extents{}, strides{};
  std::array<cuuint32_t, most> box_extents{};
  const std::array<cuuint32_t, most> steps{1, 1, 1, 1};
  std::ranges::transform(sizes, extents.begin(), [](auto n) { return static_cast<cuuint64_t>(n); });
  std::ranges::transform(box, box_extents.begin(),
                         [](auto n) { return static_cast<cuuint32_t>(n); });
  cuuint64_t stride = 2;
  for (std::size_t d = 0; d < sizes.size(); ++d) strides[d] = stride *= extents[d];
  CUtensorMap map{};
  const CUresult status =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(sizes.size()),
                const_cast<void*>(base), extents.data(), strides.data(), box_extents.data(),
                steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(*box.begin()),
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw DeviceError("cuTensorMapEncodeTiled failed with {} for {} x {} x {} at address {}",
                      static_cast<int>(status), extents[2], extents[1], extents[0], base);
  return copy_of(map);
}

CUtensorMap window_map(const void* base, const WindowGeometry& g, int pixels, int channels) {
  static const auto encode =
      find_encoder<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  const auto size = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  const std::array<cuuint64_t, 4> sizes{size(g.c), size(g.w), size(g.h), size(g.n)};
  const std::array<cuuint64_t, 3> strides{size(g.pixel_bytes), size(g.row_bytes),
                                          size(g.row_bytes * g.h)};
  std::array<int, 2> lower{}, upper{};  // across, down
  std::array<cuuint32_t, 4> steps{1, 1, 1, 1};
  for (std::size_t d = 0; d < 2; ++d) {
    const std::size_t from = 1 - d;
    lower[d] = static_cast<int>(-g.padding[from]);
    upper[d] = static_cast<int>(g.padding[from] - (g.kernel[from] - 1) * g.dilation[from]);
    steps[1 + d] = static_cast<cuuint32_t>(g.stride[from]);
  }
  CUtensorMap map{};
  const CUresult status = encode(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void*>(base), sizes.data(),
      strides.data(), lower.data(), upper.data(), static_cast<cuuint32_t>(channels),
      static_cast<cuuint32_t>(pixels), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle_of(channels), CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw DeviceError(
        "cuTensorMapEncodeIm2col failed with {} for {} x {} x {} x {} with windows of {} x {} at "
        "address {}",
        static_cast<int>(status), g.n, g.h, g.w, g.c, g.kernel[0], g.kernel[1], base);
  return copy_of(map);
}

int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "asking for the current GPU");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        "asking a GPU for its multiprocessors");
  return count;
}

}  // namespace ridge::gpu::sm90
