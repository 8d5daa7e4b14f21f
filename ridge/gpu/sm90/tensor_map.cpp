#include "ridge/gpu/sm90/tensor_map.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

#include "ridge/base/error.h"
#include "ridge/gpu/context.h"

namespace ridge::gpu::sm90 {
namespace {

// The driver's encoder, looked up at run time so that nothing links against libcuda.
auto find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                              12000, cudaEnableDefault, &found);
  if (status != cudaSuccess || function == nullptr)
    throw DeviceError(
        "this CUDA driver has no cuTensorMapEncodeTiled ({}); use driver 525 or later",
        cudaGetErrorString(status));
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

const auto& encoder() {
  static const auto encode = find_encoder();
  return encode;
}

}  // namespace

CUtensorMap matrix_map(const void* base, std::int64_t rows, std::int64_t columns) {
  const std::array<cuuint64_t, 2> sizes{static_cast<cuuint64_t>(columns),
                                        static_cast<cuuint64_t>(rows)};
  const std::array<cuuint64_t, 1> strides{static_cast<cuuint64_t>(columns) * 2};
  const std::array<cuuint32_t, 2> box{box_extent, box_extent};
  const std::array<cuuint32_t, 2> steps{1, 1};
  CUtensorMap map{};
  const CUresult status =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(base), sizes.data(),
                strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw DeviceError("cuTensorMapEncodeTiled failed with {} for {} rows of {} at address {}",
                      static_cast<int>(status), rows, columns, base);
  return map;
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
  return map;
}

int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "asking for the current GPU");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        "asking a GPU for its multiprocessors");
  return count;
}

}  // namespace ridge::gpu::sm90
