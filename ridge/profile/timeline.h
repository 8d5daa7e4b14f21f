#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ridge/profile/module_tree.h"
#include "ridge/profile/recording.h"

namespace ridge {

// One thing on the timeline of a recording. All but memory changes are slices of the executor's
// thread, and those nest: a step holds phases, a phase modules, a module what it runs.
struct TimelineItem {
  enum class Kind : std::uint8_t {
    step,      // `index` into Recording::steps
    phase,     // into phases
    module,    // into Timeline::modules().modules: consecutive nodes of it and its submodules
    gradient,  // NodeId of the forward node: consecutive nodes that differentiate it
    node,      // into nodes
    memory     // into memory; a point
  };
  Kind kind;
  std::size_t index;
  std::size_t depth = 0;  // how many slices are open around this one
  std::int64_t begin_ns, end_ns;
  Phase phase = Phase::forward;  // of a module, gradient or node
  // For a gradient and a node that autodiff went through: the index into Recording::nodes of the
  // forward run, which ties the two together. Else no_run.
  std::size_t forward_run = no_run;

  static constexpr std::size_t no_run = ~std::size_t{0};
};

// Puts a recording in the order of time, outer slices before inner ones. It keeps no events, only
// what the graph's size bounds, so a recording of any length can be streamed into a file.
class Timeline {
 public:
  explicit Timeline(const Recording& recording);

  void walk(const std::function<void(const TimelineItem&)>& visit) const;

  const ModuleTree& modules() const { return tree_; }
  // What a module would be called as an instance of a class, by index: "Attention_0" for
  // "layers.0.attention", "Layer_3" for "layers.3".
  const std::vector<std::string>& instance_names() const { return instance_names_; }

 private:
  class Walk;

  const Recording& recording_;
  ModuleTree tree_;
  std::vector<std::vector<std::size_t>> module_path_;  // by ScopeId, outermost first, no root
  std::size_t deepest_ = 0;                            // of the module paths
  std::vector<bool> has_gradient_;                     // by NodeId
  std::vector<std::string> instance_names_;
};

// "feed_forward" as "FeedForward".
std::string camel_case(std::string_view name);

}  // namespace ridge
