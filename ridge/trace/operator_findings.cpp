#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>

#include "ridge/base/units.h"
#include "ridge/trace/findings.h"
#include "ridge/trace/operator_work.h"
#include "ridge/trace/times.h"

namespace ridge::trace {
namespace {

using Findings = std::vector<Finding>;

// Good kernels come to 0.6 to 0.8 of what a data sheet promises. An operator is slow below 0.4, and
// what it could save is counted from 0.65.
constexpr double slow_part = 0.4, usual_part = 0.65;
constexpr double least_call_us = 20;  // below that a call's time is mostly its latency

double part_of_busy(const FoundIn& in, double time_us) {
  return in.use.busy > 0 ? time_us / in.use.busy : 0;
}

// "aten::mm of [[512,64],[64,256]]", short enough for a sentence.
std::string words_of(const OperatorSum& sum) {
  constexpr std::size_t longest = 90;
  std::string shape = sum.shape;
  if (shape.size() > longest) shape = shape.substr(0, longest) + "...";
  return shape.empty() ? sum.name : fmt::format("{} of {}", sum.name, shape);
}

}  // namespace

void find_float32_products(const FoundIn& in, Findings& found) {
  if (!in.card || in.card->tf32 < 2 * in.card->f32) return;
  double gain = 0, all = 0;
  const OperatorSum* longest = nullptr;
  for (const OperatorSum& sum : in.operators) {
    if (sum.products != ProductKind::f32 || sum.flops == 0 || sum.device_us == 0) continue;
    const double least = std::max(sum.flops / in.card->flops(ProductKind::tf32, 1),
                                  sum.bytes / in.card->bytes_per_second);
    gain += std::max(0.0, sum.device_us - 1e6 * least / usual_part);
    all += sum.device_us;
    if (!longest || sum.device_us > longest->device_us) longest = &sum;
  }
  if (gain == 0) return;
  found.push_back(
      {"float32-products",
       fmt::format("Products of float32 run in full float32 for {}, {} of the card's busy time.",
                   time(all), format_percent(part_of_busy(in, all))),
       "Call torch.set_float32_matmul_precision(\"high\"), which rounds operands to TF32, or train "
       "under torch.autocast in bfloat16.",
       fmt::format("Look for {} and its kernel, whose name has sgemm or f32f32.",
                   words_of(*longest)),
       gain});
}

// What PyTorch has no fast kernel for, whatever a user does: its batch norms read their input more
// than once, and a convolution of an image's three channels leaves matrix units idle.
bool is_known_to_be_slow(const OperatorSum& sum) {
  if (sum.name.find("batch_norm") != std::string::npos) return true;
  if (sum.name.find("convolution") == std::string::npos) return false;
  constexpr double few = 8;  // channels
  return std::ranges::any_of(input_dims(sum.shape),
                             [](const Dims& dims) { return dims.size() == 4 && dims[1] < few; });
}

void find_slow_operators(const FoundIn& in, Findings& found) {
  constexpr double worth_naming = 0.04;  // of the span, each: many are a little slow
  double gain = 0;
  std::int64_t count = 0;
  const OperatorSum* worst = nullptr;
  double worst_excess = 0;
  for (const OperatorSum& sum : in.operators) {
    if (sum.floor_us == 0 || sum.floor_us >= slow_part * sum.device_us ||
        sum.device_us < least_call_us * static_cast<double>(sum.count) || is_known_to_be_slow(sum))
      continue;
    const double excess = sum.device_us - sum.floor_us / usual_part;
    if (excess < worth_naming * in.use.span) continue;
    gain += excess;
    ++count;
    if (excess > worst_excess) worst_excess = excess, worst = &sum;
  }
  if (!worst) return;
  found.push_back(
      {"slow-operators",
       fmt::format("{} below {} of what the card promises, most of all {}: {} in {}, where {} "
                   "would do.",
                   count == 1 ? "One operator runs" : fmt::format("{} operators run", count),
                   format_percent(slow_part), words_of(*worst),
                   counted(static_cast<std::int64_t>(worst->count), "call"), time(worst->device_us),
                   time(worst->floor_us)),
       "Give products sizes that are multiples of 8 (a vocabulary padded to 64), keep tensors "
       "contiguous in the order in which they are read, and let "
       "torch.compile(mode=\"max-autotune\")"
       " choose kernels.",
       "Look at the operator's column \"Floor\", and at its kernel.", gain});
}

void find_uneven_kernels(const FoundIn& in, Findings& found) {
  constexpr double slower = 1.6;  // than the median of the same work: beyond what caches explain
  constexpr std::size_t fewest = 4;
  const EventColumns& events = in.trace.events;
  const std::vector<Row>& operators = in.operators_of_work;
  using Key = std::array<TextPool::Id, 6>;
  std::map<Key, std::vector<Row>> same_work;
  std::vector<Interval> others;  // what slows down beside communication is no fault of its own
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const DeviceWork& one = in.work.device[i];
    if (one.work == WorkClass::communication)
      others.push_back({events.begin_ns[one.row], events.end_ns(one.row)});
    if (one.work != WorkClass::compute || operators[i] == no_row) continue;
    const Row op = operators[i];
    same_work[{events.name[op], events.shape[op], events.types[op], events.values[op],
               events.name[one.row], events.shape[one.row]}]
        .push_back(one.row);
  }
  others = merged(std::move(others));
  double gain = 0, worst_excess = 0;
  std::int64_t calls = 0;
  std::string worst;
  for (const auto& [key, rows] : same_work) {
    if (rows.size() < fewest) continue;
    // The time of other operators may depend on what the tensors hold.
    const OperatorWork known = operator_work({in.trace.texts[key[0]], in.trace.texts[key[1]],
                                              in.trace.texts[key[2]], in.trace.texts[key[3]]});
    if (known.bytes == 0 && known.flops == 0) continue;
    std::vector<double> times;
    for (const Row row : rows) times.push_back(us(events.duration_ns[row]));
    std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
    const double median = times[times.size() / 2];
    if (median < least_call_us) continue;
    double excess = 0;
    for (const Row row : rows) {
      if (us(events.duration_ns[row]) < slower * median ||
          overlap(others, {events.begin_ns[row], events.end_ns(row)}))
        continue;
      excess += us(events.duration_ns[row]) - median;
      ++calls;
    }
    gain += excess;
    if (excess > worst_excess) {
      worst_excess = excess;
      worst = fmt::format("{} of {}, {} in the median", short_kernel_name(in.trace.texts[key[4]]),
                          in.trace.texts[key[0]], time(median));
    }
  }
  if (calls == 0) return;
  found.push_back(
      {"uneven-kernels",
       fmt::format(
           "{} of kernels take more than {:g} times as long as others of the same operator, "
           "shapes and grid, most of all {}.",
           counted(calls, "call"), slower, worst),
       "Compare the slow calls with the others: the strides and alignment of their tensors, other "
       "work of the card at that time, and the card's clocks (nvidia-smi -q -d PERFORMANCE).",
       "Sort the calls of this kernel by their time.", gain});
}

// Attention that writes its scores: whatever works on tensors as large as a softmax's.
void find_unfused_attention(const FoundIn& in, Findings& found) {
  std::vector<Dims> scores;
  for (const OperatorSum& sum : in.operators) {
    if (sum.name != "aten::_softmax" || sum.device_us == 0) continue;
    const std::vector<Dims> shapes = input_dims(sum.shape);
    constexpr double shortest = 32;  // keys
    if (shapes.empty() || shapes[0].size() != 4 || shapes[0][3] < shortest) continue;
    const Dims& dims = shapes[0];
    scores.push_back(dims);
    scores.push_back({dims[0] * dims[1], dims[2], dims[3]});
  }
  if (scores.empty()) return;
  double all = 0;
  for (const OperatorSum& sum : in.operators) {
    if (sum.device_us == 0) continue;
    const bool on_scores = std::ranges::any_of(input_dims(sum.shape), [&](const Dims& dims) {
      return std::ranges::find(scores, dims) != scores.end();
    });
    if (on_scores) all += sum.device_us;
  }
  constexpr double saved = 0.7;  // of that, by kernels that never write the scores
  found.push_back(
      {"unfused-attention",
       fmt::format("Attention writes its scores to memory: softmax, masks and products on them run "
                   "for {}, {} of the card's busy time.",
                   time(all), format_percent(part_of_busy(in, all))),
       "Call torch.nn.functional.scaled_dot_product_attention(is_causal=True) in place of softmax "
       "and two products, or attn_implementation=\"sdpa\" in transformers.",
       "Look for aten::_softmax between two aten::bmm.", saved * all});
}

void find_short_kernels(const FoundIn& in, Findings& found) {
  const IdleTime::OfCause& between =
      in.idle.by_cause[static_cast<std::size_t>(IdleCause::kernel_boundary)];
  if (in.use.kernels == 0 || between.stretches == 0) return;
  const double mean = in.use.busy / static_cast<double>(in.use.kernels);
  constexpr double short_us = 10;
  if (mean >= short_us) return;
  found.push_back(
      {"short-kernels",
       fmt::format("Kernels take {} on average, and the card is idle for {} between kernels that "
                   "were launched in time, {} in each of {} places.",
                   time(mean), time(between.us),
                   time(between.us / static_cast<double>(between.stretches)),
                   format_count(static_cast<std::int64_t>(between.stretches))),
       "Do more in a kernel: torch.compile fuses them; a larger batch makes them longer.",
       "Look for kernels a microsecond apart.", between.us});
}

void find_small_batch(const FoundIn& in, Findings& found) {
  constexpr double least_part = 0.3;  // of the time
  if (in.multiprocessors == 0) return;
  std::map<TextPool::Id, double> blocks_of;  // by grid
  double gain = 0, all = 0;
  for (const DeviceWork& one : in.work.device) {
    if (one.work != WorkClass::compute) continue;
    const TextPool::Id grid = in.trace.events.shape[one.row];
    const auto [at, added] = blocks_of.try_emplace(grid, 0);
    if (added)
      for (const Dims& dims : input_dims("[" + in.trace.texts[grid] + "]"))
        if (!dims.empty())
          at->second = std::accumulate(dims.begin(), dims.end(), 1.0, std::multiplies());
    const double part = at->second / static_cast<double>(in.multiprocessors);
    if (part == 0 || part >= 0.5) continue;
    const double time_us = us(in.trace.events.duration_ns[one.row]);
    all += time_us;
    gain += time_us * (1 - part);
  }
  if (part_of_busy(in, all) < least_part) return;
  found.push_back(
      {"small-batch",
       fmt::format("Kernels that have blocks for less than half of the {} multiprocessors run for "
                   "{}, {} of the busy time.",
                   in.multiprocessors, time(all), format_percent(part_of_busy(in, all))),
       "Take a larger batch: such kernels take hardly longer for more.",
       "Look at the grids of the longest kernels.", gain});
}

}  // namespace ridge::trace
