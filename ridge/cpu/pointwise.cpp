#include <algorithm>
#include <memory>
#include <optional>

#include "ridge/cpu/elementwise.h"
#include "ridge/ops/pointwise.h"

namespace ridge {
namespace {

using Code = Pointwise::Code;
constexpr std::int64_t tile = 1024;  // elements: 4 KiB, so that several fit the first-level cache

// Where the values of a register are while a tile is worked on: in an operand or a result, if that
// is f32, or in a slot of the task's scratch memory.
struct Place {
  enum class Kind : std::uint8_t { none, operand, result, slot } kind = Kind::none;
  std::size_t index = 0;
};

// A step over a whole tile, or a conversion: `load` of bf16 operand `index` into a slot, `store`
// into result `index`, which may have either dtype.
struct Instruction {
  enum class Kind : std::uint8_t { step, load, store } kind = Kind::step;
  Code code = Code::add;
  float factor = 1.0f;
  Place to, a, b;
  std::size_t index = 0;
};

struct Program {
  std::vector<Instruction> instructions;
  std::size_t slots = 0;
};

// Translates a program into tile instructions and shares slots between values that are never alive
// at once.
class Compiler {
 public:
  Compiler(const Pointwise& op, Types in) : op_(op), in_(in), places_(in.size() + op.steps.size()) {
    last_use_.resize(places_.size(), 0);
    for (std::size_t s = 0; s < op.steps.size(); ++s) {
      last_use_[op.steps[s].a] = s;
      if (operand_count(op.steps[s].code) == 2) last_use_[op.steps[s].b] = s;
    }
  }

  Program compile() {
    for (std::size_t i = 0; i < in_.size(); ++i)
      if (in_[i].dtype == DType::f32) places_[i] = {Place::Kind::operand, i};
    for (std::size_t i = 0; i < in_.size(); ++i)
      if (is_result(i)) {
        load(i);
        store_results(i);
      }
    for (std::size_t s = 0; s < op_.steps.size(); ++s) compile_step(s);
    return std::move(program_);
  }

 private:
  bool is_result(std::size_t value) const {
    return std::ranges::any_of(op_.results, [&](const auto& r) { return r.value == value; });
  }

  Place take_slot() {
    if (free_.empty()) return {Place::Kind::slot, program_.slots++};
    const std::size_t slot = free_.back();
    free_.pop_back();
    return {Place::Kind::slot, slot};
  }

  // Frees the slot of a value that step `s` is the last to use, unless that is done already.
  void release(std::size_t value, std::size_t s) {
    if (places_[value].kind != Place::Kind::slot || last_use_[value] > s) return;
    free_.push_back(places_[value].index);
    places_[value].kind = Place::Kind::none;
  }

  // A bf16 operand is converted before its first use.
  Place load(std::size_t value) {
    if (places_[value].kind == Place::Kind::none) {
      places_[value] = take_slot();
      program_.instructions.push_back(
          {.kind = Instruction::Kind::load, .to = places_[value], .index = value});
    }
    return places_[value];
  }

  // Writes a value to each result that it is, but for the one it was computed in.
  void store_results(std::size_t value) {
    for (std::size_t r = 0; r < op_.results.size(); ++r) {
      const Place& place = places_[value];
      const bool there = place.kind == Place::Kind::result && place.index == r;
      if (op_.results[r].value == value && !there)
        program_.instructions.push_back({.kind = Instruction::Kind::store, .a = place, .index = r});
    }
  }

  Place place_of_step(std::size_t value) {
    for (std::size_t r = 0; r < op_.results.size(); ++r)
      if (op_.results[r].value == value && op_.results[r].dtype == DType::f32)
        return {Place::Kind::result, r};
    return take_slot();
  }

  void compile_step(std::size_t s) {
    const Pointwise::Step& step = op_.steps[s];
    const bool two = operand_count(step.code) == 2;
    Instruction instruction{.code = step.code, .factor = step.factor};
    instruction.a = load(step.a);
    instruction.b = two ? load(step.b) : instruction.a;
    // Only now, and before the result's place is chosen: that may be an operand's slot.
    release(step.a, s);
    if (two) release(step.b, s);
    const std::size_t value = in_.size() + s;
    instruction.to = places_[value] = place_of_step(value);
    program_.instructions.push_back(instruction);
    store_results(value);
    release(value, s);  // of a value that no step uses
  }

  const Pointwise& op_;
  Types in_;
  std::vector<Place> places_;          // by register
  std::vector<std::size_t> last_use_;  // by register: the last step that uses it
  std::vector<std::size_t> free_;      // slots
  Program program_;
};

template <class F>
void map(const float* a, float* y, std::int64_t n, F function) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = function(a[i]);
}

template <class F>
void map(const float* a, const float* b, float* y, std::int64_t n, F function) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = function(a[i], b[i]);
}

template <class From, class To>
void convert(const From* x, To* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) store(&y[i], load(&x[i]));
}

// y may be a or b. The functions are those of the operators' own kernels.
void run_step(const Instruction& step, const float* a, const float* b, float* y, std::int64_t n) {
  switch (step.code) {
    case Code::add:
      return map(a, b, y, n, [](float p, float q) { return p + q; });
    case Code::mul:
      return map(a, b, y, n, [](float p, float q) { return p * q; });
    case Code::scale:
      return map(a, y, n, [f = step.factor](float p) { return f * p; });
    case Code::silu:
      return map(a, y, n, [](float p) { return p * sigmoid(p); });
    case Code::silu_grad:
      return map(a, b, y, n, [](float dy, float x) {
        const float s = sigmoid(x);
        return dy * s * (1.0f + x * (1.0f - s));
      });
    case Code::relu:
      return map(a, y, n, [](float p) { return p < 0.0f ? 0.0f : p; });
    case Code::relu_grad:
      return map(a, b, y, n, [](float dy, float x) { return x > 0.0f ? dy : 0.0f; });
  }
}

// All instructions over one tile, which begins at element `at`.
void run_tile(const Program& program, const Pointwise& op, const Launch& call, float* scratch,
              std::int64_t at, std::int64_t n) {
  auto pointer = [&](const Place& place) -> float* {
    switch (place.kind) {
      case Place::Kind::operand:
        return const_cast<float*>(call.in<float>(place.index)) + at;
      case Place::Kind::result:
        return call.out<float>(place.index) + at;
      default:
        return scratch + static_cast<std::int64_t>(place.index) * tile;
    }
  };
  for (const Instruction& i : program.instructions) {
    if (i.kind == Instruction::Kind::step)
      run_step(i, pointer(i.a), pointer(i.b), pointer(i.to), n);
    else if (i.kind == Instruction::Kind::load)
      convert(call.in<BFloat16>(i.index) + at, pointer(i.to), n);
    else if (op.results[i.index].dtype == DType::bf16)
      convert(pointer(i.a), call.out<BFloat16>(i.index) + at, n);
    else
      std::copy_n(pointer(i.a), n, call.out<float>(i.index) + at);
  }
}

}  // namespace

KernelPtr Pointwise::cpu(CpuPrepare& prepare) const {
  Program program = Compiler(*this, prepare.in).compile();
  const std::int64_t n = prepare.out[0].numel();
  return make_kernel(
      [&pool = prepare.pool, n, op = *this, program = std::move(program)](const Launch& call) {
        parallel_for(pool, n, elements_per_task, [&](std::int64_t begin, std::int64_t end) {
          const auto scratch = std::make_unique_for_overwrite<float[]>(program.slots * tile);
          for (std::int64_t i = begin; i < end; i += tile)
            run_tile(program, op, call, scratch.get(), i, std::min(tile, end - i));
        });
      });
}

}  // namespace ridge
