#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "ridge/analyze/machine_file.h"
#include "ridge/analyze/roofline.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/system.h"
#include "ridge/cli/terminal.h"

namespace ridge {
namespace {

constexpr std::size_t max_profile_bytes = std::size_t{256} << 20;

struct Request {
  std::string machine_file, profile, svg;
  double peak_tflops = 0, peak_bandwidth = 0;  // 0: not given
  double seconds = 6;
  bool fresh = false;
  std::int64_t threads = 0;
};

VendorPeaks vendor_peaks(const Request& request) {
  VendorPeaks vendor;
  for (const auto& [flag, value] : {std::pair{"--peak-tflops", request.peak_tflops},
                                    std::pair{"--peak-bandwidth", request.peak_bandwidth}})
    if (!(value >= 0) || std::isinf(value))
      throw UsageError("{} is {}; a peak is a positive number", flag, value);
  if (request.peak_tflops > 0) vendor.flops_per_second = request.peak_tflops * 1e12;
  if (request.peak_bandwidth > 0) vendor.bytes_per_second = request.peak_bandwidth * 1e9;
  return vendor;
}

std::filesystem::path machine_file(const Request& request) {
  return request.machine_file.empty() ? default_machine_file()
                                      : std::filesystem::path(request.machine_file);
}

SystemInfo this_system(const Request& request) {
  TrainOptions options;
  options.threads = request.threads;
  return system_info(*open_device(options), options);
}

Ceilings measure(const Request& request, const SystemInfo& system, Terminal& terminal) {
  // Some 35 measurements, more where others use the machine.
  constexpr double measurements = 35;
  const auto each = std::chrono::milliseconds(
      static_cast<std::int64_t>(std::lround(1000 * request.seconds / measurements)));
  terminal.busy(fmt::format("Measuring on {} threads...", system.threads));
  Ceilings ceilings = measure_cpu_ceilings(static_cast<int>(system.threads), each);
  ceilings.measured_at = utc_timestamp();
  ceilings.host = system.host;
  ceilings.hardware = system.cpu;
  const std::filesystem::path path = machine_file(request);
  if (!request.fresh && std::filesystem::exists(path))
    ceilings = best_of(ceilings, read_machine_file(path));
  write_machine_file(path, ceilings);
  terminal.line(fmt::format("Measured {} on {} threads; kept in {}", system.cpu, system.threads,
                            path.string()));
  return ceilings;
}

// Those in the machine file, if they are this machine's; measured if there are none.
Ceilings known_ceilings(const Request& request, Terminal& terminal) {
  const SystemInfo system = this_system(request);
  const std::filesystem::path path = machine_file(request);
  if (!std::filesystem::exists(path)) return measure(request, system, terminal);
  Ceilings ceilings = read_machine_file(path);
  terminal.line(fmt::format("Ceilings of {}, measured {}, from {}", ceilings.hardware,
                            ceilings.measured_at, path.string()));
  if (ceilings.hardware != system.cpu)
    terminal.line(fmt::format("Note: this machine is another, {}; measure it with ridge roofline",
                              system.cpu));
  return ceilings;
}

int draw_profile(const Request& request, Terminal& terminal) {
  const std::filesystem::path directory = request.profile, file = directory / "operators.json";
  if (!std::filesystem::exists(file))
    throw IoError("{} has no operators.json: is it the --profile-dir of a run with --profile?",
                  request.profile);
  const auto [points, profile_threads] =
      roofline_points_from_json(read_text_file(file, max_profile_bytes), file.string());
  const Ceilings ceilings = known_ceilings(request, terminal);
  const int threads = request.threads > 0   ? static_cast<int>(request.threads)
                      : profile_threads > 0 ? profile_threads
                                            : ceilings.threads;
  const Roof roof = roof_of(ceilings, threads, vendor_peaks(request));
  terminal.line("");
  terminal.line(roofline_text(points, roof));
  const std::filesystem::path svg =
      request.svg.empty() ? directory / "roofline.svg" : std::filesystem::path(request.svg);
  write_text_file(svg, roofline_svg(points, roof, "Roofline of " + request.profile));
  terminal.line(fmt::format("Wrote {}", svg.string()));
  return 0;
}

int roofline(const Request& request) {
  const VendorPeaks vendor = vendor_peaks(request);
  if (!(request.seconds > 0 && request.seconds <= 3600))
    throw UsageError("--seconds is {}; it must be above 0 and at most 3600", request.seconds);
  if (request.threads < 0 || request.threads > 4096)
    throw UsageError("--threads is {}; it must be from 1 to 4096", request.threads);
  Terminal terminal;
  if (!request.profile.empty()) return draw_profile(request, terminal);
  if (!request.svg.empty())
    throw UsageError("--svg draws a profile: give --profile PROFILE_DIR with it");
  const Ceilings ceilings = measure(request, this_system(request), terminal);
  terminal.line("");
  terminal.line(ceilings_text(ceilings, vendor));
  return 0;
}

}  // namespace

void add_roofline_command(CLI::App& program, Action& action) {
  CLI::App& command =
      *program.add_subcommand("roofline", "What this machine can do, and a profile drawn on it");
  const auto request = std::make_shared<Request>();
  command.add_option("--profile", request->profile, "Draw the operators of this profile directory")
      ->type_name("PROFILE_DIR");
  command
      .add_option("--svg", request->svg,
                  "Where the picture goes (default: PROFILE_DIR/roofline.svg)")
      ->type_name("FILE");
  command
      .add_option("--machine-file", request->machine_file,
                  "Where the ceilings are kept (default: machine.json in the user's cache)")
      ->type_name("FILE");
  command.add_option("--peak-tflops", request->peak_tflops, "The vendor's peak, in TFLOP/s")
      ->type_name("X");
  command
      .add_option("--peak-bandwidth", request->peak_bandwidth, "The vendor's bandwidth, in GB/s")
      ->type_name("X");
  command.add_option("--seconds", request->seconds, "How long to measure, about")
      ->type_name("X")
      ->capture_default_str();
  command
      .add_option("--threads", request->threads,
                  "How many make all cores (default: all there are, or those of the profile)")
      ->type_name("N");
  command.add_flag("--fresh", request->fresh, "Forget what was measured before");
  command.footer(
      R"(Without --profile, the ceilings are measured and kept: the best of all measurements of the same
machine, because others who use it can only make it look slower. With --profile, those are used.

Examples:
  ridge roofline
  ridge roofline --profile ./pytorch_profiles --peak-tflops 1.2)");
  command.callback([request, &action] { action = [request] { return roofline(*request); }; });
}

}  // namespace ridge
