#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/analyze/bottlenecks.h"
#include "ridge/profile/flops_report.h"
#include "ridge/profile/recording.h"

namespace ridge {

// Answers to the workshop's questions on a profile. Times are of one pass, in seconds.
struct ProfileAnswers {
  struct Slow {
    std::string name;
    double seconds = 0, share = 0;  // of the pass; of kernels, of the time of all of them
  };
  std::vector<Slow> slowest;       // five at most, the slowest first
  bool of_kernels = false;         // of a device that was traced; else of operators
  bool of_steps = false;           // of training: what is called a pass here is a step
  double pass_seconds = 0;         // all of a pass, as the table of operators has it
  double convolution_seconds = 0;  // inside convolutions and their gradients

  // For an asynchronous device: the host's time to launch a pass, and the time in which
  // a kernel ran.
  struct Overhead {
    double host_seconds = 0, kernel_seconds = 0;
    double ratio() const { return kernel_seconds > 0 ? host_seconds / kernel_seconds : 0; }
  };
  std::optional<Overhead> overhead;

  double convolution_share() const {
    return pass_seconds > 0 ? convolution_seconds / pass_seconds : 0;
  }
};

// `host` is as the recorder made it; on a CPU both are the same.
ProfileAnswers profile_answers(const Recording& host, const Recording& on_device);
std::string answers_text(const ProfileAnswers& answers);

// Answers to its questions on a report of FLOPs.
struct EfficiencyAnswers {
  double flops = 0, bytes = 0, seconds = 0;  // of one pass; bytes: each operand of each kernel once
  std::int64_t samples = 1;                  // in it
  bool of_steps = false;                     // as above
  ProductKind precision = ProductKind::f32;  // in which the peak is
  double peak_flops = 0, bandwidth = 0;      // of the device, per second; bandwidth of its memory
  struct Part {
    std::string name;  // of a module
    double seconds = 0, time_share = 0, flops_share = 0;
  };
  std::vector<Part> parts;                // direct children of the network, slowest first
  std::array<double, 3> bound_seconds{};  // by Bound
  double floor_seconds = 0;               // if every kernel reached its ceiling
  std::vector<std::string> notes;

  double flops_per_second() const { return seconds > 0 ? flops / seconds : 0; }
  double efficiency() const { return peak_flops > 0 ? flops_per_second() / peak_flops : 0; }
  double intensity() const { return bytes > 0 ? flops / bytes : 0; }  // FLOPs a byte
  double ridge_point() const { return bandwidth > 0 ? peak_flops / bandwidth : 0; }
};

// `report` is of the recording, whose one step or more each ran `samples`; `precision` is what its
// products compute in. `pass_seconds` is what a pass usually takes: the median of those that were
// timed, for one that was recorded says little.
EfficiencyAnswers efficiency_answers(const Recording& recording, const FlopsReport& report,
                                     const Roof& roof, ProductKind precision, std::int64_t samples,
                                     double pass_seconds);
std::string answers_text(const EfficiencyAnswers& answers);

}  // namespace ridge
