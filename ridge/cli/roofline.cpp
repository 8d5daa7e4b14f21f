#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridge/analyze/machine_file.h"
#include "ridge/analyze/roofline.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/ranges.h"
#include "ridge/base/system.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/terminal.h"
#include "ridge/dist/local_ranks.h"
#include "ridge/profile/card_watch.h"
#include "ridge/profile/device_report.h"
#include "ridge/session/devices.h"

namespace ridge {
namespace {

constexpr std::size_t max_profile_bytes = std::size_t{256} << 20;

struct RooflineRequest {
  std::string device, machine_file, profile, svg;
  std::optional<double> peak_tflops, peak_bandwidth;
  double seconds = 6;
  bool fresh = false;
  std::int64_t threads = 0, ranks = 1;
};

VendorPeaks vendor_peaks(const RooflineRequest& request) {
  VendorPeaks vendor;
  for (const auto& [flag, value] : {std::pair{"--peak-tflops", request.peak_tflops},
                                    std::pair{"--peak-bandwidth", request.peak_bandwidth}})
    if (value && (!(*value > 0) || std::isinf(*value)))
      throw UsageError("{} is {}; a peak is a positive number", flag, *value);
  if (request.peak_tflops) vendor.flops_per_second = *request.peak_tflops * 1e12;
  if (request.peak_bandwidth) vendor.bytes_per_second = *request.peak_bandwidth * 1e9;
  return vendor;
}

Ceilings with_vendor(Ceilings ceilings, const RooflineRequest& request) {
  const VendorPeaks given = vendor_peaks(request);
  if (given.flops_per_second) ceilings.vendor.flops_per_second = given.flops_per_second;
  if (given.bytes_per_second) ceilings.vendor.bytes_per_second = given.bytes_per_second;
  return ceilings;
}

std::filesystem::path machine_file(const RooflineRequest& request) {
  return request.machine_file.empty() ? default_machine_file()
                                      : std::filesystem::path(request.machine_file);
}

std::unique_ptr<Device> open_named(const RooflineRequest& request, const std::string& device) {
  RunOptions options;
  options.device = device;
  options.threads = request.threads;
  return open_device(options);
}

// What a rank of those whose link is measured is given.
RunOptions options_of_rank(const RooflineRequest& request, const std::string& device) {
  RunOptions options;
  options.device = device;
  options.ranks = request.ranks;
  options.threads =
      request.threads > 0 ? request.threads : threads_of_rank(static_cast<int>(request.ranks));
  return options;
}

// Measures the link between ranks of this machine, each on a device like this one.
LinkCeiling link_between(const RooflineRequest& request, const Device& like,
                         std::chrono::milliseconds each) {
  const auto count = static_cast<int>(request.ranks);
  const RunOptions options = options_of_rank(request, like.name());
  const auto open = [&](int rank) { return open_device(options, gpu_of_rank(options, rank)); };
  LinkCeiling link;
  on_local_ranks(count, open, [&](Device& device) {
    const LinkCeiling measured = measure_link(device, each);
    if (device.rank() == 0) link = measured;
  });
  return link;
}

Ceilings measure(const RooflineRequest& request, Device& device, Terminal& terminal) {
  // Some 35 measurements of a CPU, more where others use the machine, and 28 of a GPU.
  const double measurements = (device.is_gpu() ? 28 : 35) + (request.ranks > 1 ? 2 : 0);
  const auto each = std::chrono::milliseconds(
      static_cast<std::int64_t>(std::lround(1000 * request.seconds / measurements)));
  terminal.busy(fmt::format("Measuring {}...", device.description()));
  CardWatch card(device);
  Ceilings ceilings = measure_ceilings(device, each);
  if (request.ranks > 1) ceilings.links.push_back(link_between(request, device, each));
  if (const ClockReport clock = clock_report(card.stop()); clock.dropped())
    ceilings.note = fmt::format(
        "the clock was at {} to {} MHz under load ({}); each ceiling is the best of many samples "
        "with a rest before it",
        clock.min_mhz, clock.max_mhz, clock_reasons(clock));
  ceilings.measured_at = utc_timestamp();
  ceilings.host = host_name();
  ceilings.hardware = device.hardware();
  return ceilings;
}

// What the machine file has. The user's cache is begun anew where it is damaged; a file that was
// named may be another program's.
Machine kept_machine(const RooflineRequest& request, Terminal& terminal) {
  const std::filesystem::path path = machine_file(request);
  if (!std::filesystem::exists(path)) return {};
  try {
    return read_machine_file(path);
  } catch (const FormatError&) {
    if (!request.machine_file.empty()) throw;
    terminal.line(fmt::format("{} is damaged and is begun anew", path.string()));
    return {};
  }
}

// Adds to the machine file, or improves what it has of this hardware.
Ceilings measure_and_keep(const RooflineRequest& request, Device& device, Terminal& terminal) {
  Machine machine = kept_machine(request, terminal);
  Ceilings ceilings = measure(request, device, terminal);
  const std::filesystem::path path = machine_file(request);
  const Ceilings* const before = machine.find(ceilings.device, ceilings.hardware);
  ceilings = with_vendor(ceilings, request);
  if (before && !request.fresh) ceilings = best_of(ceilings, *before);
  machine.put(ceilings);
  write_machine_file(path, machine);
  terminal.line(fmt::format("Measured {}; kept in {}", device.description(), path.string()));
  return ceilings;
}

// Those in the machine file; measured if it has none of such a device.
Ceilings known_ceilings(const RooflineRequest& request, const ProfiledOperators& profile,
                        Terminal& terminal) {
  const std::filesystem::path path = machine_file(request);
  const std::string kind = profile.device.empty() ? "cpu" : profile.device;
  const Machine machine = kept_machine(request, terminal);
  const Ceilings* const kept = machine.find_like(kind, profile.hardware);
  if (kept)
    terminal.line(fmt::format("Ceilings of {}, measured {}, from {}", kept->hardware,
                              kept->measured_at, path.string()));
  Ceilings ceilings =
      kept ? *kept : measure_and_keep(request, *open_named(request, kind), terminal);
  if (!profile.hardware.empty() && ceilings.hardware != profile.hardware)
    terminal.line(fmt::format(
        "Note: the profile is of another, {}; measure that with ridge roofline", profile.hardware));
  return ceilings;
}

int draw_profile(const RooflineRequest& request, Terminal& terminal) {
  const std::filesystem::path directory = request.profile, file = directory / "operators.json";
  if (!std::filesystem::exists(file))
    throw IoError("{} has no operators.json: is it the --profile-dir of a run with --profile?",
                  request.profile);
  const ProfiledOperators profile =
      roofline_points_from_json(read_text_file(file, max_profile_bytes), file.string());
  const Ceilings ceilings = known_ceilings(request, profile, terminal);
  const int threads = request.threads > 0   ? static_cast<int>(request.threads)
                      : profile.threads > 0 ? profile.threads
                                            : ceilings.threads;
  const Roof roof = roof_of(with_vendor(ceilings, request), threads);
  terminal.line("");
  terminal.lines(roofline_text(profile.points, roof));
  const std::filesystem::path svg =
      request.svg.empty() ? directory / "roofline.svg" : std::filesystem::path(request.svg);
  write_text_file(svg, roofline_svg(profile.points, roof, "Roofline of " + request.profile));
  terminal.line(fmt::format("Wrote {}", svg.string()));
  return 0;
}

// By name, those that are to be measured.
std::vector<std::string> devices_of(const RooflineRequest& request) {
  const std::string device = request.device.empty() ? "auto" : canonical_device(request.device);
  if (device == "auto")
    return has_gpu() ? std::vector<std::string>{"cpu", std::string(gpu_name())}
                     : std::vector<std::string>{"cpu"};
  return {device};
}

int roofline(const RooflineRequest& request) {
  vendor_peaks(request);  // which may be refused
  if (!(request.seconds > 0 && request.seconds <= 3600))
    throw UsageError("--seconds is {}; it must be above 0 and at most 3600", request.seconds);
  check_range("threads", request.threads, 0, 4096);
  check_range("ranks", request.ranks, 1, 256);
  const std::vector<std::string> devices = devices_of(request);
  Terminal terminal;
  if (!request.profile.empty()) return draw_profile(request, terminal);
  if (!request.svg.empty())
    throw UsageError("--svg draws a profile: give --profile PROFILE_DIR with it");
  for (const std::string& name :
       devices)  // refuses more than there are GPUs for, before it measures
    gpu_of_rank(options_of_rank(request, name), static_cast<int>(request.ranks) - 1);
  for (const std::string& name : devices) {
    const std::unique_ptr<Device> device = open_named(request, name);
    const Ceilings ceilings = measure_and_keep(request, *device, terminal);
    terminal.line("");
    terminal.lines(ceilings_text(ceilings));
  }
  return 0;
}

}  // namespace

void add_roofline_command(Command program, Action& action) {
  const Command command =
      program.add_subcommand("roofline", "Measure ceilings, or draw a profile on them");
  const auto request = std::make_shared<RooflineRequest>();
  command.add_option("--profile", request->profile, "Draw the operators of this profile directory")
      .type_name("PROFILE_DIR");
  command
      .add_option("--svg", request->svg,
                  "Write the picture here (default: PROFILE_DIR/roofline.svg)")
      .type_name("FILE");
  command
      .add_option("--device", request->device,
                  "Measure auto (the CPU, and a GPU if there is one), cpu, cuda or hip")
      .type_name("DEVICE");
  command
      .add_option("--machine-file", request->machine_file,
                  "Keep the ceilings in this file (default: machine.json in the user's cache)")
      .type_name("FILE");
  add_value(command, "--peak-tflops", request->peak_tflops, "Note the vendor's peak, in TFLOP/s")
      .type_name("X");
  add_value(command, "--peak-bandwidth", request->peak_bandwidth, "Note the vendor's peak, in GB/s")
      .type_name("X");
  add_value(command, "--seconds", request->seconds, "Measure a device for about this long")
      .type_name("X")
      .default_text(fmt::format("{}", request->seconds));
  add_value(command, "--threads", request->threads,
            "Measure this many cores together; 0, the default: all, or those of the profile")
      .type_name("N");
  add_value(command, "--ranks", request->ranks,
            "Measure how fast so many ranks reach each other too, for ridge plan --ranks; on GPUs "
            "each has one of its own")
      .type_name("N");
  command.add_flag("--fresh", request->fresh, "Forget what was measured before");
  command.footer(
      R"(Without --profile, the ceilings are measured and kept, with the vendor's peaks if they are given: the
best of all measurements of the same hardware, because others who use it can only make it look
slower. With --profile, those of its device are used.

Examples:
  ridge roofline
  ridge roofline --device cuda
  ridge roofline --ranks 2
  ridge roofline --profile ./pytorch_profiles --peak-tflops 1.2)");
  command.callback([request, &action] { action = [request] { return roofline(*request); }; });
}

}  // namespace ridge
