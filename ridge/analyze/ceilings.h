#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/dtype.h"

namespace ridge {

// How fast a machine can compute, with one kind of instruction.
struct ComputeCeiling {
  std::string instructions;  // "AVX-512"
  DType dtype = DType::f32;
  double one_core = 0, all_cores = 0;  // FLOP/s
};

// How fast one level of its memory delivers, in bytes per second as the program counts them; the
// best of reading, copying and STREAM's triad.
struct BandwidthCeiling {
  std::string level;        // "L2", "memory"
  std::uint64_t bytes = 0;  // of one instance; of memory 0, no bound
  int sharing = 1;          // cores that share an instance
  double one_core = 0, all_cores = 0;
};

// The ceilings of one machine, and where and when they were measured.
struct Ceilings {
  std::string measured_at;  // ISO 8601, UTC
  std::string host, hardware;
  int threads = 1;                          // that make "all cores"
  std::vector<ComputeCeiling> compute;      // slowest first
  std::vector<BandwidthCeiling> bandwidth;  // nearest first; the last is memory
};

// What the vendor promises, of the whole machine.
struct VendorPeaks {
  std::optional<double> flops_per_second, bytes_per_second;
};

// Takes some seconds: `per_measurement` for each of some thirty measurements, and a little more
// where all cores gave far less than their number promises, as they do while others use them.
Ceilings measure_cpu_ceilings(int threads, std::chrono::milliseconds per_measurement);

// The better of two measurements of each ceiling of one machine, dated as the newer: others who use
// a machine can only make it look slower. `newer` alone if they are not of the same hardware and
// number of threads.
Ceilings best_of(Ceilings newer, const Ceilings& older);

// The ceilings over a run on some number of threads.
struct Roof {
  struct Level {
    std::string name;
    std::uint64_t capacity = 0;  // bytes that the threads' caches hold together; 0: no bound
    double bytes_per_second = 0;
    bool operator==(const Level&) const = default;
  };
  int threads = 1;
  double f32_flops = 0, bf16_flops = 0;  // per second
  std::vector<Level> levels;             // nearest first, at least one; the last has no bound
  VendorPeaks vendor;

  double flops(DType dtype) const { return dtype == DType::bf16 ? bf16_flops : f32_flops; }
  // The nearest level that holds a working set of so many bytes.
  const Level& level_of(std::uint64_t bytes) const;
  const Level& memory() const { return levels.back(); }
};

// With all threads of the machine, its measured ceilings. With fewer, as many times one core's,
// and never more than all. bf16 never counts as slower than f32, in which it can be computed.
// FormatError if a ceiling is missing.
Roof roof_of(const Ceilings& ceilings, int threads, const VendorPeaks& vendor = {});

// An aligned table for the terminal.
std::string ceilings_text(const Ceilings& ceilings, const VendorPeaks& vendor = {});

}  // namespace ridge
