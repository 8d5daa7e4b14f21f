#include "ridge/profile/module_tree.h"

#include <algorithm>
#include <map>

namespace ridge {
namespace {

// The module of a path, made with all those above it if it is new.
std::size_t find_or_add(std::vector<Module>& modules, std::map<std::string, std::size_t>& known,
                        const std::string& path) {
  std::size_t at = 0;
  for (std::size_t begin = 0, end = 0; !path.empty() && end != std::string::npos; begin = end + 1) {
    end = path.find('.', begin);
    const std::string prefix = path.substr(0, end);
    const auto [it, added] = known.emplace(prefix, modules.size());
    if (added)
      modules.push_back({.path = prefix,
                         .name = prefix.substr(begin),
                         .parent = at,
                         .depth = modules[at].depth + 1});
    at = it->second;
  }
  return at;
}

}  // namespace

std::string kind_of(std::string_view path) {
  std::string kind;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('.'));
    const std::size_t digits = std::min(part.find_first_not_of("0123456789"), part.size());
    const bool number = digits > 0 && (digits == part.size() || part[digits] == ':');
    kind += number ? "*" : "";
    kind += number ? part.substr(digits) : part;
    path.remove_prefix(part.size());
    if (path.empty()) break;
    kind += '.';
    path.remove_prefix(1);
  }
  return kind;
}

ModuleTree module_tree(const Graph& graph) {
  std::vector<Module> modules(1);
  std::map<std::string, std::size_t> known;
  std::vector<std::size_t> of_scope;
  for (ScopeId scope = 0; scope < graph.scope_count(); ++scope)
    of_scope.push_back(find_or_add(modules, known, graph.scope_name(scope)));

  // From the order of creation to that of a walk down the tree.
  std::vector<std::vector<std::size_t>> children(modules.size());
  for (std::size_t m = modules.size(); m-- > 1;) children[modules[m].parent].push_back(m);
  std::vector<std::size_t> pending{0}, moved(modules.size());
  ModuleTree tree;
  while (!pending.empty()) {
    const std::size_t m = pending.back();
    pending.pop_back();
    moved[m] = tree.modules.size();
    tree.modules.push_back(modules[m]);
    tree.modules.back().parent = moved[modules[m].parent];
    pending.insert(pending.end(), children[m].begin(), children[m].end());
  }
  for (const std::size_t m : of_scope) tree.of_scope.push_back(moved[m]);
  return tree;
}

}  // namespace ridge
