#include "ridge/analyze/flops_answers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/base/error.h"
#include "ridge/base/lines.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/graph/op_rules.h"
#include "ridge/profile/module_tree.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

// Less than this part of all FLOPs is negligible.
constexpr double negligible = 0.01;

// Whether a value is a parameter, or made of one alone: rounded, transposed.
bool is_of_parameter(const Graph& graph, ValueId value) {
  for (;;) {
    const ValueInfo& info = graph.info(value);
    if (info.role == Role::parameter) return true;
    if (info.producer == no_node || graph.nodes()[info.producer].inputs.size() != 1) return false;
    value = graph.nodes()[info.producer].inputs[0];
  }
}

// Whether a product has a weight: as its operand, or that of the product whose gradient it is.
bool has_weight(const Graph& graph, const Node& node) {
  const Node& product = node.forward != no_node && is_product(*graph.nodes()[node.forward].op)
                            ? graph.nodes()[node.forward]
                            : node;
  return std::ranges::any_of(product.inputs,
                             [&](ValueId value) { return is_of_parameter(graph, value); });
}

std::string percent(std::int64_t part, std::int64_t whole) {
  return fmt::format("{:.1f} %",
                     whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0);
}

// FLOPs or kernels summed over the operations of one part each, most first.
using Sums = std::vector<std::pair<std::string, std::array<std::int64_t, 3>>>;
Sums by_part(const WorkAnswers& answers, std::array<std::int64_t, 3> WorkOfOperation::*member) {
  std::map<std::string, std::array<std::int64_t, 3>> sums;
  for (const WorkOfOperation& one : answers.operations)
    for (std::size_t phase = 0; phase < 3; ++phase) sums[one.part][phase] += (one.*member)[phase];
  Sums sorted(sums.begin(), sums.end());
  std::ranges::stable_sort(sorted, std::greater{}, [](const auto& one) {
    return one.second[0] + one.second[1] + one.second[2];
  });
  return sorted;
}

template <class Holds>
std::int64_t flops_of(const WorkAnswers& answers, const Holds& holds) {
  std::int64_t flops = 0;
  for (const WorkOfOperation& one : answers.operations)
    if (holds(one)) flops += one.all_flops();
  return flops;
}

std::string shares(const WorkAnswers& answers) {
  std::vector<std::string> words;
  for (const auto& [part, flops] : by_part(answers, &WorkOfOperation::flops))
    words.push_back(
        fmt::format("{} {}", part, percent(flops[0] + flops[1] + flops[2], answers.flops)));
  const std::int64_t products =
      flops_of(answers, [](const WorkOfOperation& one) { return one.is_product; });
  return fmt::format("{}; matrix products {} of all", fmt::join(words, ", "),
                     percent(products, answers.flops));
}

std::string within_attention(const WorkAnswers& answers) {
  const auto of = [&](bool product, bool weight) {
    return flops_of(answers, [=](const WorkOfOperation& one) {
      return one.part == "attention" && one.is_product == product && one.has_weight == weight;
    });
  };
  const std::int64_t projections = of(true, true), scores = of(true, false),
                     rest = of(false, false);
  const std::int64_t all = projections + scores + rest;
  if (all == 0) return "";
  return fmt::format(
      "projections {}, products of scores and values {}, softmax and all else {}; {} to {} of "
      "projections to scores",
      percent(projections, all), percent(scores, all), percent(rest, all),
      std::llround(100.0 * static_cast<double>(projections) /
                   static_cast<double>(std::max<std::int64_t>(1, projections + scores))),
      std::llround(100.0 * static_cast<double>(scores) /
                   static_cast<double>(std::max<std::int64_t>(1, projections + scores))));
}

std::string without_products(const WorkAnswers& answers) {
  std::vector<std::string> words;
  std::int64_t all = 0;
  for (const WorkOfOperation& one : answers.operations)
    if (!one.is_product && one.all_flops() > 0) {
      all += one.all_flops();
      if (words.size() < 6)
        words.push_back(fmt::format("{} {}", one.name, percent(one.all_flops(), answers.flops)));
    }
  const bool is_little = static_cast<double>(all) < negligible * static_cast<double>(answers.flops);
  return fmt::format("{}: all that are no products have {} of the FLOPs ({}{})",
                     is_little ? "yes" : "no, not all together", percent(all, answers.flops),
                     fmt::join(words, ", "), words.size() == 6 ? ", .." : "");
}

std::string kernels(const WorkAnswers& answers) {
  std::vector<std::string> words;
  for (const auto& [part, kernels] : by_part(answers, &WorkOfOperation::kernels)) {
    std::string text = fmt::format("{} {}", part, kernels[0] + kernels[1] + kernels[2]);
    if (kernels[2] == 0) text += fmt::format(" ({} forward, {} backward)", kernels[0], kernels[1]);
    words.push_back(std::move(text));
  }
  std::int64_t in_layers = 0;
  for (const WorkOfOperation& one : answers.operations)
    if (one.in_layers) in_layers += one.all_kernels();
  return fmt::format(
      "{} in a step: {}{}", answers.kernels, fmt::join(words, ", "),
      answers.layers > 0
          ? fmt::format("; {:.4g} in each of {} layers, without the optimizer",
                        static_cast<double>(in_layers) / static_cast<double>(answers.layers),
                        answers.layers)
          : "");
}

std::vector<std::pair<std::string, std::string>> questions(const WorkAnswers& answers) {
  std::vector<std::pair<std::string, std::string>> list{
      {"Which share of the FLOPs have the parts, and all matrix products?", shares(answers)},
      {"Within attention, what have projections and what have scores?", within_attention(answers)},
      {"Are the FLOPs of all but the products negligible?", without_products(answers)},
      {"How many kernels has each part, forward and backward, and a layer?", kernels(answers)}};
  std::erase_if(list, [](const auto& one) { return one.second.empty(); });
  return list;
}

}  // namespace

WorkAnswers work_answers(const Recording& recording) {
  if (recording.steps.empty())
    throw UsageError("the profile has no finished step: record at least one");
  const Graph& graph = *recording.graph;
  const std::vector<ScopeId> blocks = graph.blocks();
  WorkAnswers answers{.layers = static_cast<std::int64_t>(blocks.size())};
  std::map<std::pair<std::string, bool>, WorkOfOperation> by_name;
  for (const Recording::NodeRun& run : recording.nodes) {
    if (run.step != recording.steps.front().step) continue;
    const Node& node = graph.nodes()[run.node];
    const bool product = is_product(*node.op) || work_of(*node.op) == WorkKind::attention;
    const bool weight = product && has_weight(graph, node);
    const std::string scope = kind_of(graph.scope_name(node.scope));
    const std::string name = scope.empty() ? std::string(name_of(*node.op))
                                           : fmt::format("{}: {}", scope, name_of(*node.op));
    WorkOfOperation& one = by_name[{name, weight}];
    one.name = name;
    one.part = part_of(graph, node);
    one.is_product = product;
    one.has_weight = weight;
    one.in_layers = node.phase != Phase::optimizer && scope.find('*') != std::string::npos;
    const auto phase = static_cast<std::size_t>(node.phase);
    const std::int64_t flops = cost(graph, node).flops;
    one.flops[phase] += flops;
    ++one.kernels[phase];
    answers.flops += flops;
    ++answers.kernels;
  }
  for (auto& [name, one] : by_name) answers.operations.push_back(std::move(one));
  std::ranges::stable_sort(answers.operations, std::greater{}, &WorkOfOperation::all_flops);
  return answers;
}

std::string work_answers_text(const WorkAnswers& answers, std::size_t top) {
  const TextColumn columns[] = {{"Operation", true, 48}, {"Part", true}, {"Kernels"},
                                {"fwd flops"},           {"bwd flops"},  {"All flops, %"}};
  std::vector<TextRow> rows;
  for (const WorkOfOperation& one : answers.operations) {
    if (rows.size() == top) break;
    rows.push_back({one.name, one.part, format_count(one.all_kernels()),
                    format_si(static_cast<double>(one.flops[0])),
                    format_si(static_cast<double>(one.flops[1])),
                    percent(one.all_flops(), answers.flops)});
  }
  Lines line;
  line("Operations of a step by FLOPs, all layers together:");
  line.text += text_table(columns, rows);
  if (answers.operations.size() > rows.size())
    line("and {} more operations", answers.operations.size() - rows.size());
  line("");
  line("Questions on FLOPs:");
  for (const auto& [question, answer] : questions(answers)) line("  {}\n    {}", question, answer);
  return line.text;
}

Json json_of(const WorkAnswers& answers) {
  Json operations = Json::array(), list = Json::array();
  for (const WorkOfOperation& one : answers.operations)
    operations.push_back({{"name", one.name},
                          {"part", one.part},
                          {"is_product", one.is_product},
                          {"has_weight", one.has_weight},
                          {"kernels", one.all_kernels()},
                          {"forward_flops", one.flops[0]},
                          {"backward_flops", one.flops[1]},
                          {"optimizer_flops", one.flops[2]}});
  for (const auto& [question, answer] : questions(answers))
    list.push_back({{"question", question}, {"answer", answer}});
  return {{"flops", answers.flops},
          {"kernels", answers.kernels},
          {"operations", operations},
          {"questions", list}};
}

}  // namespace ridge
