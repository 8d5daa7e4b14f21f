#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ridge/profile/recording.h"

namespace ridge {

// Answers to the workshop's questions on the timeline of a profile: single launches, the time
// between them, and copies. Times are of one pass, in seconds, unless a member says otherwise.
struct KernelAnswers {
  std::int64_t passes = 0;
  bool of_steps = false;  // of training: what is called a pass here is a step
  bool on_gpu = false;    // traced on a device of its own
  double pass_seconds = 0;

  // The nodes that take longest, five at most: what one launch of it takes over the passes.
  struct Launch {
    std::string name;  // "layer1.0.conv1: conv2d"
    double least = 0, mean = 0, most = 0;
    double share = 0;                                               // of the pass
    double spread() const { return least > 0 ? most / least : 0; }  // 1: all take the same
  };
  std::vector<Launch> longest;
  // The node whose launches differ most, of those that take a hundredth of the pass or more; and
  // the median spread of these nodes. None of a single pass.
  std::optional<Launch> most_varied;
  double median_spread = 0;

  // The kernel of most time, over all its launches, whose work differs from node to node; on a CPU
  // the operator.
  struct Kernel {
    std::string name;
    std::int64_t calls = 0;                             // in a pass
    double least = 0, mean = 0, most = 0, std_dev = 0;  // of a launch
  };
  Kernel busiest;

  // Stretches within a pass in which nothing ran for longer than the workshop's 10 microseconds.
  static constexpr double long_gap = 10e-6;
  double gaps = 0;         // in a pass
  double gap_seconds = 0;  // of all of them
  double longest_gap = 0;
  std::string longest_gap_after, longest_gap_before;  // the nodes around it

  // Copies that the device made: between it and the host, or within it.
  double copies = 0;  // in a pass
  double copied_bytes = 0, copy_seconds = 0;

  double share(double seconds) const { return pass_seconds > 0 ? seconds / pass_seconds : 0; }
};

// Of a recording on its device's clock, with a step at least.
KernelAnswers kernel_answers(const Recording& on_device);

// The questions about gaps, copies and the spread of launches, with their answers.
std::string answers_text(const KernelAnswers& answers);
// What a trace of the recording shows, in some lines.
std::string trace_text(const KernelAnswers& answers);
nlohmann::ordered_json json_of(const KernelAnswers& answers);

}  // namespace ridge
