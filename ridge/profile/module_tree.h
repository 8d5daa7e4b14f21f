#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

// One module of a model: a scope of its graph, or what scopes have in common, as "layers" is of
// "layers.0" and "layers.1".
struct Module {
  std::string path;  // "layers.0.attention"; the root's is ""
  std::string name;  // "attention"
  std::size_t parent = 0, depth = 0;
};

// Every parent stands before its children, and those in the order in which the graph names them;
// module 0 is the root, its own parent.
struct ModuleTree {
  std::vector<Module> modules;
  std::vector<std::size_t> of_scope;  // by ScopeId
};

ModuleTree module_tree(const Graph& graph);

// A path or a value's name with "*" for what is a number: "layers.3.attention: softmax" as
// "layers.*.attention: softmax". Those that differ by numbers alone are of one kind.
std::string kind_of(std::string_view path);

// Adds to every module's element those of its submodules.
template <class T>
void add_submodules(const ModuleTree& tree, std::vector<T>& by_module) {
  for (std::size_t m = tree.modules.size(); m-- > 1;)
    by_module[tree.modules[m].parent] += by_module[m];
}

}  // namespace ridge
