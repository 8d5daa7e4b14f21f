#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ridge/base/dtype.h"
#include "ridge/base/thread_pool.h"

namespace ridge {

struct CpuPrepare;  // cpu/prepare.h

// A batch of products C[m, n] = A[m, k] B[k, n] of dense row-major matrices, where A is stored as
// [k, m] if trans_a and B as [n, k] if trans_b. Sums are f32 whatever the operands are.
struct GemmShape {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  DType in = DType::f32, out = DType::f32;
  bool accumulate = false;  // C += A B, rounded to `out` once; otherwise C is overwritten
};

// "f32 1x1024x512x256 nt": batch, m, n, k, and whether A and B are stored transposed; with the
// output's dtype where it is another, and "+=" where the product is added.
std::string to_string(const GemmShape& shape);

enum class GemmKind : std::uint8_t {
  onednn,  // oneDNN's product, a call for each tile, each of which packs its part of B
  packed,  // our own: B, and a transposed A, are packed once and then shared by all tiles, in
           // stages of some megabytes where k is long
  local,   // our own: each tile reads B where it lies, or packs the part it needs
  split,   // our own, of operands split into bf16 (split_gemm.h)
};

// A plan to compute a product. The bits of a result do not depend on the number of threads, nor on
// whether the plan is packed or local, nor on the plan's tiles: our own sums run over k in an order
// that the shape alone decides. Results of oneDNN, and of split operands, differ from those in
// rounding.
struct GemmPlan {
  GemmKind kind = GemmKind::onednn;
  // What one task computes of C, at most; oneDNN chooses its own.
  std::int64_t tile_m = 0, tile_n = 0;
  bool operator==(const GemmPlan&) const = default;
};

std::string to_string(const GemmPlan& plan);  // "packed 128x256"

// Increased whenever a plan comes to mean something else: what was measured before is then void.
inline constexpr int gemm_version = 6;

// The plan that a model of costs likes best, among those of our own products. It times nothing.
// Compiled for the baseline of an architecture, our products are slower than oneDNN's always.
GemmPlan default_plan(const GemmShape& shape);

// The few plans worth timing; the default plan is the first.
std::vector<GemmPlan> gemm_plans(const GemmShape& shape);

// A part of C.
struct GemmTile {
  std::int64_t batch, row, rows, column, columns;
};
// Called with each part of C once that is complete, by the thread that computed it and still has it
// in its caches.
using GemmTileDone = std::function<void(const GemmTile&)>;

// A prepared product.
class Gemm {
 public:
  virtual ~Gemm() = default;
  // Bytes that run() wants at `workspace`, aligned to 64.
  virtual std::size_t workspace() const { return 0; }
  virtual void run(ThreadPool& pool, const void* a, const void* b, void* c, void* workspace,
                   const GemmTileDone& done = {}) const = 0;
};

using GemmPtr = std::unique_ptr<Gemm>;

// DeviceError if oneDNN is asked for and has no such product on this CPU.
GemmPtr make_gemm(const GemmShape& shape, const GemmPlan& plan);

// The product by the plan that an operator's `prepare.choice` asks for, or the next best that this
// CPU has; `prepare.workspace` becomes what it wants, or what any that may be chosen wants.
GemmPtr chosen_gemm(const GemmShape& shape, CpuPrepare& prepare);

}  // namespace ridge
