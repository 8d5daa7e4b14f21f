// A fact about an operator stands with the operator, as a trait (ridge/ops/operator.h). Elsewhere
// no list of operators states one: by their types, by their names, or as values in a table. Kernels
// compute operators, and may name as many as they like. A pass that rewrites one chain of operators
// names those of the chain: these patterns are listed below, each with what it is a pattern of.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "ridge/ops/op.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// Two are a pattern, three are a list.
constexpr std::size_t least_of_a_list = 3;

const std::set<std::string> about_operators{"ops", "cpu", "gpu"};

// By what is found: why it is no list of facts.
const std::map<std::string, std::string> patterns{
    {"passes/flash_attention.cpp lists CausalMask MatMul Permute Scale Softmax",
     "attention as models write it, one operator after another"},
    {"passes/masked_softmax.cpp lists CausalMask Scale Softmax", "the scores of attention"},
    {"passes/norm_activations.cpp lists BatchNorm Concat Relu",
     "a concatenation, its norm and the activation of that"},
    {"passes/results.cpp lists AddRmsNorm AddRmsNormGrad RmsNorm RmsNormGrad",
     "a norm, alone or with a sum, and its gradient"},
    {"passes/results.cpp lists MatMul SwiGlu SwiGluGrad",
     "a gate, its gradient and the product that reads its result"},
    {"passes/rounded_gradients.cpp lists AdamW AllReduce GlobalNorm MatMul Sgd Slice",
     "a product, the message that sends it, and who may read that in 16 bits"},
    {"passes/scaled_products.cpp lists Quantize SwiGlu SwiGluGrad",
     "a gate, or its gradient, that is only there to be quantized"},
    {"passes/int8.cpp lists Conv2d Linear MatMul",
     "the three forms of a layer, which are taken apart in different ways"},
    {"passes/int8.cpp lists Fill Int8Quantize Int8Weights", "what a layer in integers is made of"},
    {"passes/shard_optimizer.cpp lists Accumulate AllReduce GlobalNorm Slice",
     "a gradient from where it is summed to where it is used"},
    {"passes/shard_parameters.cpp lists AllGather Cast Slice",
     "a parameter from its update to its uses"},
    {"analyze/tensor_operators.cpp lists Activation Add Arithmetic IndexAdd MatMul Mul ReduceAll "
     "Relu "
     "Silu Softmax SumTo",
     "the cases of ridge ops, which are the workshop's choice"},
};

std::string content_of(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << "cannot read " << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// The C++ names of the closed set, as ops/op.h lists them.
std::set<std::string> type_names() {
  const std::string text = content_of(fs::path(RIDGE_SOURCE_DIR) / "ridge/ops/op.h");
  const std::string begin = "using OpVariant = std::variant<";
  const std::size_t from = text.find(begin) + begin.size();
  const std::string list = text.substr(from, text.find(">;", from) - from);
  const std::regex name(R"([A-Z]\w*)");
  return {std::sregex_token_iterator(list.begin(), list.end(), name), {}};
}

template <class... T>
std::set<std::string> operator_names(const std::variant<T...>*) {
  return {std::string(T::name)...};
}

// The definitions of a source without its comments: each ends where a brace closes at the margin.
std::vector<std::string> definitions_of(const std::string& source) {
  const std::string code = std::regex_replace(source, std::regex(R"(//[^\n]*)"), "");
  const std::regex end(R"(\n\}[^\n]*)");
  return {std::sregex_token_iterator(code.begin(), code.end(), end, -1), {}};
}

// Those of `names` that `pattern` finds, as its group 1, in a definition.
std::set<std::string> found(const std::string& definition, const std::regex& pattern,
                            const std::set<std::string>& names) {
  std::set<std::string> result;
  for (auto at = std::sregex_iterator(definition.begin(), definition.end(), pattern);
       at != std::sregex_iterator(); ++at)
    if (names.contains((*at)[1])) result.insert((*at)[1]);
  return result;
}

// The lists of a source: each as the operators that a definition asks for by type
// (std::get_if<Relu>, rewriter.op<Relu>), names as text ("relu") or makes (Relu{}). A Reshape does
// not count: any pattern has to look through those that lie between.
std::vector<std::string> lists_in(const std::string& file, const std::string& source) {
  static const std::set<std::string> types = [] {
    std::set<std::string> all = type_names();
    all.erase("Reshape");
    return all;
  }();
  static const std::set<std::string> names = operator_names(static_cast<OpVariant*>(nullptr));
  static const std::regex asked(R"([<,]\s*(?:const\s+)?(\w+)\s*(?=[>,*&]))");
  static const std::regex text(R"x("(\w+)")x");
  static const std::regex made(R"(\b(\w+)\{)");
  std::vector<std::string> lists;
  for (const std::string& definition : definitions_of(source))
    for (const auto& operators : {found(definition, asked, types), found(definition, text, names),
                                  found(definition, made, types)}) {
      if (operators.size() < least_of_a_list) continue;
      std::string list = file + " lists";
      for (const std::string& name : operators) list += " " + name;
      lists.push_back(list);
    }
  return lists;
}

std::set<std::string> lists_in_tree(const fs::path& root) {
  std::set<std::string> lists;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string end = entry.path().extension();
    if (end != ".h" && end != ".cpp" && end != ".cu") continue;
    const fs::path file = fs::relative(entry.path(), root);
    if (about_operators.contains(file.begin()->string())) continue;
    for (const std::string& list : lists_in(file.string(), content_of(entry.path())))
      lists.insert(list);
  }
  return lists;
}

TEST(OperatorLists, StandNowhereButWithOperators) {
  EXPECT_EQ(type_names().size(), std::variant_size_v<OpVariant>);
  std::set<std::string> known;
  for (const auto& [list, why] : patterns) known.insert(list);
  EXPECT_EQ(lists_in_tree(fs::path(RIDGE_SOURCE_DIR) / "ridge"), known)
      << "state a fact as a trait; a pattern is to be listed above, and leaves with its code";
}

TEST(OperatorLists, APlantedOneWouldBeSeen) {
  const std::string by_type = R"(bool is_product(const Op& op) {
  return std::holds_alternative<MatMul>(op) || std::get_if<Conv2d>(&op) || rw.op<Linear>(n);
})";
  const std::string by_name = R"(constexpr std::pair<std::string_view, int> table[] = {
    {"matmul", 2},
    {"linear", 2},
    {"add", 1},
};)";
  EXPECT_EQ(lists_in("a.cpp", by_type),
            std::vector<std::string>{"a.cpp lists Conv2d Linear MatMul"});
  EXPECT_EQ(lists_in("b.cpp", by_name), std::vector<std::string>{"b.cpp lists add linear matmul"});
  const std::string types = "template <class T>\nconstexpr bool is = one_of<T, Add, Mul, Relu>;\n";
  EXPECT_EQ(lists_in("c.cpp", types).size(), 1u);
  const std::string table = "const Op steps[] = {Relu{}, Silu{}, Add{}, Activation{Kind::gelu}};\n";
  EXPECT_EQ(lists_in("d.cpp", table),
            std::vector<std::string>{"d.cpp lists Activation Add Relu Silu"});
}

TEST(OperatorLists, APatternIsNone) {
  const std::string two = R"(void f() { if (rw.op<MatMul>(n)) g(rw.op<Add>(m)); }
)";
  const std::string apart = R"(void f() {
  rw.op<MatMul>(n), rw.op<Add>(m);  // and rw.op<Mul>(k)
}
void g() {
  rw.op<Relu>(n);
})";
  const std::string through =
      "void f() { if (rw.op<MatMul>(n)) g(rw.op<Reshape>(m), rw.op<Add>(k)); }\n";
  EXPECT_EQ(lists_in("a.cpp", two), std::vector<std::string>{});
  EXPECT_EQ(lists_in("a.cpp", through), std::vector<std::string>{});
  EXPECT_EQ(lists_in("b.cpp", apart), std::vector<std::string>{});
}

}  // namespace
}  // namespace ridge
