#include "ridge/analyze/ceilings.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/cpu/peaks.h"

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
  for (const AccessPattern access :
       {AccessPattern::read, AccessPattern::copy, AccessPattern::triad})
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
    ComputeCeiling ceiling{std::string(kernel.instructions), product_kind_of(kernel.dtype)};
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
      if (ceiling.instructions == other.instructions && ceiling.precision == other.precision)
        raise(ceiling, other);
  for (BandwidthCeiling& ceiling : newer.bandwidth)
    for (const BandwidthCeiling& other : older.bandwidth)
      if (ceiling.level == other.level && ceiling.bytes == other.bytes) {
        raise(ceiling, other);
        for (BandwidthCeiling::Access& access : ceiling.accesses)
          for (const BandwidthCeiling::Access& o : other.accesses)
            if (access.name == o.name)
              access.bytes_per_second = std::max(access.bytes_per_second, o.bytes_per_second);
      }
  for (double Ceilings::*const cost : {&Ceilings::launch_seconds, &Ceilings::captured_seconds})
    if (older.*cost > 0 && newer.*cost > 0) newer.*cost = std::min(newer.*cost, older.*cost);
  for (const LinkCeiling& other : older.links) {
    const auto same = std::ranges::find(newer.links, other.ranks, &LinkCeiling::ranks);
    if (same == newer.links.end()) {
      newer.links.push_back(other);
      continue;
    }
    same->bytes_per_second = std::max(same->bytes_per_second, other.bytes_per_second);
    same->message_seconds = std::min(same->message_seconds, other.message_seconds);
  }
  std::ranges::sort(newer.links, {}, &LinkCeiling::ranks);
  const auto keep = [](std::optional<double>& now, const std::optional<double>& before) {
    if (!now) now = before;
  };
  keep(newer.vendor.flops_per_second, older.vendor.flops_per_second);
  keep(newer.vendor.bytes_per_second, older.vendor.bytes_per_second);
  return newer;
}

// Cores that together do hardly more than one of them were kept from it.
std::string Ceilings::doubts() const {
  constexpr double least_gain = 1.2;
  std::string text = note;
  for (const ComputeCeiling& c : compute) {
    if (threads == 1 || c.one_core == 0 || c.all_cores >= least_gain * c.one_core) continue;
    text += fmt::format(
        "{}{} threads together reached {:.2f} times what one did in {}: they share a core, or "
        "others used the machine; measure again when it is idle",
        text.empty() ? "" : "; ", threads, c.all_cores / c.one_core, name_of(c.precision));
    break;
  }
  return text;
}

double Roof::flops(ProductKind precision) const {
  double flops = 0;
  for (const Peak& peak : peaks)
    if (peak.precision == precision || peak.precision == ProductKind::f32)
      flops = std::max(flops, peak.flops);
  return flops;
}

ProductKind Roof::f32_products() const {
  using enum ProductKind;
  return this->tf32 ? ProductKind::tf32 : split_bf16 && flops(bf16x6) > flops(f32) ? bf16x6 : f32;
}

double Roof::fastest_flops() const {
  double flops = 0;
  for (const Peak& peak : peaks) flops = std::max(flops, peak.flops);
  return flops;
}

void Roof::raise(ProductKind precision, double flops) {
  auto peak = std::ranges::find(peaks, precision, &Peak::precision);
  if (peak == peaks.end()) peak = peaks.insert(peak, Peak{precision});
  peak->flops = std::max(peak->flops, flops);
}

const Roof::Level& Roof::level_of(std::uint64_t bytes) const {
  const auto level = std::ranges::find_if(
      levels, [&](const Level& l) { return l.capacity == 0 || bytes <= l.capacity; });
  return level == levels.end() ? levels.back() : *level;
}

Roof roof_of(const Ceilings& ceilings, int threads) {
  const auto on_threads = [&](const auto& ceiling) {
    const double several = std::min(ceiling.one_core * threads, ceiling.all_cores);
    return ceiling.one_core == 0         ? ceiling.all_cores
           : threads == 1                ? ceiling.one_core
           : threads >= ceilings.threads ? ceiling.all_cores
                                         : several;
  };
  Roof roof{.device = ceilings.device,
            .kind = ceilings.kind,
            .hardware = ceilings.hardware,
            .threads = threads,
            .links = ceilings.links,
            .captured_seconds = ceilings.captured_seconds,
            .vendor = ceilings.vendor,
            .doubts = ceilings.doubts()};
  if (ceilings.launch_seconds > 0) roof.launch_seconds = ceilings.launch_seconds;
  for (const ComputeCeiling& ceiling : ceilings.compute) {
    roof.raise(ceiling.precision, on_threads(ceiling));
    // Six products of parts take six times as long as one.
    if (ceiling.instructions == amx_bf16) roof.raise(ProductKind::bf16x6, on_threads(ceiling) / 6);
  }
  if (roof.kind == DeviceKind::gpu) {
    // Tensor cores multiply both types of 16 bits at one rate, and take two operands of 8 bits
    // where they take one of 16.
    const double narrow = roof.flops(ProductKind::bf16);
    roof.raise(ProductKind::f16, narrow);
    for (const ProductKind of_8_bits : {ProductKind::f8e4m3, ProductKind::s8})
      roof.raise(of_8_bits, 2 * narrow);
  }
  for (const BandwidthCeiling& ceiling : ceilings.bandwidth) {
    const int instances = (threads + ceiling.sharing - 1) / std::max(ceiling.sharing, 1);
    roof.levels.push_back({ceiling.level, ceiling.bytes * static_cast<std::uint64_t>(instances),
                           on_threads(ceiling)});
  }
  const auto is_positive = [](const Roof::Level& level) { return level.bytes_per_second > 0; };
  if (!(roof.flops(ProductKind::f32) > 0) || roof.levels.empty() ||
      !std::ranges::all_of(roof.levels, is_positive))
    throw FormatError("the machine's ceilings are incomplete: measure them with ridge roofline");
  // A farther level is no faster than a nearer one, whatever noise there was.
  for (std::size_t i = roof.levels.size(); i-- > 1;)
    roof.levels[i - 1].bytes_per_second =
        std::max(roof.levels[i - 1].bytes_per_second, roof.levels[i].bytes_per_second);
  return roof;
}

const LinkCeiling* Roof::link_of(std::int64_t ranks) const {
  const auto link = std::ranges::find(links, ranks, &LinkCeiling::ranks);
  return link == links.end() ? nullptr : &*link;
}

std::string ceilings_text(const Ceilings& ceilings) {
  const VendorPeaks& vendor = ceilings.vendor;
  const bool by_core = std::ranges::any_of(
      ceilings.compute, [](const ComputeCeiling& ceiling) { return ceiling.one_core > 0; });
  std::vector<TextColumn> columns{{"Ceiling", true}, {"Size"}};
  if (by_core) columns.push_back({"1 core"});
  columns.push_back({by_core ? fmt::format("{} cores", ceilings.threads) : "Rate"});
  std::vector<TextRow> rows;
  const auto add = [&](std::string name, std::string size, std::string one, std::string all) {
    rows.push_back({std::move(name), std::move(size)});
    if (by_core) rows.back().push_back(std::move(one));
    rows.back().push_back(std::move(all));
  };
  const auto flops = [](double value) {
    return value < 1e13 ? fmt::format("{:.1f} GFLOP/s", value / 1e9)
                        : fmt::format("{:.1f} TFLOP/s", value / 1e12);
  };
  const auto gbytes = [](double value) { return fmt::format("{:.1f} GB/s", value / 1e9); };
  const auto size_of_level = [](const BandwidthCeiling& ceiling) {
    return ceiling.bytes > 0 ? format_bytes(ceiling.bytes) : std::string();
  };
  for (const ComputeCeiling& c : ceilings.compute)
    add(fmt::format("{} {}", name_of(c.precision), c.instructions), "", flops(c.one_core),
        flops(c.all_cores));
  if (vendor.flops_per_second) add("peak, by the vendor", "", "", flops(*vendor.flops_per_second));
  rows.push_back({});
  for (const BandwidthCeiling& c : ceilings.bandwidth) {
    if (c.accesses.empty()) add(c.level, size_of_level(c), gbytes(c.one_core), gbytes(c.all_cores));
    for (const BandwidthCeiling::Access& access : c.accesses)
      add(fmt::format("{}, {}", c.level, access.name), size_of_level(c), "",
          gbytes(access.bytes_per_second));
  }
  if (vendor.bytes_per_second)
    add("memory, by the vendor", "", "", gbytes(*vendor.bytes_per_second));
  if (ceilings.launch_seconds > 0) {
    rows.push_back({});
    add("launch, one by one", "", "", format_duration(ceilings.launch_seconds));
    add("launch, captured", "", "", format_duration(ceilings.captured_seconds));
  }
  if (!ceilings.links.empty()) rows.push_back({});
  for (const LinkCeiling& link : ceilings.links) {
    add(fmt::format("{} ranks, each sends", link.ranks), "", "", gbytes(link.bytes_per_second));
    add(fmt::format("{} ranks, a message", link.ranks), "", "",
        format_duration(link.message_seconds));
  }
  const std::string doubts = ceilings.doubts();
  return text_table(columns, rows) + (doubts.empty() ? "" : fmt::format("Note: {}\n", doubts));
}

}  // namespace ridge
