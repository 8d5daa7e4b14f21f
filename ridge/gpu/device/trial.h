#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ridge/base/dtype.h"
#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

class GraphReplay;  // gpu/device/launch_graph.h
class LaunchGraph;

inline std::size_t bytes_of(DType dtype, std::int64_t elements) {
  return static_cast<std::size_t>(elements) * size_of(dtype);
}

// Operands to time kernels with before there is a run. They hold small numbers that are neither
// zero nor denormal in any dtype: the card is faster on zeros. There are several sets of them, more
// than its cache holds: in a run a kernel finds little of its operands there.
class Trial {
 public:
  using Operands = std::vector<void*>;

  // How the repetitions run: one after another, so that the time is that of a kernel by itself; or
  // at once, as many as there are operands for, so that it is the share of the card that a kernel
  // takes from others.
  enum class Runs : std::uint8_t { in_turn, at_once };

  // OutOfMemoryError if they do not fit.
  Trial(const Context& gpu, const std::vector<std::size_t>& operand_bytes,
        Runs runs = Runs::in_turn);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // Does the work of a candidate, by its number, several times, and waits. The first time it is
  // captured, and from then on replayed: small kernels take less time than the host takes to launch
  // them. Tuner::NoSuchCandidate if one launch is more than 128 nodes.
  void run(std::size_t candidate, const std::function<void(const Operands&)>& work);

 private:
  using Work = std::function<void(const Operands&)>;
  // The repetitions, as the launches of a graph that has some of them.
  struct Replay {
    std::unique_ptr<GraphReplay> graph;  // null until it ran once
    std::size_t launches = 0;
  };

  Replay captured(const Work& work) const;
  void append(LaunchGraph& graph, const Work& work, std::size_t repetitions) const;
  void* filled(const std::vector<std::uint16_t>& words, std::size_t bytes) const;

  const Context& gpu_;
  Runs runs_;
  std::vector<Operands> sets_;
  std::size_t repetitions_;
  std::vector<Replay> replays_;
};

}  // namespace ridge::gpu
