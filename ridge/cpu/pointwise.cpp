#include <algorithm>
#include <memory>
#include <optional>

#include "ridge/cpu/activation.h"
#include "ridge/cpu/elementwise.h"
#include "ridge/ops/pointwise.h"

namespace ridge {
namespace {

using Code = Pointwise::Code;
constexpr std::int64_t tile = 1024;  // elements: 4 KiB, so that several fit the first-level cache

// Where the values of a register are while a tile is worked on: in an operand, in a result, or in
// a slot of the task's scratch memory, which holds f32.
struct Place {
  enum class Kind : std::uint8_t { operand, result, slot } kind = Kind::slot;
  std::size_t index = 0;
  DType dtype = DType::f32;
};

// A step over a whole tile, or without one a copy of `a` to `to`.
struct Instruction {
  std::optional<Pointwise::Step> step;
  Place to, a, b;
};

struct Program {
  std::vector<Instruction> instructions;
  std::size_t slots = 0;
};

// Translates a program into tile instructions and shares slots between values that are never alive
// at once.
class Compiler {
 public:
  Compiler(const Pointwise& op, Types in) : op_(op), operands_(in.size()) {
    for (std::size_t i = 0; i < in.size(); ++i)
      places_.push_back({Place::Kind::operand, i, in[i].dtype});
    last_use_.resize(in.size() + op.steps.size(), unused);
    for (std::size_t s = 0; s < op.steps.size(); ++s) {
      last_use_[op.steps[s].a] = s;
      if (operand_count(op.steps[s].code) == 2) last_use_[op.steps[s].b] = s;
    }
  }

  Program compile() {
    for (std::size_t i = 0; i < operands_; ++i) store_results(i);
    for (std::size_t s = 0; s < op_.steps.size(); ++s) compile_step(s);
    return std::move(program_);
  }

 private:
  static constexpr std::size_t unused = ~std::size_t{0};

  // The result that a step computes its value in, if there is one: the first in f32, or one in bf16
  // if the value is needed nowhere else, where it would have to be in f32.
  std::optional<std::size_t> home_of(std::size_t value) const {
    std::optional<std::size_t> home;
    std::size_t count = 0;
    for (std::size_t r = op_.results.size(); r-- > 0;) {
      if (op_.results[r].value != value) continue;
      ++count;
      if (!home || op_.results[r].dtype == DType::f32) home = r;
    }
    if (!home || op_.results[*home].dtype == DType::f32) return home;
    return count == 1 && last_use_[value] == unused ? home : std::nullopt;
  }

  Place take_slot() {
    if (free_.empty()) return {Place::Kind::slot, program_.slots++};
    const std::size_t slot = free_.back();
    free_.pop_back();
    return {Place::Kind::slot, slot};
  }

  void release(std::size_t value) {
    if (places_[value].kind == Place::Kind::slot) free_.push_back(places_[value].index);
  }

  // Copies a value to each result that it is, but for the one it was computed in.
  void store_results(std::size_t value) {
    for (std::size_t r = 0; r < op_.results.size(); ++r) {
      const Place to{Place::Kind::result, r, op_.results[r].dtype}, &from = places_[value];
      const bool there = from.kind == to.kind && from.index == r;
      if (op_.results[r].value == value && !there)
        program_.instructions.push_back({.to = to, .a = from});
    }
  }

  void compile_step(std::size_t s) {
    const Pointwise::Step& step = op_.steps[s];
    const std::size_t a = step.a, b = operand_count(step.code) == 2 ? step.b : step.a;
    const std::size_t value = operands_ + s;
    // Before the place of the result is chosen, which may be an operand's slot.
    if (last_use_[a] == s) release(a);
    if (last_use_[b] == s && b != a) release(b);
    const auto home = home_of(value);
    places_.push_back(home ? Place{Place::Kind::result, *home, op_.results[*home].dtype}
                           : take_slot());
    program_.instructions.push_back({step, places_[value], places_[a], places_[b]});
    store_results(value);
    if (last_use_[value] == unused) release(value);
  }

  const Pointwise& op_;
  std::size_t operands_;
  std::vector<Place> places_;          // by register, as far as known
  std::vector<std::size_t> last_use_;  // by register: the last step that uses it
  std::vector<std::size_t> free_;      // slots
  Program program_;
};

// y[i] = function(a[i], b[i]); y may be a or b.
template <class A, class B, class Y, class F>
void map(const A* a, const B* b, Y* y, std::int64_t n, F function) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) store(&y[i], function(load(&a[i]), load(&b[i])));
}

// The functions are those of the operators' own kernels.
template <class A, class B, class Y>
void run_step(const Pointwise::Step& step, const A* a, const B* b, Y* y, std::int64_t n) {
  switch (step.code) {
    case Code::add:
      return map(a, b, y, n, [](float p, float q) { return p + q; });
    case Code::mul:
      return map(a, b, y, n, [](float p, float q) { return p * q; });
    case Code::scale:
      return map(a, a, y, n, [f = step.factor](float p, float) { return f * p; });
    case Code::silu:
      return map(a, a, y, n, [](float p, float) { return p * sigmoid(p); });
    case Code::silu_grad:
      return map(a, b, y, n, [](float dy, float x) { return silu_grad(dy, x); });
    case Code::relu:
      return map(a, a, y, n, [](float p, float) { return p < 0.0f ? 0.0f : p; });
    case Code::relu_grad:
      return map(a, b, y, n, [](float dy, float x) { return x > 0.0f ? dy : 0.0f; });
  }
}

// Where element `at` of a register is in one launch.
template <class T>
T* address(const Place& place, const Launch& call, float* scratch, std::int64_t at) {
  switch (place.kind) {
    case Place::Kind::operand:
      return const_cast<T*>(call.in<T>(place.index)) + at;  // is read only
    case Place::Kind::result:
      return call.out<T>(place.index) + at;
    case Place::Kind::slot:
      break;
  }
  // Slots are of floats, whatever T is asked for where the dtypes are told apart.
  return reinterpret_cast<T*>(scratch + static_cast<std::int64_t>(place.index) * tile);
}

// One instruction over one tile of n elements, which begins at element `at`.
void run(const Instruction& instruction, const Launch& call, float* scratch, std::int64_t at,
         std::int64_t n) {
  const auto& [step, to, a, b] = instruction;
  dispatch_floating(a.dtype, [&]<class A>() {
    const A* pa = address<A>(a, call, scratch, at);
    dispatch_floating(to.dtype, [&]<class Y>() {
      Y* y = address<Y>(to, call, scratch, at);
      if (!step) return map(pa, pa, y, n, [](float p, float) { return p; });
      dispatch_floating(
          b.dtype, [&]<class B>() { run_step(*step, pa, address<B>(b, call, scratch, at), y, n); });
    });
  });
}

}  // namespace

KernelPtr Pointwise::cpu(CpuPrepare& prepare) const {
  Program program = Compiler(*this, prepare.in).compile();
  const std::int64_t n = prepare.out[0].numel();
  return make_kernel([&pool = prepare.pool, n, program = std::move(program)](const Launch& call) {
    parallel_for(pool, n, elements_per_task, [&](std::int64_t begin, std::int64_t end) {
      const auto scratch = std::make_unique_for_overwrite<float[]>(program.slots * tile);
      for (std::int64_t i = begin; i < end; i += tile)
        for (const Instruction& instruction : program.instructions)
          run(instruction, call, scratch.get(), i, std::min(tile, end - i));
    });
  });
}

}  // namespace ridge
