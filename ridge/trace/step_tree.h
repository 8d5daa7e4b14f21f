#pragma once

// The steps of a trace laid over each other: annotations, the operators within them and the work
// that they put on the card as one tree, and what of each step's time each of its nodes took.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ridge/trace/device_work.h"
#include "ridge/trace/idle_time.h"
#include "ridge/trace/trace.h"

namespace ridge::trace {

using NodeId = std::uint32_t;
inline constexpr NodeId no_node = std::numeric_limits<NodeId>::max();

enum class NodeKind : std::uint8_t { root, annotation, operation, work };

// Two slices are one node if they have the same kind, name and shape, and the same place among such
// below the same node, whatever the step.
struct TreeNode {
  NodeKind kind = NodeKind::root;
  WorkClass work = WorkClass::compute;
  TextPool::Id name = 0;
  TextPool::Id shape = 0;  // "Input Dims" of an operator, as JSON
  NodeId parent = no_node, first_child = no_node, last_child = no_node, next_sibling = no_node;
  NodeId again = no_node;  // the next sibling of the same kind, name and shape
};

struct TreeStep {
  std::int64_t number = -1;  // -1: the whole trace, which has no steps
  Interval time;             // from the begin of its first work to that of the next step's
  bool full = true;  // false for the last of several, whose end the trace does not tell: it ends
                     // with the last work
};

struct StepTree {
  static constexpr NodeId root = 0;

  // A part of a step's time: of work that ran, or idle. The parts of a step add up to its time.
  struct Part {
    NodeId node;
    std::uint32_t step;  // place in `steps`
    std::optional<IdleCause> idle;
    double us;
  };
  // A call of an operator on the host, or one run of work on the card, in the step that launched
  // it.
  struct Run {
    NodeId node;
    std::uint32_t step;
    double us;
  };

  std::string file;
  std::optional<std::int64_t> rank;  // if the trace tells it
  std::string device;                // the card's name; empty if the trace does not tell it
  bool of_host = false;              // nothing ran on a card: the time is of the host's operators
  Damage damage;
  TextPool texts;
  std::vector<TreeNode> nodes;  // parents before children; the first is the root
  std::vector<TreeStep> steps;  // in the order of time; a step without work is none
  std::vector<Part> parts;
  std::vector<Run> runs;
};

// Time in which several pieces of work ran belongs to computing, else to communicating, else to
// copying, and is divided equally among those of that class that ran. Idle time belongs to the
// operator or annotation in which the host was: that of a blocking call, or the one in which it
// spent half of the time before the next launch, or else that which launched the next work.
StepTree step_tree(Trace trace);

}  // namespace ridge::trace
