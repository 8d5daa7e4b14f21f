#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "ridge/base/error.h"
#include "ridge/gpu/device/libraries.h"
#include "ridge/gpu/vendor/blas.h"
#include "ridge/gpu/vendor/ordered_start.h"

namespace ridge::gpu {
namespace {

// What the library may ask for: the size that NVIDIA recommends for sm90. It must be aligned.
constexpr std::size_t max_workspace = std::size_t{32} << 20;
constexpr std::size_t workspace_alignment = 256;

struct CublasLt : VendorLibrary {
  CublasLt() : VendorLibrary(search_for(cublas_lt_library())) {}

  void check(cublasStatus_t status, std::string_view what) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    gpu::check(cudaPeekAtLastError(), what);  // says more, if the card itself failed
    if (status == CUBLAS_STATUS_ALLOC_FAILED) gpu::check(cudaErrorMemoryAllocation, what);
    throw DeviceError("cuBLASLt failed in {}: {}", what, status_name(status));
  }

  Function<decltype(cublasLtGetStatusName)> status_name{*this, "cublasLtGetStatusName"};
  Function<decltype(cublasLtGetVersion)> version{*this, "cublasLtGetVersion"};
  Function<decltype(cublasLtCreate)> create{*this, "cublasLtCreate"};
  Function<decltype(cublasLtDestroy)> destroy{*this, "cublasLtDestroy"};
  Function<decltype(cublasLtMatmul)> matmul{*this, "cublasLtMatmul"};
  Function<decltype(cublasLtMatmulAlgoGetHeuristic)> heuristic{*this,
                                                               "cublasLtMatmulAlgoGetHeuristic"};
  Function<decltype(cublasLtMatmulDescCreate)> matmul_create{*this, "cublasLtMatmulDescCreate"};
  Function<decltype(cublasLtMatmulDescDestroy)> matmul_destroy{*this, "cublasLtMatmulDescDestroy"};
  Function<decltype(cublasLtMatmulDescSetAttribute)> matmul_set{*this,
                                                                "cublasLtMatmulDescSetAttribute"};
  Function<decltype(cublasLtMatrixLayoutCreate)> layout_create{*this, "cublasLtMatrixLayoutCreate"};
  Function<decltype(cublasLtMatrixLayoutDestroy)> layout_destroy{*this,
                                                                 "cublasLtMatrixLayoutDestroy"};
  Function<decltype(cublasLtMatrixLayoutSetAttribute)> layout_set{
      *this, "cublasLtMatrixLayoutSetAttribute"};
  Function<decltype(cublasLtMatmulPreferenceCreate)> preference_create{
      *this, "cublasLtMatmulPreferenceCreate"};
  Function<decltype(cublasLtMatmulPreferenceDestroy)> preference_destroy{
      *this, "cublasLtMatmulPreferenceDestroy"};
  Function<decltype(cublasLtMatmulPreferenceSetAttribute)> preference_set{
      *this, "cublasLtMatmulPreferenceSetAttribute"};
};

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    case DType::f8e4m3:
      return CUDA_R_8F_E4M3;
    case DType::f8e5m2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

// How the library may add the parts of a sum that it computes apart: never rounded to 16 bits.
std::uint32_t sums_of_parts(const ProductShape& s) {
  return is_16_bit(s.out) ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_MASK;
}

struct Descriptor {
  const CublasLt& lt;
  cublasLtMatmulDesc_t handle = nullptr;
  Descriptor(const CublasLt& library, const ProductShape& s) : lt(library) {
    const auto compute =
        s.in == DType::f32 && s.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    lt.check(lt.matmul_create(&handle, compute, CUDA_R_32F), "describing a product");
    // The library's matrices are column-major: what is c = a b to us is c^T = b^T a^T to it, whose
    // left operand is our b, and a row-major matrix is its own transpose to the library.
    set(CUBLASLT_MATMUL_DESC_TRANSA, s.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, s.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (s.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE,
          s.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS);
    } else if (s.relu) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU);
    }
    if (s.scaled && !is_float8(s.in))
      set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
    if (!is_float8(s.in)) return;
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{s.fast_accumulation});
    // So that plans which cannot scale are not offered: nothing is read yet.
    alignas(16) static constexpr float some_scale = 1;
    set_scales({&some_scale, &some_scale});
  }
  // To the library, our right operand is the left one; scales begin on 16 bytes.
  void set_scales(OperandScales scales) const {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.b);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.a);
  }
  // Our rows are the library's columns, along which it adds a bias.
  void set_bias(const void* bias) const { set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }
  ~Descriptor() { lt.matmul_destroy(handle); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) const {
    lt.check(lt.matmul_set(handle, attribute, &value, sizeof(value)), "describing a product");
  }
};

struct Layout {
  const CublasLt& lt;
  cublasLtMatrixLayout_t handle = nullptr;
  Layout(const CublasLt& library, DType dtype, std::int64_t rows, std::int64_t columns,
         std::int64_t batch)
      : lt(library) {
    lt.check(lt.layout_create(&handle, type_of(dtype), static_cast<std::uint64_t>(columns),
                              static_cast<std::uint64_t>(rows), columns),
             "describing a matrix");
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, rows * columns);
  }
  ~Layout() { lt.layout_destroy(handle); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

 private:
  template <class T>
  void set(cublasLtMatrixLayoutAttribute_t attribute, T value) {
    lt.check(lt.layout_set(handle, attribute, &value, sizeof(value)), "describing a matrix");
  }
};

// A product as the library sees it; shared by all plans to compute it.
struct Problem {
  Descriptor descriptor;
  Layout a, b, c;
  float beta;  // what c, or the residual, is multiplied with before the product is added
  // Operands of 16 bits, whose scales the library takes as a factor of the product alone.
  bool has_factor;
  Problem(const CublasLt& lt, const ProductShape& s)
      : descriptor(lt, s),
        a(lt, s.in, s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k, s.batch),
        b(lt, s.in_b.value_or(s.in), s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n, s.batch),
        c(lt, s.out, s.m, s.n, s.batch),
        beta(s.accumulate || s.residual ? 1.0f : 0.0f),
        has_factor(s.scaled && !is_float8(s.in)) {}
};

// The library, and its state on one card.
struct Opened {
  CublasLt lt;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;

  Opened() {
    lt.check(lt.create(&handle), "opening the library");
    lt.check(lt.preference_create(&preference), "opening the library");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, max_workspace);
  }
  ~Opened() {
    if (preference) lt.preference_destroy(preference);
    if (handle) lt.destroy(handle);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    lt.check(lt.preference_set(preference, attribute, &value, sizeof(value)), "choosing a product");
  }
};

class LtProduct final : public Product {
 public:
  LtProduct(const Opened& library, std::shared_ptr<const Problem> problem,
            const cublasLtMatmulHeuristicResult_t& result)
      : library_(library),
        problem_(std::move(problem)),
        algorithm_(result.algo),
        workspace_(result.workspaceSize) {}

  std::size_t workspace() const override {
    const std::size_t bytes = workspace_ + (problem_->has_factor ? workspace_alignment : 0);
    return bytes == 0 ? 0 : bytes + workspace_alignment;
  }
  void run(Stream stream, const void* a, const void* b, void* c, void* workspace,
           OperandScales scales, ProductTerms terms) const override {
    const auto begin = reinterpret_cast<std::uintptr_t>(workspace) + workspace_alignment - 1;
    workspace = reinterpret_cast<void*>(begin - begin % workspace_alignment);
    const float one = 1, *alpha = &one, *beta = &problem_->beta;
    if (problem_->has_factor) {
      auto* const factors = static_cast<float*>(workspace);  // on the device, both or neither
      workspace = factors + workspace_alignment / sizeof(float);
      product_factors(stream, scales, problem_->beta, factors);
      alpha = factors, beta = factors + 1;
    } else if (scales.a) {
      problem_->descriptor.set_scales(scales);
    }
    if (terms.bias) problem_->descriptor.set_bias(terms.bias);
    const void* const added = terms.residual ? terms.residual : c;
    const CublasLt& lt = library_.lt;
    start_.run(stream, [&](Stream into) {
      lt.check(lt.matmul(library_.handle, problem_->descriptor.handle, alpha, b, problem_->b.handle,
                         a, problem_->a.handle, beta, added, problem_->c.handle, c,
                         problem_->c.handle, &algorithm_, workspace, workspace_, into),
               "a product");
    });
  }

 private:
  const Opened& library_;
  std::shared_ptr<const Problem> problem_;
  cublasLtMatmulAlgo_t algorithm_;
  std::size_t workspace_;
  mutable OrderedStart start_;
};

class Lt final : public Blas {
 public:
  std::vector<ProductPtr> products(const ProductShape& shape, std::size_t most) override {
    Opened& library = opened();
    const CublasLt& lt = library.lt;
    const auto problem = std::make_shared<const Problem>(lt, shape);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      library.set(attribute, shape.alignment);
    library.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, sums_of_parts(shape));
    std::vector<cublasLtMatmulHeuristicResult_t> results(most);
    int found = 0;
    const cublasStatus_t status =
        lt.heuristic(library.handle, problem->descriptor.handle, problem->b.handle,
                     problem->a.handle, problem->c.handle, problem->c.handle, library.preference,
                     static_cast<int>(most), results.data(), &found);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0)
      throw DeviceError("cuBLASLt has no plan to compute {}: {}", to_string(shape),
                        lt.status_name(status));
    std::vector<ProductPtr> plans;
    for (int i = 0; i < found; ++i)
      plans.push_back(
          std::make_unique<LtProduct>(library, problem, results[static_cast<std::size_t>(i)]));
    return plans;
  }

  std::string version() override {
    const std::size_t v = opened().lt.version();
    return fmt::format("cuBLASLt {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  }

 private:
  Opened& opened() {
    if (!opened_) opened_ = std::make_unique<Opened>();
    return *opened_;
  }

  std::unique_ptr<Opened> opened_;
};

}  // namespace

std::shared_ptr<Blas> make_vendor_blas() { return std::make_shared<Lt>(); }

std::shared_ptr<Blas> make_blas(const Card& card) {
  return wants_libraries() ? library_or_portable(make_vendor_blas(), card)
                           : make_portable_blas(card);
}

}  // namespace ridge::gpu
