// `ridge bench --list`.

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/cli/bench_list.h"
#include "ridge/models/vision/vision.h"
#include "ridge/session/language.h"
#include "ridge/session/session.h"

namespace ridge {
namespace {

struct Listed {
  VisionNetwork network;
  std::int64_t parameters = 0, macs = 0;  // the latter of one image
};

std::vector<Listed> all_listed() {
  std::vector<Listed> all;
  for (const VisionNetwork& network : vision_networks()) {
    Graph graph;
    build_vision(graph, network.name, {});
    all.push_back({network, parameter_count(graph), cost_of_step(graph, 1).total().macs});
  }
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
                    {"input_size", entry.network.input_size},
                    {"classes", entry.network.classes}});
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
  for (const Listed& entry : all_listed()) {
    const VisionNetwork& network = entry.network;
    rows.push_back({std::string(network.name), format_count(entry.parameters),
                    fmt::format("{:.3f}", static_cast<double>(entry.macs) / 1e9),
                    fmt::format("{0} x {0}", network.input_size), fmt::to_string(network.classes),
                    fmt::format("{}", fmt::join(network.aliases, ", "))});
  }
  return text_table(columns, rows);
}

}  // namespace ridge
