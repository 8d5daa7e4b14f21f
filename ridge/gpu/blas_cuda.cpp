#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "ridge/base/error.h"
#include "ridge/gpu/blas.h"

namespace ridge::gpu {
namespace {

// What the library may ask for: the size that NVIDIA recommends for Hopper. It must be aligned.
constexpr std::size_t max_workspace = std::size_t{32} << 20;
constexpr std::size_t workspace_alignment = 256;

void check_blas(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  check(cudaPeekAtLastError(), what);  // says more, if the card itself failed
  if (status == CUBLAS_STATUS_ALLOC_FAILED) check(cudaErrorMemoryAllocation, what);
  throw DeviceError("cuBLASLt failed in {}: {}", what, cublasLtGetStatusName(status));
}

cudaDataType_t type_of(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

template <class T, cublasStatus_t (*destroy)(T*)>
struct Destroy {
  void operator()(T* handle) const { destroy(handle); }
};
using Handle = std::unique_ptr<cublasLtContext, Destroy<cublasLtContext, cublasLtDestroy>>;

struct Descriptor {
  cublasLtMatmulDesc_t handle = nullptr;
  explicit Descriptor(const ProductShape& s) {
    const auto compute =
        s.in == DType::f32 && s.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check_blas(cublasLtMatmulDescCreate(&handle, compute, CUDA_R_32F), "describing a product");
    // The library's matrices are column-major: what is c = a b to us is c^T = b^T a^T to it, whose
    // left operand is our b, and a row-major matrix is its own transpose to the library.
    const cublasOperation_t left = s.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t right = s.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_blas(
        cublasLtMatmulDescSetAttribute(handle, CUBLASLT_MATMUL_DESC_TRANSA, &left, sizeof(left)),
        "describing a product");
    check_blas(
        cublasLtMatmulDescSetAttribute(handle, CUBLASLT_MATMUL_DESC_TRANSB, &right, sizeof(right)),
        "describing a product");
  }
  ~Descriptor() { cublasLtMatmulDescDestroy(handle); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

struct Layout {
  cublasLtMatrixLayout_t handle = nullptr;
  Layout(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t batch) {
    check_blas(
        cublasLtMatrixLayoutCreate(&handle, type_of(dtype), static_cast<std::uint64_t>(columns),
                                   static_cast<std::uint64_t>(rows), columns),
        "describing a matrix");
    const auto count = static_cast<std::int32_t>(batch);
    const std::int64_t stride = rows * columns;
    check_blas(cublasLtMatrixLayoutSetAttribute(handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                sizeof(count)),
               "describing a matrix");
    check_blas(cublasLtMatrixLayoutSetAttribute(handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &stride, sizeof(stride)),
               "describing a matrix");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(handle); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
};

// A product as the library sees it; shared by all ways to compute it.
struct Problem {
  Descriptor descriptor;
  Layout a, b, c;
  explicit Problem(const ProductShape& s)
      : descriptor(s),
        a(s.in, s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k, s.batch),
        b(s.in, s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n, s.batch),
        c(s.out, s.m, s.n, s.batch) {}
};

class LtProduct final : public Product {
 public:
  LtProduct(cublasLtHandle_t handle, std::shared_ptr<const Problem> problem,
            const cublasLtMatmulHeuristicResult_t& result)
      : handle_(handle),
        problem_(std::move(problem)),
        algorithm_(result.algo),
        workspace_(result.workspaceSize) {}

  std::size_t workspace() const override {
    return workspace_ == 0 ? 0 : workspace_ + workspace_alignment;
  }
  void run(Stream stream, const void* a, const void* b, void* c, void* workspace) const override {
    const float one = 1, zero = 0;
    const auto begin = reinterpret_cast<std::uintptr_t>(workspace) + workspace_alignment - 1;
    workspace = reinterpret_cast<void*>(begin - begin % workspace_alignment);
    check_blas(cublasLtMatmul(handle_, problem_->descriptor.handle, &one, b, problem_->b.handle, a,
                              problem_->a.handle, &zero, c, problem_->c.handle, c,
                              problem_->c.handle, &algorithm_, workspace, workspace_, stream),
               "a product");
  }

 private:
  cublasLtHandle_t handle_;
  std::shared_ptr<const Problem> problem_;
  cublasLtMatmulAlgo_t algorithm_;
  std::size_t workspace_;
};

class Lt final : public Blas {
 public:
  Lt() {
    cublasLtHandle_t handle = nullptr;
    check_blas(cublasLtCreate(&handle), "opening the library");
    handle_.reset(handle);
    check_blas(cublasLtMatmulPreferenceCreate(&preference_), "opening the library");
    const std::size_t bytes = max_workspace;
    check_blas(cublasLtMatmulPreferenceSetAttribute(
                   preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)),
               "opening the library");
  }
  ~Lt() override { cublasLtMatmulPreferenceDestroy(preference_); }

  std::vector<ProductPtr> products(const ProductShape& shape, std::size_t most) override {
    const auto problem = std::make_shared<const Problem>(shape);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      check_blas(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &shape.alignment,
                                                      sizeof(shape.alignment)),
                 "choosing a product");
    std::vector<cublasLtMatmulHeuristicResult_t> results(most);
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_.get(), problem->descriptor.handle, problem->b.handle,
                                       problem->a.handle, problem->c.handle, problem->c.handle,
                                       preference_, static_cast<int>(most), results.data(), &found);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0)
      throw DeviceError("cuBLASLt knows no way to compute {}: {}", to_string(shape),
                        cublasLtGetStatusName(status));
    std::vector<ProductPtr> ways;
    for (int i = 0; i < found; ++i)
      ways.push_back(std::make_unique<LtProduct>(handle_.get(), problem,
                                                 results[static_cast<std::size_t>(i)]));
    return ways;
  }

  std::string version() const override {
    const std::size_t v = cublasLtGetVersion();
    return fmt::format("cuBLASLt {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  }

 private:
  Handle handle_;
  cublasLtMatmulPreference_t preference_ = nullptr;
};

}  // namespace

std::string to_string(const ProductShape& s) {
  return fmt::format("{}[{} x {}{} x {} x {}{}] -> {}{}{}", name_of(s.in), s.batch, s.m,
                     s.trans_a ? "T" : "", s.k, s.n, s.trans_b ? "T" : "", name_of(s.out),
                     s.tf32 ? " tf32" : "", s.alignment == 16 ? "" : " unaligned");
}

std::shared_ptr<Blas> make_blas() { return std::make_shared<Lt>(); }

}  // namespace ridge::gpu
