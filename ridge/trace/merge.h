#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ridge/trace/piece.h"

namespace ridge::trace {

// Puts pieces together to a trace, in the order of the file.
class Merge {
 public:
  explicit Merge(Trace& trace) : trace_(trace) {}

  void add(PieceEvents&& piece);
  void finish();  // after the last

 private:
  struct OpenHalf {
    PieceEvents::Half half;
    TextPool::Id name;
    std::uint32_t track;
  };

  std::uint32_t track_of(const PieceEvents::TrackName& name);
  void add_counts(const PieceEvents& piece, const std::vector<TextPool::Id>& texts,
                  const std::vector<std::uint32_t>& tracks);
  void pair_halves();

  Trace& trace_;
  std::map<std::pair<std::string, std::string>, std::uint32_t, std::less<>> tracks_;
  std::vector<OpenHalf> halves_;
  // By process, name and argument.
  std::map<std::tuple<std::string, TextPool::Id, TextPool::Id>, std::uint32_t> counters_;
};

}  // namespace ridge::trace
