// `ridge bench --list`.

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/cli/bench_list.h"
#include "ridge/session/session.h"

namespace ridge {
namespace {

struct Listed {
  NetworkName network;
  std::int64_t parameters = 0, macs = 0;  // the latter of one sample
  std::vector<std::int64_t> sample_shape;
  std::int64_t classes = 0;
};

Listed listed(const NetworkName& network) {
  RunOptions options = default_options(network.name);
  options.mode = name_of(Use::inference);
  options.batch_size = 1;
  options.resolve();
  Graph graph;
  const Model model = workload_of(options).build(graph, options.precision());
  const auto shape = model.input.shape().dims().subspan(1);
  return {.network = network,
          .parameters = parameter_count(graph),
          .macs = cost_of_step(graph, 1).total().macs,
          .sample_shape = {shape.begin(), shape.end()},
          .classes = model.logits.shape().dims()[model.class_dim]};
}

std::vector<Listed> all_listed() {
  std::vector<Listed> all;
  for (const WorkloadFamily& family : workload_families())
    for (const NetworkName& network : family.networks()) all.push_back(listed(network));
  return all;
}

}  // namespace

std::string network_list_json() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Listed& entry : all_listed())
    list.push_back({{"name", entry.network.name},
                    {"aliases", entry.network.aliases},
                    {"parameters", entry.parameters},
                    {"macs", entry.macs},
                    {"input_size", entry.sample_shape},
                    {"classes", entry.classes}});
  return list.dump(2);
}

std::string network_list_text() {
  const TextColumn columns[] = {{.header = "Network", .left = true},
                                {.header = "Parameters"},
                                {.header = "GMACs"},
                                {.header = "Input"},
                                {.header = "Classes"},
                                {.header = "Also", .left = true}};
  std::vector<TextRow> rows;
  for (const Listed& entry : all_listed())
    rows.push_back({std::string(entry.network.name), format_count(entry.parameters),
                    fmt::format("{:.3f}", static_cast<double>(entry.macs) / 1e9),
                    fmt::format("{}", fmt::join(entry.sample_shape, " x ")),
                    fmt::to_string(entry.classes),
                    fmt::format("{}", fmt::join(entry.network.aliases, ", "))});
  return text_table(columns, rows);
}

}  // namespace ridge
