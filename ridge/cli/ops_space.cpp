#include "ridge/cli/ops_space.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "ridge/analyze/machine_file.h"
#include "ridge/analyze/operator_space.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/ranges.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/run_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/devices.h"

namespace ridge {
namespace {

struct SpaceWorkload {
  std::string name;
  RunOptions options;  // resolved
};

std::vector<Use> uses_of(std::string_view mode) {
  if (mode == "both") return {Use::inference, Use::training};
  if (mode == name_of(Use::inference)) return {Use::inference};
  if (mode == name_of(Use::training)) return {Use::training};
  throw UsageError("--mode is '{}'; choose one of inference, training, both", mode);
}

std::vector<std::string> networks_of(const SpaceRequest& request) {
  std::vector<std::string> names;
  for (const std::string& name : request.networks) names.emplace_back(network_named(name));
  if (!names.empty() || !request.configs.empty()) return names;
  for (const WorkloadFamily& family : workload_families())
    for (const NetworkName& network : family.networks()) names.emplace_back(network.name);
  return names;
}

// As the request asks for it: its use, precision and schedule, and where it runs.
void apply(const SpaceRequest& request, Use use, RunOptions& options) {
  options.mode = name_of(use);
  options.dtype = request.dtype;
  options.version = request.version;
  options.device = request.device;
  options.threads = request.threads;
}

std::string name_of_workload(const RunOptions& options) {
  return fmt::format("{}, {}, {}", options.network, options.batch_size, options.mode);
}

void add(std::vector<SpaceWorkload>& workloads, RunOptions options, const std::string& source) {
  options.resolve();
  workloads.push_back({source.empty() ? name_of_workload(options)
                                      : fmt::format("{} ({})", name_of_workload(options), source),
                       std::move(options)});
}

std::vector<SpaceWorkload> workloads_of(const SpaceRequest& request) {
  std::vector<SpaceWorkload> workloads;
  for (const Use use : uses_of(request.mode)) {
    for (const std::string& network : networks_of(request)) {
      RunOptions options = default_options(network);
      apply(request, use, options);
      options.batch_size =
          request.batch_size > 0 ? request.batch_size : family_of(network).benchmark_batch;
      add(workloads, std::move(options), "");
    }
    for (const std::string& file : request.configs) {
      RunOptions options = options_in_file(file);
      apply(request, use, options);
      add(workloads, std::move(options), file);
    }
  }
  return workloads;
}

void check(const SpaceRequest& request) {
  check_range("batch-size", request.batch_size, 0, 1'000'000);
  check_range("threads", request.threads, 0, 4096);
  check_range("top", request.top, 0, 1'000'000);
  check_real("least-share", request.least_share, 0.0, 100.0);
}

std::vector<SpaceRow> measure(const std::vector<SpaceWorkload>& workloads, Device& device,
                              const Roof& roof, Terminal& terminal) {
  std::vector<SpaceRow> rows;
  std::vector<std::string> left_out;
  for (std::size_t i = 0; i < workloads.size() && interrupt_noted() == 0; ++i) {
    const auto& [name, options] = workloads[i];
    terminal.busy(fmt::format("{} of {}: {}", i + 1, workloads.size(), name));
    try {
      Session session(options, device);
      const std::vector<SpaceRow> found = operators_of_steps(session, name, roof);
      rows.insert(rows.end(), found.begin(), found.end());
    } catch (const OutOfMemoryError& error) {
      left_out.push_back(fmt::format("{}: {}", name, error.what()));
    } catch (const UsageError& error) {  // such as a batch norm of one image
      left_out.push_back(fmt::format("{}: {}", name, error.what()));
    }
  }
  terminal.erase();
  for (const std::string& line : left_out) terminal.line("Left out: " + line);
  sort_by_loss(rows);
  return rows;
}

}  // namespace

int ops_space(const SpaceRequest& request) {
  check(request);
  const std::vector<SpaceWorkload> workloads = workloads_of(request);
  if (!request.json_file.empty()) probe_writing(request.json_file);
  const std::unique_ptr<Device> device = open_device(workloads.front().options);
  Terminal terminal;
  terminal.line(
      fmt::format("Device: {}, {}, {}", device->description(), request.dtype, request.version));
  const KeptRoof kept =
      roof_of_device(*device, [&] { terminal.busy("Measuring the ceilings of the machine..."); });
  if (!kept.roof) throw DeviceError("there are no floors without ceilings: {}", kept.source);
  note_interrupts();
  const double share = request.least_share / 100;
  const std::vector<SpaceRow> rows = measure(workloads, *device, *kept.roof, terminal);
  terminal.line("");
  terminal.lines(operator_space_text(rows, static_cast<std::size_t>(request.top), share));
  if (!request.json_file.empty()) {
    write_text_file(request.json_file, operator_space_json(rows, share));
    terminal.line(fmt::format("Wrote {}", request.json_file));
  }
  if (interrupt_noted() == 0) return 0;
  terminal.line("Interrupted");
  return 128 + interrupt_noted();
}

}  // namespace ridge
