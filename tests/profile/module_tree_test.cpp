#include "ridge/profile/module_tree.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

TEST(ModuleTree, HoldsScopesAndWhatTheyHaveInCommonParentsFirst) {
  Graph graph;
  for (const char* name : {"embedding", "layers.0.attention", "output", "layers.1"})
    const Scope scope(graph, name);
  const ModuleTree tree = module_tree(graph);
  std::vector<std::string> paths;
  for (const Module& module : tree.modules) paths.push_back(module.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"", "embedding", "layers", "layers.0",
                                             "layers.0.attention", "layers.1", "output"}));
  EXPECT_EQ(tree.modules[4].name, "attention");
  EXPECT_EQ(tree.modules[4].parent, 3u);
  EXPECT_EQ(tree.modules[4].depth, 3u);
  EXPECT_EQ(tree.modules[5].parent, 2u);
  EXPECT_EQ(tree.of_scope, (std::vector<std::size_t>{0, 1, 4, 6, 5}));
}

TEST(ModuleTree, AddsUpAlongTheTree) {
  Graph graph;
  for (const char* name : {"a.b.c", "a.d"}) const Scope scope(graph, name);
  const ModuleTree tree = module_tree(graph);  // root, a, a.b, a.b.c, a.d
  std::vector<int> values{1, 10, 100, 1000, 10000};
  add_submodules(tree, values);
  EXPECT_EQ(values, (std::vector<int>{11111, 11110, 1100, 1000, 10000}));
}

TEST(ModuleTree, TakesAnyName) {
  Graph graph;
  for (const char* name : {".", "..", "a..b", "\xff\n", "a."}) const Scope scope(graph, name);
  const Scope deep(graph, std::string(1000, '.'));
  const ModuleTree tree = module_tree(graph);
  for (std::size_t m = 1; m < tree.modules.size(); ++m) EXPECT_LT(tree.modules[m].parent, m);
  EXPECT_EQ(tree.modules[tree.of_scope[6]].depth, 1001u);
}

TEST(ModuleTree, KindsAreNamesWithoutTheirNumbers) {
  EXPECT_EQ(kind_of("layers.3.attention: softmax"), "layers.*.attention: softmax");
  EXPECT_EQ(kind_of("layers.12: add"), "layers.*: add");
  EXPECT_EQ(kind_of("12"), "*");
  EXPECT_EQ(kind_of("conv2d.1x1."), "conv2d.1x1.");
  EXPECT_EQ(kind_of(""), "");
}

}  // namespace
}  // namespace ridge
