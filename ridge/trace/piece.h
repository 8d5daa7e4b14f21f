#pragma once

// A piece of a trace's text: some of its events, parsed at once. Pieces are cut between two events
// and completed to JSON of their own, so that several threads can parse them, and no parser ever
// sees more than one.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ridge/trace/trace.h"

namespace ridge::trace {

// The events of one piece. Texts and tracks have numbers of the piece's own. A text is what stands
// in the file, quotes and escapes included; it lasts as long as the piece's text.
struct PieceEvents {
  struct TrackName {
    std::string_view process, thread;
  };
  struct Label {  // of a process, or of a thread
    std::uint32_t track;
    bool of_process;
    TextPool::Id text;
  };
  // The begin or the end of a slice that the trace gives as two events.
  struct Half {
    bool begins;
    EventKind kind;
    TextPool::Id name;
    std::uint32_t track;
    std::int64_t time_ns;
  };

  struct Count {  // a value of a counter
    TextPool::Id name, argument, category;
    std::uint32_t track;
    std::int64_t time_ns;
    double value;
  };

  EventColumns rows;
  std::vector<std::string_view> texts;
  std::vector<TrackName> tracks;
  std::vector<Label> labels;
  std::vector<Half> halves;
  std::vector<CollectiveFact> collectives;
  std::vector<MemoryInstant> memory;
  std::vector<Count> counts;
  std::map<std::string, std::string> properties;
  std::uint64_t event_count = 0, flow_count = 0;
  bool list_ended = false;  // other members follow the list of events
};

// Parses pieces, one at a time, and keeps for the next what it needs to.
class PieceParser {
 public:
  PieceParser();
  ~PieceParser();
  PieceParser(PieceParser&&) noexcept;

  // The events of `text`, an object with a member "traceEvents" or a list, which has room for
  // `padding` bytes behind it. None if it is no JSON.
  std::optional<PieceEvents> parse(std::string_view text);

  static const std::size_t padding;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ridge::trace
