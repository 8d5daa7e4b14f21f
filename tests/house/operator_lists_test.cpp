// A fact about an operator stands with the operator, as a trait (ridge/ops/operator.h). Elsewhere
// no list of operators states one: neither by their types nor by their names. What rewrites or
// computes operators is about them, and may name as many as it likes: passes and kernels.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
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

const std::set<std::string> about_operators{"ops", "passes", "cpu", "gpu"};

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
// (std::get_if<Relu>, rewriter.op<Relu>) or names as text ("relu").
std::vector<std::string> lists_in(const std::string& file, const std::string& source) {
  static const std::set<std::string> types = type_names();
  static const std::set<std::string> names = operator_names(static_cast<OpVariant*>(nullptr));
  static const std::regex asked(R"([<,]\s*(?:const\s+)?(\w+)\s*(?=[>,*&]))");
  static const std::regex text(R"x("(\w+)")x");
  std::vector<std::string> lists;
  for (const std::string& definition : definitions_of(source))
    for (const auto& operators :
         {found(definition, asked, types), found(definition, text, names)}) {
      if (operators.size() < least_of_a_list) continue;
      std::string list = file + " lists";
      for (const std::string& name : operators) list += " " + name;
      lists.push_back(list);
    }
  return lists;
}

std::vector<std::string> lists_in_tree(const fs::path& root) {
  std::vector<std::string> lists;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string end = entry.path().extension();
    if (end != ".h" && end != ".cpp" && end != ".cu") continue;
    const fs::path file = fs::relative(entry.path(), root);
    if (about_operators.contains(file.begin()->string())) continue;
    for (const std::string& list : lists_in(file.string(), content_of(entry.path())))
      lists.push_back(list);
  }
  return lists;
}

TEST(OperatorLists, StandNowhereButWithOperators) {
  EXPECT_EQ(type_names().size(), std::variant_size_v<OpVariant>);
  EXPECT_EQ(lists_in_tree(fs::path(RIDGE_SOURCE_DIR) / "ridge"), std::vector<std::string>{});
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
  EXPECT_EQ(lists_in("a.cpp", two), std::vector<std::string>{});
  EXPECT_EQ(lists_in("b.cpp", apart), std::vector<std::string>{});
}

}  // namespace
}  // namespace ridge
