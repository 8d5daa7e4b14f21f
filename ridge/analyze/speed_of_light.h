#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/analyze/roofline.h"
#include "ridge/device/occupancy.h"
#include "ridge/profile/counted_nodes.h"

namespace ridge {

// How busy the units of a device are while an operator runs, each as a part of what it could do in
// that time: what Nsight Compute and rocprof-compute call the speed of light.

// The units are pipes that compute ("FMA", "tensor", "ALU", "LSU"; of a CPU also kinds of products
// that have a peak of their own, as "bf16") and levels of memory ("L1", "L2", "memory").
struct UnitUse {
  double part = 0;       // of its peak, 0 to 1
  bool counted = false;  // in hardware; else it follows from FLOPs, bytes, ceilings and the time
};

// The bytes that pass between a level of memory and the next nearer one, in a step. Unless they
// were counted, a node moves each operand once, through the nearest level that holds all of them
// and those nearer than it.
struct LevelTraffic {
  double bytes = 0;
  bool counted = false;
};

struct LightRow {
  std::string name;    // an operator's, or that of a family of kernels
  double seconds = 0;  // of a step
  double flops = 0;    // of a step, without what a causal mask makes needless
  double bytes = 0;    // of a step, each operand once
  std::map<std::string, UnitUse> units = {};
  std::map<std::string, LevelTraffic> levels = {};
  double occupancy = 0;  // warps that were there over those that fit, as counted; 0: not counted
  // What holds it back: a unit that is busy for 60 % of the time or more; "launches" where a call
  // takes less than a launch; else "latency", since no unit is busy.
  std::string limit = {};

  // The busiest unit; "" if there is none.
  std::string busiest() const;
};

// A kernel as it was launched when it took longest, and how many of its blocks fit.
struct KernelFit {
  std::string name, op;
  std::int64_t calls = 0;
  double seconds = 0;  // of a step
  Activity launch = {};
  Occupancy occupancy = {};
  std::string why = {};  // explanation_of() it
};

struct SpeedOfLight {
  Roof roof;
  double step_seconds = 0;
  std::vector<std::string> units = {};  // pipes, then levels from the nearest on
  LightRow all = {};
  std::vector<LightRow> operators = {};  // most time first
  std::vector<LightRow> kernels = {};    // by truncated_kernel_name(), where a device was traced
  std::vector<KernelFit> fits = {};      // most time first
  std::string fault = {};                // why nothing was counted; empty if something was

  double share(const LightRow& row) const {
    return step_seconds > 0 ? row.seconds / step_seconds : 0;
  }
  bool counts() const;  // whether any use was counted
};

// `report` is of the same recording, whose times are the device's. `vendor` is the CPU's, as
// this_cpu() names it: AMD's cache events are the second cache's, Intel's the last one's.
SpeedOfLight speed_of_light(const Recording& recording, const BottleneckReport& report,
                            const CountedNodes& counted, std::string_view vendor,
                            std::string fault = {});

// The same of what a run recorded, on the processor that this is.
SpeedOfLight speed_of_light(const StepRecorder& recorder, const BottleneckReport& report);

// speed_of_light.json of a profile, and back. FormatError, with `source`, for another text.
std::string speed_of_light_json(const SpeedOfLight& light);
SpeedOfLight speed_of_light_from_json(std::string_view text, const std::string& source);

// The first `top` operators, families and kernels, and the picture of all operators' traffic.
std::string speed_of_light_text(const SpeedOfLight& light, std::size_t top = 10);
// The levels of memory below each other, with what passes between them in a step.
std::string memory_levels_text(const SpeedOfLight& light, const LightRow& row);
// Two runs side by side, by the names of operators, most time first.
std::string compared_light_text(const SpeedOfLight& before, const SpeedOfLight& after,
                                std::size_t top = 10);
std::string compared_light_json(const SpeedOfLight& before, const SpeedOfLight& after);

// The first `top` operators once for each level, at its FLOPs per byte of that level's traffic:
// "matmul, L2".
std::vector<RooflinePoint> points_by_level(const SpeedOfLight& light, std::size_t top);

}  // namespace ridge
