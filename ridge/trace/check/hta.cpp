#include "ridge/trace/check/hta.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

namespace ridge::trace {
namespace {

using Is = TraceValue::Is;

// The integer that a number is, or is cut to; -1 if 64 bits cannot hold it.
std::int64_t whole(const TraceValue& number) {
  if (number.integer) return number.signed_bits();
  return std::abs(number.number) < 9e18 ? static_cast<std::int64_t>(number.number) : -1;
}

// A stream is a number or the text of one; anything else counts as none.
std::int64_t stream_of(const TraceValue& stream) {
  if (stream.is == Is::number) return whole(stream);
  if (stream.is != Is::text) return -1;
  const std::string_view text = stream.text;
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

bool begins_with_one_of(std::string_view text, std::initializer_list<std::string_view> list) {
  return std::ranges::any_of(list,
                             [text](std::string_view part) { return text.starts_with(part); });
}
bool has_one_of(std::string_view text, std::initializer_list<std::string_view> list) {
  return std::ranges::any_of(
      list, [text](std::string_view part) { return text.find(part) != text.npos; });
}

// Whether a name is one of a computing kernel to HTA 0.5.0, and to 0.6.1.
bool computes(std::string_view name) {
  const bool collective = name.starts_with("nccl") && name.find("Kernel") != name.npos;
  return !(collective || name.starts_with("Memset") || has_one_of(name, {"Memcpy", "Sync"}));
}
bool computes_newest(std::string_view name) {
  const std::size_t launch = name.find("LaunchKernel");
  return !(begins_with_one_of(
               name, {"nccl", "hip", "hccl", "Stream Wait Event", "runFunction", "job_exe",
                      "packet", "pe_exe", "cpum_exe_subgraph", "collective_subgraph_execution"}) ||
           has_one_of(name, {"Memcpy", "Memset", "dma", "Sync"}) ||
           (launch != name.npos && name.starts_with("cuda")));
}

}  // namespace

void HtaTable::add(const TraceEvent& event, TraceRow& row) {
  has_arguments_ |= event.args_is != Is::missing;
  has_begins_ |= event.begin.is != Is::missing;
  fractional_ |=
      event.begin.is == Is::missing || (event.begin.is == Is::number && !event.begin.integer);
  if (!event.duration.given() || !event.category_name.given()) return;
  if (event.category == TraceEvent::Category::trace) return;

  has_rows_ = true;
  text_stream_ |= event.stream.is == Is::text;
  null_streams_ += event.stream.is == Is::null;
  correlations_are_integers_ &= event.correlation.is == Is::missing || event.correlation.integer;
  const std::string_view name = event.name.text;
  row.in_hta = true;
  row.hta_stream = stream_of(event.stream);
  if (event.correlation.is == Is::number) row.hta_number = whole(event.correlation);
  row.hta_on_gpu = (row.hta_stream >= 0 && row.hta_number >= 0) || name == "Event Sync" ||
                   name == "Context Sync";
  row.hta_step = name.starts_with("ProfilerStep");
  row.hta_computes = row.hta_stream != -1 && computes(name);
  row.hta_computes_newest = row.hta_stream != -1 && computes_newest(name);
  if (row.hta_step && !steps_.contains(name)) steps_.emplace(name);
  if (event.category == TraceEvent::Category::cpu_op && row.hta_stream >= 0) {
    mistaken_.slices.note(event.index);
    mistaken_.time += event.duration.number;
  }
}

void HtaTable::append(HtaTable&& following, std::uint32_t before) {
  has_rows_ |= following.has_rows_;
  steps_.merge(following.steps_);
  has_arguments_ |= following.has_arguments_;
  has_begins_ |= following.has_begins_;
  fractional_ |= following.fractional_;
  text_stream_ |= following.text_stream_;
  null_streams_ += following.null_streams_;
  correlations_are_integers_ &= following.correlations_are_integers_;
  mistaken_.slices.add(following.mistaken_.slices.after(before));
  mistaken_.time += following.mistaken_.time;
}

void HtaTable::finish(const TraceRows& rows) {
  if (fractional_) round(rows);
  compare_indices(rows);
  const std::vector<Kernel> kernels = analysed(rows);
  breakdown_ = break_down(kernels, &Kernel::computes);
  breakdown_newest_ = break_down(kernels, &Kernel::computes_newest);
}

// Without a begin it takes part in nothing: comparisons with what is no number are false.
HtaTable::Kernel HtaTable::kernel_of(const TraceRow& row) const {
  const double begin = row.begins ? row.begin : std::nan("");
  return {.begin = fractional_ ? std::ceil(begin) : begin,
          .end = fractional_ ? std::floor(row.end) : row.end,
          .computes = row.hta_computes,
          .computes_newest = row.hta_computes_newest};
}

void HtaTable::round(const TraceRows& rows) {
  for (const TraceRow& row : rows) {
    if (!row.in_hta || !row.on_device() || !row.begins) continue;
    const Kernel rounded = kernel_of(row);
    const double exact = row.end - row.begin;
    ++rounding_.kernels;
    rounding_.lost_whole += rounded.end <= rounded.begin && exact > 0;
    rounding_.time += exact;
    rounding_.rounded_time += rounded.end - rounded.begin;
  }
}

void HtaTable::compare_indices(const TraceRows& rows) {
  if (!correlations_are_integers_) return;  // floats hold every index
  std::int64_t low = -1, high = -1;
  struct Ends {
    std::int64_t cpu = -1, gpu = -1;  // the highest index
  };
  std::unordered_map<std::int64_t, Ends> ends;
  for (const TraceRow& row : rows) {
    if (!row.in_hta) continue;
    low = std::min(low, row.hta_number);
    high = std::max(high, row.hta_number);
    if (row.hta_number == -1) continue;
    Ends& of_number = ends[row.hta_number];
    std::int64_t& end = row.hta_on_gpu ? of_number.gpu : of_number.cpu;
    end = std::max(end, std::int64_t{row.event});
  }
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const int bits : {31, 15, 7})
    if (high < (std::int64_t{1} << bits) && low >= -(std::int64_t{1} << bits))
      most = (std::int64_t{1} << bits) - 1;
  for (const auto& [number, end] : ends)
    if (end.cpu >= 0 && end.gpu >= 0 && std::max(end.cpu, end.gpu) > most)
      index_over_correlations_ = std::max({index_over_correlations_, end.cpu, end.gpu});
}

// The rows of a GPU that remain after HTA has left out the last of several steps, by begin.
std::vector<HtaTable::Kernel> HtaTable::analysed(const TraceRows& rows) const {
  double last_step = std::numeric_limits<double>::infinity();
  std::unordered_set<std::int64_t> launched;
  if (steps_.size() > 1) {
    last_step = -last_step;
    for (const TraceRow& row : rows)
      if (row.hta_step && !row.hta_on_gpu) last_step = std::max(last_step, kernel_of(row).begin);
    for (const TraceRow& row : rows)
      if (row.in_hta && !row.hta_on_gpu && kernel_of(row).begin < last_step)
        launched.insert(row.hta_number);
  }
  std::vector<Kernel> kept;
  for (const TraceRow& row : rows) {
    if (!row.in_hta || row.hta_stream == -1 || !row.begins) continue;
    const Kernel kernel = kernel_of(row);
    if (steps_.size() <= 1 ||
        (row.hta_on_gpu ? launched.contains(row.hta_number) : kernel.begin < last_step))
      kept.push_back(kernel);
  }
  std::ranges::sort(kept, {}, &Kernel::begin);
  return kept;
}

HtaTable::Breakdown HtaTable::break_down(const std::vector<Kernel>& kernels,
                                         bool Kernel::*computes) {
  if (kernels.empty()) return Breakdown::finds_no_kernels;
  // The length of the union as HTA finds it: an end may lie before its begin.
  const auto length = [&kernels](auto wanted) {
    double sum = 0, begin = 0, end = 0, furthest = -std::numeric_limits<double>::infinity();
    bool open = false;
    for (const Kernel& kernel : kernels) {
      if (!wanted(kernel)) continue;
      if (!open || kernel.begin > furthest) {
        if (open) sum += end - begin;
        begin = kernel.begin;
        end = kernel.end;
        open = true;
      }
      end = std::max(end, kernel.end);
      furthest = std::max(furthest, kernel.end);
    }
    return open ? sum + end - begin : 0.0;
  };
  const double busy = length([](const Kernel&) { return true; });
  const double computing = length([computes](const Kernel& kernel) { return kernel.*computes; });
  return busy < 0 || computing > busy ? Breakdown::asserts : Breakdown::works;
}

}  // namespace ridge::trace
