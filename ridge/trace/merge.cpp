#include "ridge/trace/merge.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace ridge::trace {
namespace {

// JSON without the space between its tokens, so that values are equal as texts.
std::string compact(std::string_view json) {
  std::string out;
  bool in_text = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text && c == '\\') {
      out += c;
      if (++i < json.size()) out += json[i];
      continue;
    }
    if (c == '"') in_text = !in_text;
    if (in_text || static_cast<unsigned char>(c) > ' ') out += c;
  }
  return out;
}

// A text as it stands in JSON, without its quotes and escapes; other values compact.
std::string plain(std::string_view token) {
  if (token.size() < 2 || token.front() != '"') return compact(token);
  const std::string_view inside = token.substr(1, token.size() - 2);
  if (inside.find('\\') == std::string_view::npos) return std::string(inside);
  const auto parsed = nlohmann::json::parse(token, nullptr, false);
  return parsed.is_string() ? parsed.get<std::string>() : std::string(inside);
}

template <class Numbers, class Numbered>
void renumber(Numbers& column, const Numbered& numbers) {
  for (auto& id : column) id = numbers[id];
}

}  // namespace

std::uint32_t Merge::track_of(const PieceEvents::TrackName& name) {
  std::pair<std::string, std::string> key(plain(name.process), plain(name.thread));
  const auto next = static_cast<std::uint32_t>(trace_.tracks.size());
  const auto [at, added] = tracks_.try_emplace(key, next);
  if (added) trace_.tracks.push_back({.process = key.first, .thread = key.second});
  return at->second;
}

void Merge::add(PieceEvents&& piece) {
  std::vector<TextPool::Id> texts;
  texts.reserve(piece.texts.size());
  for (const std::string_view text : piece.texts) texts.push_back(trace_.texts.add(plain(text)));
  std::vector<std::uint32_t> tracks;
  for (const PieceEvents::TrackName& name : piece.tracks) tracks.push_back(track_of(name));

  renumber(piece.rows.name, texts);
  renumber(piece.rows.shape, texts);
  renumber(piece.rows.types, texts);
  renumber(piece.rows.values, texts);
  renumber(piece.rows.track, tracks);
  for (CollectiveFact fact : piece.collectives) {
    fact.row += static_cast<std::uint32_t>(trace_.events.size());
    fact.name = texts[fact.name];
    fact.dtype = texts[fact.dtype];
    fact.group = texts[fact.group];
    trace_.collectives.push_back(fact);
  }
  trace_.events.append(piece.rows);
  for (const PieceEvents::Half& half : piece.halves)
    halves_.push_back({half, texts[half.name], tracks[half.track]});
  for (const PieceEvents::Label& label : piece.labels) {
    const Track& track = trace_.tracks[tracks[label.track]];
    const std::string& text = trace_.texts[texts[label.text]];
    if (!label.of_process) trace_.tracks[tracks[label.track]].thread_name = text;
    // It names all the threads of its process, also those that come later.
    else
      trace_.process_names[track.process] = text;
  }
  trace_.memory.insert(trace_.memory.end(), piece.memory.begin(), piece.memory.end());
  add_counts(piece, texts, tracks);
  trace_.properties.merge(piece.properties);
  trace_.event_count += piece.event_count;
  trace_.flow_count += piece.flow_count;
}

void Merge::add_counts(const PieceEvents& piece, const std::vector<TextPool::Id>& texts,
                       const std::vector<std::uint32_t>& tracks) {
  for (const PieceEvents::Count& count : piece.counts) {
    const std::string& process = trace_.tracks[tracks[count.track]].process;
    const TextPool::Id name = texts[count.name], argument = texts[count.argument];
    const auto next = static_cast<std::uint32_t>(trace_.counter_series.size());
    const auto [at, added] = counters_.try_emplace({process, name, argument}, next);
    if (added)
      trace_.counter_series.push_back({.process = process,
                                       .name = name,
                                       .argument = argument,
                                       .category = texts[count.category]});
    trace_.counters.push_back(
        {.time_ns = count.time_ns, .value = count.value, .series = at->second});
  }
}

// Slices nest on a track, so that an end belongs to the last begin that has none.
void Merge::pair_halves() {
  std::ranges::stable_sort(halves_, {}, [](const OpenHalf& open) { return open.half.time_ns; });
  std::unordered_map<std::uint32_t, std::vector<const OpenHalf*>> open;
  EventColumns& rows = trace_.events;
  for (const OpenHalf& end : halves_) {
    std::vector<const OpenHalf*>& stack = open[end.track];
    if (end.half.begins) {
      stack.push_back(&end);
      continue;
    }
    if (stack.empty()) continue;
    const OpenHalf& begin = *stack.back();
    stack.pop_back();
    rows.kind.push_back(begin.half.kind);
    rows.name.push_back(begin.name);
    rows.track.push_back(begin.track);
    rows.begin_ns.push_back(begin.half.time_ns);
    rows.duration_ns.push_back(end.half.time_ns - begin.half.time_ns);
    rows.correlation.push_back(EventColumns::none);
    rows.external.push_back(EventColumns::none);
    rows.bytes.push_back(EventColumns::none);
    rows.shape.push_back(0);
    rows.types.push_back(0);
    rows.values.push_back(0);
  }
}

void Merge::finish() {
  pair_halves();
  for (std::size_t row = 0; row < trace_.events.size(); ++row)
    if (is_on_device(trace_.events.kind[row]))
      trace_.tracks[trace_.events.track[row]].device = true;
}

}  // namespace ridge::trace
