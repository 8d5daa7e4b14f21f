#include "ridge/profile/trace_hta.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

namespace ridge {
namespace {

using Is = TraceEvent::Is;

std::int64_t whole(const nlohmann::json& number) {
  if (!number.is_number_float()) return number.get<std::int64_t>();
  const double value = number.get<double>();
  return std::abs(value) < 9e18 ? static_cast<std::int64_t>(value) : -1;
}

// A stream is a number or the text of one; anything else counts as none.
std::int64_t stream_of(const TraceEvent& event) {
  const nlohmann::json* stream = event.stream;
  if (kind_of(stream) == Is::number) return whole(*stream);
  if (kind_of(stream) != Is::text) return -1;
  const std::string& text = stream->get_ref<const std::string&>();
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

std::int64_t correlation_of(const TraceEvent& event) {
  const nlohmann::json* correlation = event.correlation;
  return kind_of(correlation) == Is::number ? whole(*correlation) : -1;
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

void HtaTable::add(const TraceEvent& event) {
  has_arguments_ |= event.args_is != Is::missing;
  has_begins_ |= event.begin_is != Is::missing;
  const nlohmann::json* begin = event.member("ts");
  fractional_ |= begin == nullptr || begin->is_number_float();
  if (event.duration_is == Is::missing || event.duration_is == Is::null) return;
  if (event.category_is == Is::missing || event.category_is == Is::null) return;
  if (event.category == TraceEvent::Category::trace) return;

  const std::int64_t stream = stream_of(event), correlation = correlation_of(event);
  const Is stream_is = kind_of(event.stream);
  text_stream_ |= stream_is == Is::text;
  null_streams_ += stream_is == Is::null;
  const nlohmann::json* given = event.correlation;
  correlations_are_integers_ &= given == nullptr || given->is_number_integer();
  const bool step = event.name.starts_with("ProfilerStep");
  const bool sync = event.name == "Event Sync" || event.name == "Context Sync";
  if (step && std::ranges::find(steps_, event.name) == steps_.end()) steps_.push_back(event.name);
  // Without a begin it takes part in nothing: comparisons with what is no number are false.
  rows_.push_back({.begin = event.begin_is == Is::number ? event.begin : std::nan(""),
                   .end = event.begin + event.duration,
                   .stream = stream,
                   .correlation = correlation,
                   .index = event.index,
                   .on_gpu = (stream >= 0 && correlation >= 0) || sync,
                   .step = step,
                   .computes = stream != -1 && computes(event.name),
                   .computes_newest = stream != -1 && computes_newest(event.name),
                   .kernel = event.on_device()});
  if (event.category == TraceEvent::Category::cpu_op && stream >= 0) {
    ++mistaken_.count;
    mistaken_.time += event.duration;
    if (mistaken_.first == nullptr) mistaken_.first = event.source;
  }
}

void HtaTable::finish() {
  step_names_ = steps_.size();
  if (fractional_) round();
  compare_indices();
  breakdown_ = break_down(analysed(), &Row::computes);
  breakdown_newest_ = break_down(analysed(), &Row::computes_newest);
}

void HtaTable::round() {
  for (Row& row : rows_) {
    const double exact = row.end - row.begin;
    row.begin = std::ceil(row.begin);
    row.end = std::floor(row.end);
    if (!row.kernel || std::isnan(row.begin)) continue;
    ++rounding_.kernels;
    rounding_.lost_whole += row.end <= row.begin && exact > 0;
    rounding_.time += exact;
    rounding_.rounded_time += row.end - row.begin;
  }
}

void HtaTable::compare_indices() {
  std::int64_t low = -1, high = -1;
  struct Ends {
    std::int64_t cpu = -1, gpu = -1;  // the highest index
  };
  std::unordered_map<std::int64_t, Ends> ends;
  for (const Row& row : rows_) {
    low = std::min(low, row.correlation);
    high = std::max(high, row.correlation);
    if (row.correlation == -1) continue;
    std::int64_t& end = row.on_gpu ? ends[row.correlation].gpu : ends[row.correlation].cpu;
    end = std::max(end, static_cast<std::int64_t>(row.index));
  }
  if (!correlations_are_integers_) return;  // floats hold every index
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const int bits : {31, 15, 7})
    if (high < (std::int64_t{1} << bits) && low >= -(std::int64_t{1} << bits))
      most = (std::int64_t{1} << bits) - 1;
  for (const auto& [correlation, end] : ends)
    if (end.cpu >= 0 && end.gpu >= 0 && std::max(end.cpu, end.gpu) > most)
      index_over_correlations_ = std::max({index_over_correlations_, end.cpu, end.gpu});
}

// The rows of a GPU that remain after HTA has left out the last of several steps.
std::vector<const HtaTable::Row*> HtaTable::analysed() const {
  double last_step = std::numeric_limits<double>::infinity();
  std::unordered_set<std::int64_t> launched;
  if (steps_.size() > 1) {
    last_step = -last_step;
    for (const Row& row : rows_)
      if (row.step && !row.on_gpu) last_step = std::max(last_step, row.begin);
    for (const Row& row : rows_)
      if (!row.on_gpu && row.begin < last_step) launched.insert(row.correlation);
  }
  std::vector<const Row*> kept;
  for (const Row& row : rows_) {
    if (row.stream == -1 || std::isnan(row.begin)) continue;
    if (steps_.size() <= 1 ||
        (row.on_gpu ? launched.contains(row.correlation) : row.begin < last_step))
      kept.push_back(&row);
  }
  return kept;
}

HtaTable::Breakdown HtaTable::break_down(std::vector<const Row*> rows, bool Row::*computes) {
  if (rows.empty()) return Breakdown::finds_no_kernels;
  std::ranges::sort(rows, {}, &Row::begin);
  double busy = 0, computing = 0;
  // The length of the union as HTA finds it: an end may lie before its begin.
  const auto length = [&rows](auto wanted) {
    double sum = 0, begin = 0, end = 0, furthest = -std::numeric_limits<double>::infinity();
    bool open = false;
    for (const Row* row : rows) {
      if (!wanted(*row)) continue;
      if (!open || row->begin > furthest) {
        if (open) sum += end - begin;
        begin = row->begin;
        end = row->end;
        open = true;
      }
      end = std::max(end, row->end);
      furthest = std::max(furthest, row->end);
    }
    return open ? sum + end - begin : 0.0;
  };
  busy = length([](const Row&) { return true; });
  computing = length([computes](const Row& row) { return row.*computes; });
  return busy < 0 || computing > busy ? Breakdown::asserts : Breakdown::works;
}

}  // namespace ridge
