#include "ridge/analyze/ceilings.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/cpu/peaks.h"
#include "ridge/profile/text_table.h"

namespace ridge {
namespace {

using std::chrono::milliseconds;

// Measures again while all cores are far below what their number promises, a few times at most.
// `expected` is what they would give without anyone else on them; 0 if that is not known.
template <class F>
double repeated(double expected, const F& measure) {
  double best = 0;
  for (int i = 0; i < 6; ++i) {
    best = std::max(best, measure());
    if (best >= 0.9 * expected) break;
  }
  return best;
}

double best_bandwidth(std::size_t bytes_per_thread, ThreadPool& pool, milliseconds duration) {
  double best = 0;
  for (const Access access : {Access::read, Access::copy, Access::triad})
    best = std::max(best, measure_bandwidth(access, bytes_per_thread, pool, duration));
  return best;
}

// Half of a cache, so that what else a core touches leaves the arrays in it; of a shared one, half
// of each core's part, but more than the nearer cache holds.
std::size_t working_set(const CpuCache& cache, std::size_t nearer, int threads) {
  const auto users = static_cast<std::size_t>(std::min(cache.sharing, threads));
  return std::max(cache.bytes / users / 2, nearer + nearer / 2);
}

// Far more than the last cache holds.
std::size_t memory_set(std::size_t last_cache, int threads) {
  constexpr std::size_t least = std::size_t{64} << 20, most = std::size_t{2} << 30;
  return std::clamp(4 * last_cache, least, most) / static_cast<std::size_t>(threads);
}

BandwidthCeiling measure_level(const std::string& name, const CpuCache& cache, std::size_t one_set,
                               std::size_t all_set, ThreadPool& one, ThreadPool& all,
                               milliseconds duration) {
  BandwidthCeiling ceiling{.level = name, .bytes = cache.bytes, .sharing = cache.sharing};
  ceiling.one_core = best_bandwidth(one_set, one, duration);
  const bool of_each_core = cache.bytes > 0 && cache.sharing == 1;
  const double expected = of_each_core ? ceiling.one_core * all.size() : 0;
  ceiling.all_cores =
      all.size() == 1 ? ceiling.one_core
                      : repeated(expected, [&] { return best_bandwidth(all_set, all, duration); });
  return ceiling;
}

}  // namespace

Ceilings measure_cpu_ceilings(int threads, milliseconds per_measurement) {
  ThreadPool one(1), all(threads);
  Ceilings ceilings{.threads = threads};
  for (const FlopsKernel& kernel : flops_kernels()) {
    ComputeCeiling ceiling{std::string(kernel.instructions), kernel.dtype};
    ceiling.one_core = measure_flops(kernel, one, per_measurement);
    ceiling.all_cores = threads == 1 ? ceiling.one_core : repeated(ceiling.one_core * threads, [&] {
      return measure_flops(kernel, all, per_measurement);
    });
    ceilings.compute.push_back(ceiling);
  }
  std::size_t nearer = 0;
  for (const CpuCache& cache : cpu_caches()) {
    ceilings.bandwidth.push_back(
        measure_level(fmt::format("L{}", cache.level), cache, working_set(cache, nearer, 1),
                      working_set(cache, nearer, threads), one, all, per_measurement));
    nearer = cache.bytes;
  }
  ceilings.bandwidth.push_back(measure_level(
      "memory", {}, memory_set(nearer, 1), memory_set(nearer, threads), one, all, per_measurement));
  return ceilings;
}

Ceilings best_of(Ceilings newer, const Ceilings& older) {
  if (newer.hardware != older.hardware || newer.threads != older.threads) return newer;
  const auto raise = [](auto& ceiling, const auto& other) {
    ceiling.one_core = std::max(ceiling.one_core, other.one_core);
    ceiling.all_cores = std::max(ceiling.all_cores, other.all_cores);
  };
  for (ComputeCeiling& ceiling : newer.compute)
    for (const ComputeCeiling& other : older.compute)
      if (ceiling.instructions == other.instructions && ceiling.dtype == other.dtype)
        raise(ceiling, other);
  for (BandwidthCeiling& ceiling : newer.bandwidth)
    for (const BandwidthCeiling& other : older.bandwidth)
      if (ceiling.level == other.level && ceiling.bytes == other.bytes) raise(ceiling, other);
  return newer;
}

const Roof::Level& Roof::level_of(std::uint64_t bytes) const {
  const auto level = std::ranges::find_if(
      levels, [&](const Level& l) { return l.capacity == 0 || bytes <= l.capacity; });
  return level == levels.end() ? levels.back() : *level;
}

Roof roof_of(const Ceilings& ceilings, int threads, const VendorPeaks& vendor) {
  const auto on_threads = [&](const auto& ceiling) {
    const double several = std::min(ceiling.one_core * threads, ceiling.all_cores);
    return threads == 1                  ? ceiling.one_core
           : threads >= ceilings.threads ? ceiling.all_cores
                                         : several;
  };
  Roof roof{.threads = threads, .vendor = vendor};
  for (const ComputeCeiling& ceiling : ceilings.compute) {
    double& peak = ceiling.dtype == DType::bf16 ? roof.bf16_flops : roof.f32_flops;
    peak = std::max(peak, on_threads(ceiling));
  }
  roof.bf16_flops = std::max(roof.bf16_flops, roof.f32_flops);
  for (const BandwidthCeiling& ceiling : ceilings.bandwidth) {
    const int instances = (threads + ceiling.sharing - 1) / std::max(ceiling.sharing, 1);
    roof.levels.push_back({ceiling.level, ceiling.bytes * static_cast<std::uint64_t>(instances),
                           on_threads(ceiling)});
  }
  const auto is_positive = [](const Roof::Level& level) { return level.bytes_per_second > 0; };
  if (!(roof.f32_flops > 0) || roof.levels.empty() ||
      !std::ranges::all_of(roof.levels, is_positive))
    throw FormatError("the machine's ceilings are incomplete: measure them with ridge roofline");
  // A farther level is no faster than a nearer one, whatever noise there was.
  for (std::size_t i = roof.levels.size(); i-- > 1;)
    roof.levels[i - 1].bytes_per_second =
        std::max(roof.levels[i - 1].bytes_per_second, roof.levels[i].bytes_per_second);
  return roof;
}

std::string ceilings_text(const Ceilings& ceilings, const VendorPeaks& vendor) {
  const std::string all = fmt::format("{} cores", ceilings.threads);
  const TextColumn columns[] = {{"Ceiling", true}, {"Size"}, {"1 core"}, {all}};
  std::vector<TextRow> rows;
  const auto gflops = [](double value) { return fmt::format("{:.1f} GFLOP/s", value / 1e9); };
  const auto gbytes = [](double value) { return fmt::format("{:.1f} GB/s", value / 1e9); };
  for (const ComputeCeiling& c : ceilings.compute)
    rows.push_back({fmt::format("{} {}", name_of(c.dtype), c.instructions), "", gflops(c.one_core),
                    gflops(c.all_cores)});
  if (vendor.flops_per_second)
    rows.push_back({"peak, by the vendor", "", "", gflops(*vendor.flops_per_second)});
  rows.push_back({});
  for (const BandwidthCeiling& c : ceilings.bandwidth)
    rows.push_back({c.level, c.bytes > 0 ? format_bytes(c.bytes) : "", gbytes(c.one_core),
                    gbytes(c.all_cores)});
  if (vendor.bytes_per_second)
    rows.push_back({"memory, by the vendor", "", "", gbytes(*vendor.bytes_per_second)});
  return text_table(columns, rows);
}

}  // namespace ridge
