// ridge_networks [--device cpu|cuda] [--dtypes fp32,bf16,..] [--training] [NAME..]: a table of the
// vision networks, all unless named: parameters, multiply-accumulates of one image, and how far the
// logits are from torchvision's in each dtype; with --training a step of forward and backward too.
// Exit code 1 if one of them is beyond its tolerance.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/session/devices.h"
#include "ridge/session/session.h"
#include "tests/models/ruled_network.h"

namespace ridge {
namespace {

struct Request {
  std::string device = "auto";
  std::vector<std::string> dtypes;  // empty: all that the device has
  bool training = false;
  std::vector<std::string> names;
};

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    parts.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return parts;
}

Request request_of(int count, char** arguments) {
  Request request;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    const auto value = [&] {
      if (++i == count) throw UsageError("{} wants a value", argument);
      return std::string(arguments[i]);
    };
    if (argument == "--device")
      request.device = value();
    else if (argument == "--dtypes")
      request.dtypes = split(value());
    else if (argument == "--training")
      request.training = true;
    else if (argument.starts_with("-"))
      throw UsageError("there is no {}; there are --device, --dtypes and --training", argument);
    else
      request.names.emplace_back(vision_network(argument).name);
  }
  if (request.names.empty())
    for (const VisionNetwork& network : vision_networks()) request.names.emplace_back(network.name);
  return request;
}

void print_cells(const Request& request, std::string_view name, std::string_view parameters,
                 std::string_view macs, const std::vector<std::string>& cells) {
  fmt::print("{:<29} {:>11} {:>8}", name, parameters, macs);
  for (std::size_t i = 0; i < cells.size(); ++i)
    fmt::print(" {:>{}}", cells[i], i < request.dtypes.size() ? 8 : 13);
  fmt::print("\n");
  std::fflush(stdout);
}

void print_header(const Request& request) {
  std::vector<std::string> cells = request.dtypes;
  if (request.training) cells.insert(cells.end(), {"loss", "gradient norm"});
  print_cells(request, "network", "parameters", "GMACs", cells);
}

// Prints one network's row; whether all of it is right.
bool print_row(const Request& request, const std::string& name, Device& device) {
  testing::RuledNetwork network(name);
  std::vector<std::string> cells;
  bool right = true;
  const auto add = [&](std::string cell, bool is_right) {
    cells.push_back(is_right ? std::move(cell) : cell + "!");
    right = right && is_right;
  };
  for (const std::string& dtype : request.dtypes) {
    const double error = network.error(network.logits(device, dtype));
    add(fmt::format("{:.1e}", error), error <= testing::logits_tolerance(name, dtype));
  }
  if (request.training) {
    const testing::RuledNetwork::Step step = network.training_step(device, "fp32");
    add(fmt::format("{:.3f}", step.loss), std::isfinite(step.loss));
    add(fmt::format("{:.3g}", step.gradient_norm), std::isfinite(step.gradient_norm));
  }
  Graph graph;
  build_vision(graph, name, {});
  print_cells(request, name, fmt::to_string(parameter_count(graph)),
              fmt::format("{:.3f}", static_cast<double>(cost_of_step(graph, 1).total().macs) / 1e9),
              cells);
  return right;
}

int run(Request request) {
  RunOptions options;
  options.device = request.device;
  const std::unique_ptr<Device> device = open_device(options);
  if (request.dtypes.empty()) {
    request.dtypes = {"fp32", "bf16", "fp16", "int8"};
    if (device->name() != "cpu") request.dtypes.insert(request.dtypes.begin() + 1, "tf32");
  }
  print_header(request);
  std::size_t wrong = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string& name : request.names) wrong += print_row(request, name, *device) ? 0 : 1;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  fmt::print(
      "On {}, in {:.0f} s. Differences are of the logit that is furthest off, over the root "
      "mean square.\n",
      device->description(), seconds.count());
  if (wrong > 0) fmt::print("{} of {} are wrong: !\n", wrong, request.names.size());
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ridge

int main(int count, char** arguments) {
  try {
    return ridge::run(ridge::request_of(count, arguments));
  } catch (const ridge::UsageError& error) {
    fmt::print(stderr, "ridge_networks: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "ridge_networks: {}\n", error.what());
    return 1;
  }
}
