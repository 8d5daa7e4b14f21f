#include "ridge/gpu/device/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ridge/device/tuner.h"
#include "ridge/gpu/device/api.h"
#include "ridge/gpu/device/launch_graph.h"

namespace ridge::gpu {
namespace {

constexpr std::size_t most_sets = 8, most_repetitions = 32;
// A library may convolve each group of channels by a kernel of its own, beside the others. A graph
// of some thousand such nodes takes seconds to prepare, whether to time it or in a step that is
// captured.
constexpr std::size_t most_nodes_of_launch = 128, most_nodes_of_graph = 256;
// Pairs of bytes make bf16 from -4 to 4 and, in fours, f32 of the same size; as f16, about 2 of
// either sign.
constexpr std::size_t pattern_bytes = std::size_t{1} << 20;

std::vector<std::uint16_t> pattern() {
  std::vector<std::uint16_t> words(pattern_bytes / 2);
  std::uint32_t state = 1;
  for (std::uint16_t& word : words) {
    state = state * 1664525u + 1013904223u;
    const std::uint32_t sign = state >> 31, mantissa = state >> 8 & 0x7F,
                        exponent = state >> 20 & 3;
    word = static_cast<std::uint16_t>(sign << 15 | (125 + exponent) << 7 | mantissa);
  }
  return words;
}

}  // namespace

Trial::Trial(const Context& gpu, const std::vector<std::size_t>& operand_bytes, Runs runs)
    : gpu_(gpu), runs_(runs) {
  const std::size_t all =
      std::accumulate(operand_bytes.begin(), operand_bytes.end(), std::size_t{1});
  const std::size_t sets = std::clamp<std::size_t>(2 * gpu.card.l2_bytes / all, 1, most_sets);
  repetitions_ = std::clamp<std::size_t>(2 * gpu.card.l2_bytes / all, most_sets, most_repetitions);
  const std::vector<std::uint16_t> words = pattern();
  for (std::size_t set = 0; set < sets; ++set) {
    sets_.emplace_back();
    for (const std::size_t bytes : operand_bytes) sets_.back().push_back(filled(words, bytes));
  }
  check(api::stream_synchronize(gpu.stream), "an upload");
}

void* Trial::filled(const std::vector<std::uint16_t>& words, std::size_t bytes) const {
  bytes = std::max<std::size_t>(bytes, 64);
  void* memory = nullptr;
  check(api::malloc(&memory, bytes), "operands to time kernels with");
  auto* to = static_cast<std::byte*>(memory);
  const std::size_t first = std::min(bytes, pattern_bytes);
  check(api::memcpy_async(to, words.data(), first, api::host_to_device, gpu_.stream), "an upload");
  for (std::size_t at = first; at < bytes; at *= 2)
    check(api::memcpy_async(to + at, to, std::min(at, bytes - at), api::device_to_device,
                            gpu_.stream),
          "a copy");
  return memory;
}

Trial::~Trial() {
  api::ignore(api::stream_synchronize(gpu_.stream));
  replays_.clear();
  for (const Operands& set : sets_)
    for (void* operand : set) api::ignore(api::free(operand));
}

void Trial::append(LaunchGraph& graph, const Work& work, std::size_t repetitions) const {
  // What is appended by itself follows nothing else in the graph.
  const auto append_each = [&](std::size_t first, std::size_t step) {
    std::vector<DeviceWork> works;
    for (std::size_t i = first; i < repetitions; i += step)
      works.push_back(
          {.enqueue = [&work, &operands = sets_[i % sets_.size()]] { work(operands); }});
    graph.append(gpu_.stream, {}, works);
  };
  if (runs_ == Runs::in_turn)
    append_each(0, 1);
  else
    for (std::size_t set = 0; set < std::min(sets_.size(), repetitions); ++set)
      append_each(set, sets_.size());
}

Trial::Replay Trial::captured(const Work& work) const {
  LaunchGraph one;
  append(one, work, 1);
  const std::size_t nodes = std::max<std::size_t>(one.nodes(), 1);
  if (nodes > most_nodes_of_launch)
    throw Tuner::NoSuchCandidate(fmt::format("each launch of it is {} kernels", nodes));
  const std::size_t in_graph =
      std::clamp<std::size_t>(most_nodes_of_graph / nodes, 1, repetitions_);
  LaunchGraph graph;
  append(graph, work, in_graph);
  return {.graph = std::make_unique<GraphReplay>(graph, gpu_.stream),
          .launches = (repetitions_ + in_graph - 1) / in_graph};
}

void Trial::run(std::size_t candidate, const Work& work) {
  if (candidate >= replays_.size()) replays_.resize(candidate + 1);
  Replay& replay = replays_[candidate];
  if (!replay.graph) {
    work(sets_.front());  // loads its code, which cannot be captured
    replay = captured(work);
  } else {
    for (std::size_t i = 0; i < replay.launches; ++i) replay.graph->launch();
  }
  check(api::stream_synchronize(gpu_.stream), "timing a kernel");
}

}  // namespace ridge::gpu
