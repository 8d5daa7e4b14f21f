#include <algorithm>
#include <memory>
#include <optional>

#include "ridge/base/loop_nest.h"
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

// A step over a whole tile, or without one a copy of `a` to `to`, of an operand that broadcasts
// with each element as often as it is used.
struct Instruction {
  std::optional<Pointwise::Step> step;
  Place to, a, b;
};

struct Program {
  std::vector<Instruction> instructions;
  std::size_t slots = 0;
  std::vector<LoopNest> nests;  // by operand: over the results and it; empty if it is whole
};

// These take and give f32 alone: among all dtypes that there are between them and memory, that many
// loops of theirs would make a large program.
bool is_activation(Code code) { return code == Code::activation || code == Code::activation_grad; }

// Translates a program into tile instructions and shares slots between values that are never alive
// at once.
class Compiler {
 public:
  Compiler(const Pointwise& op, Types in, const Shape& shape) : op_(op), operands_(in.size()) {
    for (std::size_t i = 0; i < in.size(); ++i)
      places_.push_back({Place::Kind::operand, i, in[i].dtype});
    last_use_.resize(in.size() + op.steps.size(), unused);
    program_.nests.resize(in.size());
    for (std::size_t s = 0; s < op.steps.size(); ++s) {
      last_use_[op.steps[s].a] = s;
      if (operand_count(op.steps[s].code) == 2) last_use_[op.steps[s].b] = s;
    }
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (in[i].shape.numel() == shape.numel()) continue;
      program_.nests[i] = broadcast_nest(shape, shape, in[i].shape);
      put_into_slot(i);
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

  // From where steps take it as f32, and, if it broadcasts, like any other.
  void put_into_slot(std::size_t operand) {
    const Place from = places_[operand];
    places_[operand] = take_slot();
    program_.instructions.push_back({.to = places_[operand], .a = from});
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
    const bool wide = is_activation(step.code);
    if (wide)
      for (const std::size_t x : {a, b})
        if (places_[x].dtype != DType::f32) put_into_slot(x);
    // Before the place of the result is chosen, which may be an operand's slot.
    if (last_use_[a] == s) release(a);
    if (last_use_[b] == s && b != a) release(b);
    auto home = home_of(value);
    if (wide && home && op_.results[*home].dtype != DType::f32) home.reset();
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

// y[i] = function(a[i], b[i]); y may be a or b. Of so many loops in one file the compiler would
// leave some with calls, and so without vectors, if it were not told: each is a function, with all
// it calls inside.
template <class A, class B, class Y, class F>
[[gnu::noinline, gnu::flatten]] void map(const A* a, const B* b, Y* y, std::int64_t n, F function) {
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
    case Code::activation:
    case Code::activation_grad:
      break;
  }
}

void run_activation(const Pointwise::Step& step, const float* a, const float* b, float* y,
                    std::int64_t n) {
  if (step.code == Code::activation)
    with_activation(step.kind,
                    [&](auto f) { map(a, a, y, n, [f](float x, float) { return f(x); }); });
  else
    with_activation_derivative(
        step.kind, [&](auto f) { map(a, b, y, n, [f](float dy, float x) { return dy * f(x); }); });
}

// The elements of an operand under [begin, end) of the results.
template <class T>
void spread(const LoopNest& nest, const T* operand, float* y, std::int64_t begin,
            std::int64_t end) {
  for_each_run(nest, begin, end, [&](std::int64_t i, Offsets at, std::int64_t length) {
    const T* from = operand + at[1];
    float* to = y + (i - begin);
    if (nest.back().strides[1] == 0)
      std::fill_n(to, length, load(from));
    else
      map(from, from, to, length, [](float p, float) { return p; });
  });
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
void run(const Program& program, const Instruction& instruction, const Launch& call, float* scratch,
         std::int64_t at, std::int64_t n) {
  const auto& [step, to, a, b] = instruction;
  if (a.kind == Place::Kind::operand && !program.nests[a.index].empty())
    return dispatch_floating(a.dtype, [&]<class A>() {
      spread(program.nests[a.index], call.in<A>(a.index), address<float>(to, call, scratch, at), at,
             at + n);
    });
  if (step && is_activation(step->code))
    return run_activation(*step, address<float>(a, call, scratch, at),
                          address<float>(b, call, scratch, at),
                          address<float>(to, call, scratch, at), n);
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
  Program program = Compiler(*this, prepare.in, prepare.out[0].shape).compile();
  const std::int64_t n = prepare.out[0].numel();
  return make_kernel([&pool = prepare.pool, n, program = std::move(program)](const Launch& call) {
    parallel_for(pool, n, elements_per_task, [&](std::int64_t begin, std::int64_t end) {
      const auto scratch = std::make_unique_for_overwrite<float[]>(program.slots * tile);
      for (std::int64_t i = begin; i < end; i += tile)
        for (const Instruction& instruction : program.instructions)
          run(program, instruction, call, scratch.get(), i, std::min(tile, end - i));
    });
  });
}

}  // namespace ridge
