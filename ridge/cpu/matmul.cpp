#include "ridge/ops/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/cpu/gemm.h"
#include "ridge/cpu/instructions.h"
#include "ridge/cpu/onednn.h"
#include "ridge/cpu/prepare.h"
#include "ridge/cpu/simd.h"
#include "ridge/cpu/split_gemm.h"
#include "ridge/cpu/trial_memory.h"
#include "ridge/device/tuner.h"
#include "ridge/ops/quantize.h"
#include "ridge/ops/scaled_matmul.h"

namespace ridge {
namespace {

template <class From, class To>
void convert(ThreadPool& pool, const From* from, To* to, std::int64_t n) {
  parallel_for(pool, n, 16384, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) store(&to[i], load(&from[i]));
  });
}

template <class Q>
void widen(ThreadPool& pool, const Q* from, float* to, std::int64_t n, float scale) {
  parallel_for(pool, n, 16384, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = static_cast<float>(from[i]) * scale;
  });
}

std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
std::size_t padded_floats(std::int64_t n) {
  return padded(static_cast<std::size_t>(n) * sizeof(float));
}

// Operands of T, 16 bits that the library does not multiply on this CPU: widened to f32 first, the
// result rounded after if it is to be.
template <class T>
KernelPtr widened_product(CpuPrepare& prepare, GemmShape shape) {
  const bool rounds = shape.out != DType::f32, adds = rounds && shape.accumulate;
  shape.in = shape.out = DType::f32;
  const std::int64_t na = prepare.in[0].numel(), nb = prepare.in[1].numel();
  const std::int64_t nc = rounds ? prepare.out[0].numel() : 0;
  const bool vendors = prepare.choice.products == Products::vendor;
  GemmPtr gemm = make_gemm(shape, vendors ? GemmPlan{} : default_plan(shape));
  const std::size_t own = padded(gemm->workspace());
  prepare.workspace = own + padded_floats(na) + padded_floats(nb) + padded_floats(nc);
  return make_kernel([&pool = prepare.pool, gemm = std::move(gemm), own, na, nb, nc, rounds,
                      adds](const Launch& call) {
    auto* a = reinterpret_cast<float*>(static_cast<char*>(call.workspace) + own);
    auto* b = a + padded_floats(na) / sizeof(float);
    auto* c = rounds ? b + padded_floats(nb) / sizeof(float) : call.out<float>();
    convert(pool, call.in<T>(0), a, na);
    convert(pool, call.in<T>(1), b, nb);
    if (adds) convert(pool, call.out<T>(), c, nc);
    gemm->run(pool, a, b, c, call.workspace);
    if (rounds) convert(pool, c, call.out<T>(), nc);
  });
}

// Operands of the true extents, to time plans with.
class TrialOperands {
 public:
  TrialOperands(const GemmShape& s, std::size_t workspace)
      : a_(trial_tensor(s.batch * s.m * s.k, s.in)),
        b_(trial_tensor(s.batch * s.k * s.n, s.in)),
        c_(trial_tensor(s.batch * s.m * s.n, s.out)),
        workspace_(trial_memory(workspace)) {}

  void run(ThreadPool& pool, const Gemm& gemm) const {
    gemm.run(pool, a_.get(), b_.get(), c_.get(), workspace_.get());
  }

 private:
  TrialMemory a_, b_, c_, workspace_;
};

// The plan that the tuner chooses for `key`.
GemmPlan fastest(const std::vector<GemmPlan>& plans, std::string_view key, const GemmShape& shape,
                 ThreadPool& pool, Tuner& tuner) {
  std::vector<GemmPtr> gemms;
  std::optional<TrialOperands> operands;  // made if there is anything to time
  return plans[tuner.choose(key, plans.size(), [&](std::size_t i) {
    if (!operands) {
      std::size_t workspace = 0;
      for (const GemmPlan& plan : plans) {
        gemms.push_back(make_gemm(shape, plan));
        workspace = std::max(workspace, gemms.back()->workspace());
      }
      operands.emplace(shape, workspace);
    }
    operands->run(pool, *gemms[i]);
  })];
}

// Several questions, because oneDNN and products of split operands round otherwise than our other
// plans. Which of our plans of a kind is the fastest depends on the number of threads; which kind
// is asked once for all numbers of threads, by whichever comes first, so that results are the same
// bits on any of them.
GemmPlan tuned_plan(const GemmShape& shape, ThreadPool& pool, Tuner& tuner, bool may_split) {
  std::vector<GemmPlan> own = gemm_plans(shape), split;
  if (may_split) split = split_gemm_plans(shape);
  const std::string product =
      fmt::format("{} {} {}", gemm_version, name_of(compiled_instructions), to_string(shape));
  const auto best_of = [&](const std::vector<GemmPlan>& plans, std::string_view what) {
    return fastest(plans, fmt::format("tiles of {} {} on {} threads", what, product, pool.size()),
                   shape, pool, tuner);
  };
  // oneDNN's first: where times hardly differ it stays, as in the versions that do not tune.
  std::vector<GemmPlan> kinds;
  const GemmPlan vendors{.kind = GemmKind::onednn};
  if (std::erase(own, vendors) > 0) kinds.push_back(vendors);
  kinds.push_back(best_of(own, "product"));
  if (!split.empty()) kinds.push_back(best_of(split, "split product"));
  if (kinds.size() == 1) return kinds[0];
  return fastest(kinds,
                 fmt::format("oneDNN {} or {}product {}", onednn_version(),
                             split.empty() ? "" : "split or ", product),
                 shape, pool, tuner);
}

GemmPlan plan_of(const GemmShape& shape, const CpuPrepare& prepare) {
  const KernelChoice& choice = prepare.choice;
  if (choice.products == Products::vendor) return {};
  if (choice.products == Products::packed || !choice.tuner) return default_plan(shape);
  return tuned_plan(shape, prepare.pool, *choice.tuner, choice.split_bf16);
}

// Whether the plan is oneDNN's and its operands are such as it cannot multiply on this CPU.
bool lacks(const GemmPlan& plan, const GemmShape& shape) {
  return plan.kind == GemmKind::onednn && shape.in == DType::bf16 && !onednn_supports_bf16();
}

GemmPtr gemm_of(const GemmShape& shape, const GemmPlan& plan, CpuPrepare& prepare) {
  GemmPtr gemm = make_gemm(shape, plan);
  prepare.workspace = gemm->workspace();
  // The most workspace of any plan that may be chosen: memory is planned before timing.
  if (prepare.choice.products == Products::tuned) {
    std::vector<GemmPlan> plans = gemm_plans(shape);
    if (prepare.choice.split_bf16)
      std::ranges::copy(split_gemm_plans(shape), std::back_inserter(plans));
    for (const GemmPlan& other : plans)
      if (other.kind != GemmKind::onednn)  // which wants none, and takes long to prepare
        prepare.workspace = std::max(prepare.workspace, make_gemm(shape, other)->workspace());
  }
  return gemm;
}

// The shape of a product with f32 operands and result.
template <class Product>
GemmShape shape_of(const Product& op, const CpuPrepare& prepare) {
  const Shape &a = prepare.in[0].shape, &c = prepare.out[0].shape;
  return {.batch = c.rows(2),
          .m = c[-2],
          .n = c[-1],
          .k = op.trans_a ? a[-2] : a[-1],
          .trans_a = op.trans_a,
          .trans_b = op.trans_b};
}

}  // namespace

GemmPtr chosen_gemm(const GemmShape& shape, CpuPrepare& prepare) {
  GemmPlan plan = plan_of(shape, prepare);
  if (lacks(plan, shape))
    for (const GemmPlan& other : gemm_plans(shape))
      if (lacks(plan, shape)) plan = other;
  return gemm_of(shape, plan, prepare);
}

KernelPtr MatMul::cpu(CpuPrepare& prepare) const {
  GemmShape shape = shape_of(*this, prepare);
  shape.in = prepare.in[0].dtype;
  shape.out = prepare.out[0].dtype;
  shape.accumulate = prepare.in.size() == 3;
  if (shape.in == DType::f16) return widened_product<Float16>(prepare, shape);
  const GemmPlan plan = plan_of(shape, prepare);
  if (lacks(plan, shape)) return widened_product<BFloat16>(prepare, shape);
  GemmPtr gemm = gemm_of(shape, plan, prepare);
  return make_kernel([&pool = prepare.pool, gemm = std::move(gemm)](const Launch& call) {
    gemm->run(pool, call.inputs[0], call.inputs[1], call.outputs[0], call.workspace);
  });
}

// The operands are widened to f32, the left one with both scales.
KernelPtr ScaledMatMul::cpu(CpuPrepare& prepare) const {
  const Shape &a = prepare.in[0].shape, &c = prepare.out[0].shape;
  GemmShape shape = shape_of(*this, prepare);
  const Operands operand = operands(prepare.in.size());
  shape.accumulate = operand.sum < operand.count;
  const DType to = prepare.out[0].dtype;
  const bool rounds = to != DType::f32;
  const std::int64_t na = a.numel(), nb = prepare.in[1].numel(), nc = rounds ? c.numel() : 0;
  prepare.workspace = padded_floats(na) + padded_floats(nb) + padded_floats(nc);
  GemmPtr gemm = make_onednn_gemm(shape);
  return dispatch_quantized(prepare.in[0].dtype, [&]<class A>() {
    return dispatch_quantized(prepare.in[1].dtype, [&]<class B>() {
      return make_kernel([&pool = prepare.pool, gemm = std::move(gemm), operand, na, nb, nc, rounds,
                          to](const Launch& call) {
        auto* wide_a = static_cast<float*>(call.workspace);
        auto* wide_b = wide_a + padded_floats(na) / sizeof(float);
        auto* wide_c = rounds ? wide_b + padded_floats(nb) / sizeof(float) : call.out<float>();
        const float scale = *call.in<float>(operand.scale_a) * *call.in<float>(operand.scale_b);
        widen(pool, call.in<A>(operand.a), wide_a, na, scale);
        widen(pool, call.in<B>(operand.b), wide_b, nb, 1.0f);
        gemm->run(pool, wide_a, wide_b, wide_c, nullptr);
        dispatch_floating(to, [&]<class C>() { convert(pool, wide_c, call.out<C>(), nc); });
      });
    });
  });
}

}  // namespace ridge
