#include "ridge/trace/check/gather.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/trace/check/parse.h"
#include "ridge/trace/pieces.h"

namespace ridge::trace {
namespace {

// Takes pieces as they are parsed, in any order, and puts their facts together in the file's. A
// piece that is no JSON may have been cut within an event, and is joined with those that follow; so
// is one behind whose list of events other members stand, up to the file's end.
class FactsJoiner {
 public:
  FactsJoiner(GatheredFacts& gathered, const Form& form) : gathered_(gathered), form_(form) {}

  // False if no more pieces are wanted, since what is wrong is known.
  bool add(std::uint64_t number, PieceText&& text, std::optional<PieceFacts>&& facts);
  void finish() const;  // FormatError if something is wrong

 private:
  struct Part {
    PieceText text;
    std::optional<PieceFacts> facts;
    std::size_t pieces = 1;  // joined in it
  };

  bool take(Part&& part);
  void join(Part& part, const Part& following);

  GatheredFacts& gathered_;
  const Form& form_;
  FactsParser parser_;
  std::map<std::uint64_t, Part> waiting_;
  std::uint64_t next_ = 0;
  std::optional<Part> open_;  // to be joined with the next
  bool has_list_ = true;
  std::optional<std::uint64_t> no_json_from_;  // byte of the file
};

bool FactsJoiner::add(std::uint64_t number, PieceText&& text, std::optional<PieceFacts>&& facts) {
  waiting_.emplace(number, Part{.text = std::move(text), .facts = std::move(facts)});
  for (auto at = waiting_.begin(); at != waiting_.end() && at->first == next_;
       at = waiting_.begin(), ++next_) {
    Part part = std::move(at->second);
    waiting_.erase(at);
    if (open_) {
      join(*open_, part);
      part = *std::exchange(open_, std::nullopt);
    }
    if (!take(std::move(part))) return false;
  }
  return has_list_ && !no_json_from_;
}

bool FactsJoiner::take(Part&& part) {
  constexpr std::size_t most_of_event = std::size_t{32} << 20;  // bytes in which one has to end
  const PieceText& text = part.text;
  const bool tail_follows = part.facts && part.facts->list_ended && !text.last;
  if (part.facts && !tail_follows) {
    gathered_.pieces.push_back({.first_event = gathered_.facts.events,
                                .at = text.at,
                                .bytes = text.body,
                                .first = text.first,
                                .last = text.last});
    if (text.first) has_list_ = part.facts->has_list;
    gathered_.facts.append(std::move(part.facts->facts));
    return has_list_;
  }
  if (text.last || text.body > (tail_follows ? PieceCutter::most_bytes : most_of_event)) {
    no_json_from_ = text.at;
    return false;
  }
  open_ = std::move(part);
  return true;
}

// Parses what is joined as often as its length has doubled, so that damage costs no more than
// reading.
void FactsJoiner::join(Part& part, const Part& following) {
  part.text.join(following.text, form_);
  ++part.pieces;
  if (part.text.last || (!part.facts && std::has_single_bit(part.pieces)))
    part.facts = parser_.parse(part.text.text);
}

void FactsJoiner::finish() const {
  const std::string name = shown(gathered_.facts.file.name);
  if (no_json_from_)
    throw FormatError("{} is no valid JSON{}, so none of the tools reads it", name,
                      *no_json_from_ > 0 ? fmt::format(" behind byte {}", *no_json_from_) : "");
  if (!has_list_)
    throw FormatError("{} is JSON but no trace: it has no list \"traceEvents\"", name);
}

template <class File>
GatheredFacts gather(const File& file, std::string name, const ReadOptions& options) {
  GatheredFacts gathered;
  TraceFile& about = gathered.facts.file;
  about.name = std::move(name);
  PieceCutter cutter(file, options.piece_bytes);
  FactsJoiner joiner(gathered, cutter.form());
  ThreadPool pool(std::max(options.threads, 1));
  try {
    parse_pieces<FactsParser>(
        cutter, pool, options,
        [&joiner](std::uint64_t number, PieceText&& text, std::optional<PieceFacts>&& facts) {
          return joiner.add(number, std::move(text), std::move(facts));
        });
  } catch (const FormatError& error) {
    if (cutter.damage().empty())
      throw FormatError("{} is no trace: {}", shown(about.name), error.what());
  }
  if (!cutter.damage().empty())
    throw FormatError("{} is a gzip file that is {}", shown(about.name), cutter.damage());
  joiner.finish();
  about.bytes = cutter.bytes_read();
  about.compressed = cutter.is_packed();
  about.bare_list = cutter.form().bare_list;
  gathered.facts.finish(pool);
  return gathered;
}

// Those of the indices, from the first on, that are in a piece, which ends before an event.
std::vector<std::uint32_t> places_in(const PiecePlace& piece, std::uint64_t end,
                                     std::span<const std::uint32_t>& indices) {
  std::vector<std::uint32_t> places;
  for (; !indices.empty() && indices.front() < end; indices = indices.subspan(1))
    places.push_back(indices.front() - piece.first_event);
  return places;
}

template <class File>
std::vector<std::string> find_events(const File& file, const GatheredFacts& gathered,
                                     std::span<const std::uint32_t> indices) {
  const Form form{.bare_list = gathered.facts.file.bare_list};
  std::vector<std::string> found;
  Source source(file);
  FactsParser parser;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < gathered.pieces.size() && !indices.empty(); ++i) {
    const PiecePlace& place = gathered.pieces[i];
    const bool last = i + 1 == gathered.pieces.size();
    const std::vector<std::uint32_t> places = places_in(
        place, last ? gathered.facts.events : gathered.pieces[i + 1].first_event, indices);
    if (places.empty()) continue;
    source.skip(place.at - at);
    PieceText piece;
    if (!place.first) piece.text = form.opening();
    piece.opening = piece.text.size();
    piece.text.resize(piece.opening + place.bytes);
    piece.body = source.read(std::span(piece.text).subspan(piece.opening));
    piece.close(place.last ? "" : form.closing());
    at = place.at + piece.body;
    for (std::string& event : parser.events(piece.text, places)) found.push_back(std::move(event));
  }
  return found;
}

}  // namespace

GatheredFacts gather_facts(const std::filesystem::path& file, const ReadOptions& options) {
  return gather(file, file.filename().string(), options);
}

GatheredFacts gather_facts(std::string_view file, std::string_view name,
                           const ReadOptions& options) {
  return gather(file, std::string(name), options);
}

std::vector<std::string> events_at(const std::filesystem::path& file, const GatheredFacts& gathered,
                                   const std::vector<std::uint32_t>& indices) {
  return find_events(file, gathered, indices);
}

std::vector<std::string> events_at(std::string_view file, const GatheredFacts& gathered,
                                   const std::vector<std::uint32_t>& indices) {
  return find_events(file, gathered, indices);
}

}  // namespace ridge::trace
