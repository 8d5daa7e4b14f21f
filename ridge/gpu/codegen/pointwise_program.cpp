#include "ridge/gpu/codegen/pointwise_program.h"

#include <algorithm>

#include "ridge/base/error.h"

namespace ridge::gpu {
namespace {

constexpr std::size_t unused = 0;  // no step uses a register after itself by then

// The number of the last step that uses each register, counted from 1.
std::vector<std::size_t> last_uses(const Pointwise& op, std::size_t operands) {
  std::vector<std::size_t> last(operands + op.steps.size(), unused);
  for (std::size_t s = 0; s < op.steps.size(); ++s) {
    last[op.steps[s].a] = s + 1;
    if (operand_count(op.steps[s].code) == 2) last[op.steps[s].b] = s + 1;
  }
  return last;
}

}  // namespace

PointwiseProgram::PointwiseProgram(const Pointwise& op, Types in, const Shape& shape) {
  if (in.size() > most_operands || op.steps.size() > most_steps || op.results.size() > most_results)
    throw Error(
        "pointwise: the GPU takes up to {} operands, {} steps and {} results, not {}, {} and {}: "
        "disable the pass pointwise",
        most_operands, most_steps, most_results, in.size(), op.steps.size(), op.results.size());
  operands = static_cast<int>(in.size());
  steps = static_cast<int>(op.steps.size());
  const BroadcastLoops lies(shape, in);
  loops = static_cast<int>(lies.extents.size());
  std::ranges::copy(lies.extents, extent);
  for (std::size_t i = 0; i < in.size(); ++i) {
    for (std::size_t l = 0; l < lies.extents.size(); ++l)
      if (lies.moves[i][l]) moves[i] |= static_cast<std::uint8_t>(1u << l);
    all_whole = all_whole && lies.is_whole(i);
  }
  const std::vector<std::size_t> last = last_uses(op, in.size());
  std::vector<std::uint8_t> slot_of(last.size(), none), free;
  for (std::size_t i = 0; i < in.size(); ++i) {
    operand_dtype[i] = in[i].dtype;
    slot_of[i] = static_cast<std::uint8_t>(slots++);
  }
  const auto add_results = [&](std::size_t value, int after) {
    for (std::size_t r = 0; r < op.results.size(); ++r)
      if (op.results[r].value == value)
        result[results++] = {.slot = after == 0 ? slot_of[value] : previous,
                             .index = static_cast<std::uint8_t>(r),
                             .after = static_cast<std::uint8_t>(after),
                             .dtype = op.results[r].dtype};
  };
  for (std::size_t i = 0; i < in.size(); ++i) add_results(i, 0);
  for (std::size_t s = 0; s < op.steps.size(); ++s) {
    const Pointwise::Step& from = op.steps[s];
    const std::size_t value = in.size() + s, number = s + 1;
    const auto place = [&](std::size_t v) {
      return s > 0 && v == value - 1 ? previous : slot_of[v];
    };
    const bool binary = operand_count(from.code) == 2;
    Step& to = step[s];
    to.code = from.code;
    to.factor = from.factor;
    to.kind = from.kind;
    to.a = place(from.a);
    to.b = binary ? place(from.b) : to.a;
    // Before the value's own place is chosen, which may be an operand's slot.
    for (const std::size_t v : {std::size_t{from.a}, std::size_t{binary ? from.b : from.a}})
      if (last[v] == number && slot_of[v] != none) {
        free.push_back(slot_of[v]);
        slot_of[v] = none;
      }
    if (last[value] > number + 1) {
      if (free.empty()) free.push_back(static_cast<std::uint8_t>(slots++));
      to.to = slot_of[value] = free.back();
      free.pop_back();
    }
    add_results(value, static_cast<int>(number));
  }
}

}  // namespace ridge::gpu
