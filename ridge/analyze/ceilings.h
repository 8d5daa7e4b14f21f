#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/product_kind.h"
#include "ridge/device/device.h"

namespace ridge {

// How fast a device can compute, with one kind of instruction.
struct ComputeCeiling {
  std::string instructions;  // "AVX-512"
  ProductKind precision = ProductKind::f32;
  double one_core = 0, all_cores = 0;  // FLOP/s; one core of a GPU is not measured, and 0
};

// How fast one level of its memory delivers, in bytes per second as the program counts them; the
// best of its accesses.
struct BandwidthCeiling {
  // The rate of all cores for one kind of access: "read", "copy".
  struct Access {
    std::string name;
    double bytes_per_second = 0;
  };
  std::string level;        // "L2", "memory"
  std::uint64_t bytes = 0;  // of one instance; of memory 0, no bound
  int sharing = 1;          // cores that share an instance
  double one_core = 0, all_cores = 0;
  std::vector<Access> accesses;  // of a GPU; of a CPU they are not kept apart
};

// How fast ranks on devices of one kind reach each other, while all of them do at once.
struct LinkCeiling {
  int ranks = 2;
  double bytes_per_second = 0;  // that a rank sends, while it receives as much
  double message_seconds = 0;   // a collective of next to nothing
};

// What the vendor promises, of the whole machine.
struct VendorPeaks {
  std::optional<double> flops_per_second, bytes_per_second;
};

// The ceilings of one device, and where and when they were measured.
struct Ceilings {
  std::string measured_at;  // ISO 8601, UTC
  std::string host;
  std::string device = "cpu";               // as Device::name() says it
  DeviceKind kind = DeviceKind::cpu;        // of that device
  std::string hardware;                     // as Device::hardware() says it
  int threads = 1;                          // that make "all cores"
  std::vector<ComputeCeiling> compute;      // slowest first
  std::vector<BandwidthCeiling> bandwidth;  // nearest first; the last is memory
  std::vector<LinkCeiling> links;           // by number of ranks, fewest first
  // Launch intervals of an asynchronous device in seconds: between launches by the host, one by
  // one, and from one kernel to the next of a captured step. 0 if not measured.
  double launch_seconds = 0, captured_seconds = 0;
  std::string note;  // what disturbed the measurement; empty if nothing did
  VendorPeaks vendor;

  // What the measurement says of all cores, and what disturbed it, in words; empty if nothing did.
  std::string doubts() const;
};

// Takes some seconds: `per_measurement` for each of some thirty measurements, and a little more
// where all cores gave far less than their number promises, as they do while others use them.
Ceilings measure_cpu_ceilings(int threads, std::chrono::milliseconds per_measurement);

// Measures a device with probes (Device::probe()), by its own clock: its memory and last cache, its
// vector units, products of large matrices of random numbers in all precisions, one by one and
// without a pause, and launches. Takes `per_measurement` for each of some thirty measurements, and
// its products' tuning.
Ceilings measure_device_ceilings(Device& device, std::chrono::milliseconds per_measurement);

// The one of the two above that serves `device`.
Ceilings measure_ceilings(Device& device, std::chrono::milliseconds per_measurement);

// Measures what connects this device to those of the other ranks that it has joined, by sums over
// all of them: a large one and one of a single element, each for the duration. All ranks call it.
LinkCeiling measure_link(Device& device, std::chrono::milliseconds per_measurement);

// The better of two measurements of each ceiling of one device, dated as the newer: others who use
// a machine can only make it look slower. `newer` alone if they are not of the same hardware and
// number of threads. What the vendor promises is the newer's, if it has that. Links are compared by
// their number of ranks.
Ceilings best_of(Ceilings newer, const Ceilings& older);

// A launch on a CPU hands a loop to other threads and back: some microseconds by itself.
inline constexpr double cpu_launch_seconds = 5e-6;

// The ceilings over a run on some number of threads.
struct Roof {
  struct Peak {
    ProductKind precision = ProductKind::f32;
    double flops = 0;  // per second
  };
  struct Level {
    std::string name;
    std::uint64_t capacity = 0;  // bytes that the threads' caches hold together; 0: no bound
    double bytes_per_second = 0;
    bool operator==(const Level&) const = default;
  };
  std::string device = "cpu";
  DeviceKind kind = DeviceKind::cpu;
  std::string hardware;
  int threads = 1;
  std::vector<Peak> peaks;    // one of f32 at least
  std::vector<Level> levels;  // nearest first, at least one; the last has no bound
  std::vector<LinkCeiling> links;
  // From one launch to the next, and from one kernel to the next where none waits for a launch.
  double launch_seconds = cpu_launch_seconds, captured_seconds = 0;
  bool tf32 = false;        // the run's products of f32 operands are in tf32
  bool split_bf16 = false;  // or in split bf16, where the device has such kernels
  VendorPeaks vendor;
  std::string doubts;  // Ceilings::doubts()

  ProductKind f32_products() const;  // of products of f32 operands

  // No precision is slower than f32, in which it can be computed.
  double flops(ProductKind precision) const;
  double fastest_flops() const;
  void raise(ProductKind precision, double flops);  // to at least so many
  // The nearest level that holds a working set of so many bytes.
  const Level& level_of(std::uint64_t bytes) const;
  const Level& memory() const { return levels.back(); }
  // The link of so many ranks; null if it was not measured.
  const LinkCeiling* link_of(std::int64_t ranks) const;
};

// With all threads of the machine, its measured ceilings. With fewer, as many times one core's,
// and never more than all. FormatError if a ceiling is missing.
Roof roof_of(const Ceilings& ceilings, int threads);

// An aligned table for the terminal.
std::string ceilings_text(const Ceilings& ceilings);

}  // namespace ridge
