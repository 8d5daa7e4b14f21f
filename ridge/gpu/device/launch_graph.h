#pragma once

// Graphs of launches, which are built by capturing what is enqueued to streams and are then
// launched as one.

#include <cstddef>
#include <span>
#include <vector>

#include "ridge/device/device.h"
#include "ridge/gpu/device/api.h"
#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

class LaunchGraph {
 public:
  using Nodes = std::vector<api::GraphNode>;

  LaunchGraph() { check(api::graph_create(&graph_), "making a graph"); }
  ~LaunchGraph();
  LaunchGraph(const LaunchGraph&) = delete;
  LaunchGraph& operator=(const LaunchGraph&) = delete;

  // Appends works that follow each other, the first of them `after` those nodes, and returns for
  // each the nodes that what is to follow it has to follow. They enqueue to `stream`, whose
  // priority their kernels keep; their own field `after` is not looked at.
  std::vector<Nodes> append(Stream stream, const Nodes& after, std::span<const DeviceWork> works);

  // Called by a work that is being appended: the event is recorded at every launch, after what was
  // enqueued so far.
  void record(api::Event event);

  api::Graph handle() const { return graph_; }
  std::size_t nodes() const;  // launches, copies and fills appended so far, and what orders them

 private:
  void begin();
  void end();

  api::Graph graph_ = nullptr;
  // What is being appended: where it is enqueued, and the nodes that its next part follows.
  Stream stream_ = nullptr;
  Nodes at_;
  std::size_t in_parts_ = 0;  // nodes of child graphs, where what is captured becomes such
};

// A graph as it is launched: each launch does all of its work.
class GraphReplay {
 public:
  // To `stream`. The graph may be gone before this.
  GraphReplay(const LaunchGraph& graph, Stream stream);
  ~GraphReplay() { api::ignore(api::graph_exec_destroy(exec_)); }
  GraphReplay(const GraphReplay&) = delete;
  GraphReplay& operator=(const GraphReplay&) = delete;

  void launch() const { check(api::graph_launch(exec_, stream_), "launching a graph"); }

 private:
  api::GraphExec exec_ = nullptr;
  Stream stream_;
};

}  // namespace ridge::gpu
