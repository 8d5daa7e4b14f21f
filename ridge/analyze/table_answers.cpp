#include "ridge/analyze/table_answers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <vector>

#include "ridge/base/lines.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

constexpr double in_proportion = 0.9;  // of the growth of the batch
constexpr std::size_t kernel_width = 50;
constexpr double worth_naming = 0.01;  // of the memory that changed

using Results = std::vector<const TimedVariant*>;

std::string whole_percent(double share) { return fmt::format("{:.0f} %", 100 * share); }
std::string in_milliseconds(double seconds) { return fmt::format("{:.1f} ms", 1e3 * seconds); }
double rate(const TimedVariant* result) { return result->samples_per_second(); }
std::int64_t batch(const TimedVariant* result) { return result->variant.options.batch_size; }

Results measured(std::span<const TimedVariant> results) {
  Results all;
  for (const TimedVariant& result : results)
    if (result.measured()) all.push_back(&result);
  return all;
}

Results by_batch(std::span<const TimedVariant> results) {
  Results all = measured(results);
  std::ranges::stable_sort(all, {}, batch);
  return all;
}

const TimedVariant* sweet_spot_of(const Results& sorted) {
  if (sorted.empty()) return nullptr;
  const double best = rate(*std::ranges::max_element(sorted, {}, rate));
  return *std::ranges::find_if(
      sorted, [&](const TimedVariant* result) { return rate(result) >= sweet_spot_share * best; });
}

const TimedVariant* largest_of(const Results& sorted, double limit) {
  const TimedVariant* found = nullptr;
  for (const TimedVariant* result : sorted)
    if (result->median_seconds() <= limit) found = result;
  return found;
}

// Of a limit on the time of a batch.
void add_latency(Lines& line, const Results& sorted, double limit) {
  const TimedVariant* const found = largest_of(sorted, limit);
  const auto above = std::ranges::find_if(
      sorted, [&](const TimedVariant* r) { return r->median_seconds() > limit; });
  if (!found) {
    line("Within {} there is no batch: the smallest, {}, takes {}.", in_milliseconds(limit),
         batch(sorted.front()), in_milliseconds(sorted.front()->median_seconds()));
    return;
  }
  const std::vector<double> seconds = found->seconds();
  const double slowest = *std::ranges::max_element(seconds);
  std::string text = fmt::format(
      "Largest batch within {}: {}, with {:.1f} samples/s; its median is {}, its slowest of {} "
      "{}{}.",
      in_milliseconds(limit), batch(found), rate(found), in_milliseconds(found->median_seconds()),
      seconds.size(), in_milliseconds(slowest), slowest > limit ? ", beyond the limit" : "");
  if (above == sorted.end() || batch(*above) < batch(found)) {
    line("{} No larger one was measured that takes longer.", text);
    return;
  }
  text += fmt::format(" {} takes {}", batch(*above), in_milliseconds((*above)->median_seconds()));
  const double from = found->median_seconds(), to = (*above)->median_seconds();
  const double between = std::floor(real(batch(found)) + (limit - from) / (to - from) *
                                                             real(batch(*above) - batch(found)));
  if (between > real(batch(found)))
    text += fmt::format("; by the line between the two, {:.0f} would just do", between);
  line("{}.", text);
}

// "24 kernels in place of 70, 149.9 MB moved in place of 327.5 MB"
std::string difference_of_graphs(const TimedVariant& first, const TimedVariant& result) {
  return fmt::format("{} kernels in place of {}, {} moved in place of {}", result.kernels,
                     first.kernels, format_megabytes(real(result.work.bytes())),
                     format_megabytes(real(first.work.bytes())));
}

bool is_clear(const Ratio& speedup) {
  return speedup.interval && (speedup.interval->low > 1 || speedup.interval->high < 1);
}

std::string_view largest_part(const LeastTime& time) {
  if (time.computing >= std::max(time.moving, time.starting)) return "computing";
  return time.moving >= time.starting ? "moving bytes" : "launches";
}

std::string name(const TimedVariant& result) {
  return result.variant.name.empty() ? result.variant.options.network : result.variant.name;
}

// By how much each use of memory fell, the most first: "intermediates 102.8 MB less".
std::string memory_split(const TimedVariant& first, const TimedVariant& result) {
  constexpr TensorBytes every{1, 1, 1, 1, 1, 1, 1};  // for the names of all
  std::vector<std::pair<double, std::string>> less;
  for (const auto& [use, one] : every.parts())
    less.emplace_back(
        real(bytes_named(first.at_peak, use)) - real(bytes_named(result.at_peak, use)), use);
  std::ranges::stable_sort(less, std::greater{});
  const double all = real(first.at_peak.total()) - real(result.at_peak.total());
  std::string text;
  for (const auto& [bytes, use] : less)
    if (std::abs(bytes) > worth_naming * std::abs(all) && std::abs(bytes) > 0)
      text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", use,
                          format_megabytes(std::abs(bytes)), bytes > 0 ? "less" : "more");
  return text;
}

}  // namespace

std::optional<double> steps_to_pay(const TimedVariant& first, const TimedVariant& compiled) {
  if (!first.measured() || !compiled.measured() || &first == &compiled) return std::nullopt;
  const double saved = first.median_seconds() - compiled.median_seconds();
  const Ratio speedup = speedup_over(first, compiled);
  if (saved <= 0 || (speedup.interval && speedup.interval->low <= 1)) return std::nullopt;
  return std::max(0.0, compiled.compile_seconds - first.compile_seconds) / saved;
}

std::string batches_text(double batches) {
  const auto whole = static_cast<std::int64_t>(std::ceil(batches));
  return whole == 1 ? "1 batch" : fmt::format("{} batches", format_count(whole));
}

std::size_t bytes_named(const TensorBytes& bytes, std::string_view name) {
  for (const auto& [use, count] : bytes.parts())
    if (use == name) return count;
  return 0;
}

std::string batch_size_answers(std::span<const TimedVariant> results, const TableTerms& terms) {
  const Results sorted = by_batch(results);
  if (sorted.empty()) return "";
  Lines line;
  const TimedVariant &small = *sorted.front(), &large = *sorted.back();
  if (sorted.size() > 1 && batch(&small) < batch(&large)) {
    const double times = real(batch(&large)) / real(batch(&small));
    const double growth = rate(&large) / rate(&small);
    line(
        "From a batch of {} to one of {}, {:.4g} times as large, samples/s become {:.2f} times as "
        "many: {}in proportion.",
        batch(&small), batch(&large), times, growth, growth < in_proportion * times ? "not " : "");
    const TimedVariant* const best = *std::ranges::max_element(sorted, {}, rate);
    const TimedVariant* const spot = sweet_spot_of(sorted);
    line("Sweet spot: a batch of {}, the smallest with {} of the most samples/s, {:.1f} at {}.{}",
         batch(spot), whole_percent(sweet_spot_share), rate(best), batch(best),
         spot == sorted.back() ? " It is the largest measured: still larger ones may do better."
                               : "");
    if (large.peak_flops > 0)
      line("Of the peak, {} is reached with {} and {} with {}.", whole_percent(small.efficiency()),
           batch(&small), whole_percent(large.efficiency()), batch(&large));
  }
  if (terms.latency_limit) add_latency(line, sorted, *terms.latency_limit);
  return line.text;
}

std::string mode_answers(std::span<const TimedVariant> results) {
  const Results all = measured(results);
  if (all.size() < 2 || all.front() != &results.front()) return "";
  const TimedVariant& first = results.front();
  const TimedVariant& best = **std::ranges::min_element(
      all.begin() + 1, all.end(), {}, [](const TimedVariant* r) { return r->median_seconds(); });
  const Ratio speedup = speedup_over(first, best);
  Lines line;
  if (speedup.value > 1 && is_clear(speedup)) {
    line("Fastest: {}, {} as fast as {}: {}.", name(best), speedup_text(speedup), name(first),
         difference_of_graphs(first, best));
  } else {
    line("No mode is clearly faster than {}. The fastest, {}: {}.", name(first), name(best),
         difference_of_graphs(first, best));
  }
  if (first.at_best && best.at_best && first.at_best->total() > 0) {
    const LeastTime &before = *first.at_best, &after = *best.at_best;
    line(
        "At this machine's ceilings a pass takes {} under {}, {} of it {}, and {} under {}: {:.2f} "
        "times as fast. {} of the first is computing, which no mode takes away.",
        in_milliseconds(before.total()), name(first),
        whole_percent(std::max({before.computing, before.moving, before.starting}) /
                      before.total()),
        largest_part(before), in_milliseconds(after.total()), name(best),
        before.total() / after.total(), whole_percent(before.computing / before.total()));
  }
  if (const auto batches = steps_to_pay(first, best))
    line("Compiling for {} is paid back after {} of {}.", name(best), batches_text(*batches),
         counted(batch(&first), "sample"));
  return line.text;
}

std::string precision_answers(std::span<const TimedVariant> results) {
  const TimedVariant& first = results.front();
  if (!first.measured()) return "";
  Lines line;
  for (const TimedVariant& result : results.subspan(1)) {
    if (!result.measured()) continue;
    const double less = real(first.at_peak.total()) - real(result.at_peak.total());
    const std::string split = memory_split(first, result);
    if (!split.empty())
      line("{} holds {} {} at the peak: {}.", upper_case(name(result)),
           format_megabytes(std::abs(less)), less >= 0 ? "less" : "more", split);
  }
  std::string slowest;
  for (const TimedVariant* result : measured(results))
    if (result->pass && !result->pass->slowest.empty()) {
      const ProfileAnswers::Slow& slow = result->pass->slowest.front();
      slowest +=
          fmt::format("{}{} {}, {} ({})", slowest.empty() ? "" : "; ", upper_case(name(*result)),
                      shortened(printable(slow.name), kernel_width), in_milliseconds(slow.seconds),
                      whole_percent(slow.share));
    }
  if (!slowest.empty()) line("Slowest kernel of a pass: {}.", slowest);
  return line.text;
}

std::string combination_answers(std::span<const TimedVariant> results, const TableTerms& terms) {
  Results all = measured(results);
  if (terms.latency_limit)
    std::erase_if(
        all, [&](const TimedVariant* r) { return r->median_seconds() > *terms.latency_limit; });
  Lines line;
  if (all.empty()) {
    if (terms.latency_limit)
      line("Nothing takes {} or less for a batch.", in_milliseconds(*terms.latency_limit));
    return line.text;
  }
  std::vector<std::string> networks;
  for (const TimedVariant& result : results)
    if (const std::string& network = result.variant.options.network;
        std::ranges::find(networks, network) == networks.end())
      networks.push_back(network);
  const std::string within =
      terms.latency_limit ? fmt::format(" within {} a batch", in_milliseconds(*terms.latency_limit))
                          : "";
  struct Gain {
    std::string network;
    double speedup;
    const TimedVariant *from, *to;
  };
  std::vector<Gain> gains;
  std::vector<std::string> without_gain;
  for (const std::string& network : networks) {
    Results of;
    std::ranges::copy_if(all, std::back_inserter(of), [&](const TimedVariant* r) {
      return r->variant.options.network == network;
    });
    if (of.empty()) continue;
    const TimedVariant* const best = *std::ranges::max_element(of, {}, rate);
    const TimedVariant& first = baseline_of(results, *best);
    std::string text =
        fmt::format("Most samples/s of {}{}: {}, {:.1f}", network, within, name(*best), rate(best));
    if (best != &first && first.measured()) {
      const Ratio speedup = speedup_over(first, *best);
      text += fmt::format(", {} as fast as {}", speedup_text(speedup), name(first));
      gains.push_back({network, speedup.value, &first, best});
    } else if (best == &first) {
      without_gain.push_back(network);
    }
    if (best->peak_flops > 0)
      text += fmt::format("; {} of the peak", whole_percent(best->efficiency()));
    line("{}.", text);
  }
  if (!gains.empty() && gains.size() + without_gain.size() > 1) {
    const auto tell = [&](const Gain& gain, std::string_view word) {
      line("{} gains {}, {:.2f} times: {}, {:.1f} FLOPs for each byte before.", gain.network, word,
           gain.speedup, difference_of_graphs(*gain.from, *gain.to),
           real(gain.from->work.flops) / real(std::max<std::int64_t>(1, gain.from->work.bytes())));
    };
    const auto [least, most] = std::ranges::minmax_element(gains, {}, &Gain::speedup);
    tell(*most, "most");
    if (without_gain.empty())
      tell(*least, "least");
    else
      line("No gain: {}.", fmt::join(without_gain, ", "));
  }
  if (all.size() > 1 && networks.size() > 1) {
    const TimedVariant* const best = *std::ranges::max_element(all, {}, rate);
    line("Most samples/s of all: {}.", name(*best));
  }
  return line.text;
}

}  // namespace ridge
