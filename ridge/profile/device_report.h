#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/profile/recording.h"

namespace ridge {

// What a device did in the recorded steps, as its tracing saw it. Times are of the steps together;
// where activities overlap, as kernels on several streams do, their time counts once.
struct DeviceReport {
  std::int64_t steps = 0;
  std::int64_t step_ns = 0;    // of the steps, on the device's clock
  std::int64_t busy_ns = 0;    // in which anything ran
  std::int64_t kernel_ns = 0;  // in which a kernel ran
  std::int64_t kernels = 0, copies = 0, fills = 0, calls = 0, replays = 0;
  std::uint64_t bytes_copied = 0;
  std::int64_t unattributed_ns = 0;  // of the busy time, what belongs to no node
  std::int64_t overhead_ns = 0;      // that tracing itself took on the host
  std::uint64_t dropped = 0, out_of_order = 0;

  // Stretches of the steps in which nothing ran, by what came before them.
  struct Gap {
    std::int64_t begin_ns, end_ns;
    NodeId after = no_node, before = no_node;  // the nodes around it; or none
  };
  std::vector<Gap> longest_gaps;  // the longest first

  // A kernel, by its name: time, launch shape and theoretical occupancy of its longest run.
  struct Kernel {
    std::string name;
    std::string op;  // the operator that launches it most
    std::int64_t calls = 0, total_ns = 0;
    Activity longest;
    double occupancy = 0;  // 0 if unknown
  };
  std::vector<Kernel> kernels_by_time;

  double idle_fraction() const;          // of the steps' time, with no kernel running
  double unattributed_fraction() const;  // of the busy time
};

// Reports a recording on its device's own clock (device_time()); empty if it was not traced.
std::optional<DeviceReport> device_report(const Recording& recording);

// Whether the processors' clock fell while the card worked, from what a sampler read.
struct ClockReport {
  std::int64_t samples = 0;  // under load
  int first_mhz = 0, last_mhz = 0, min_mhz = 0, max_mhz = 0;
  std::uint64_t reasons = 0;  // of CardState::Throttle, under load; without idle
  bool dropped() const;       // by more than 3 % of the maximum
};
ClockReport clock_report(std::span<const CardState> samples);
// What lowered it: "its power limit, heat".
std::string clock_reasons(const ClockReport& report);
// "While it ran, the card was 93 % busy, ..": means of what a sampler read; empty without samples.
std::string card_use_text(std::span<const CardState> samples);
// "The GPU's clock dropped ..." with the reason; empty if it did not.
std::string clock_warning(const ClockReport& report);

std::string device_report_text(const Recording& recording, const DeviceReport& report);
std::string device_report_json(const Recording& recording, const DeviceReport& report);

}  // namespace ridge
