#include "ridge/trace/read.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "ridge/base/error.h"
#include "ridge/base/thread_pool.h"
#include "ridge/base/utf8.h"
#include "ridge/trace/cut.h"
#include "ridge/trace/database.h"
#include "ridge/trace/merge.h"
#include "ridge/trace/piece.h"
#include "ridge/trace/pieces.h"
#include "ridge/trace/read_nsys.h"
#include "ridge/trace/read_rocprof.h"
#include "ridge/trace/source.h"

namespace ridge::trace {
namespace {

// A piece and what was parsed of it, which refers to its text; none if it could not be.
struct Piece : PieceText {
  std::optional<PieceEvents> events;
};

// Takes pieces as they are parsed, in any order, and puts them together in the file's.
class PieceJoiner {
 public:
  PieceJoiner(Trace& trace, const Form& form) : trace_(trace), merge_(trace), form_(form) {}

  // False if the list of events has ended, so that no more are wanted.
  bool add(std::uint64_t number, Piece&& piece);
  void finish();

 private:
  void take(Piece& piece);
  bool take_joined(const Piece& piece, const Piece& following);
  void recover(Piece& piece);
  void recover(std::string_view body, std::uint64_t at);
  bool recover_end(std::string_view body, std::uint64_t at);
  bool take_text(std::string_view body, bool complete);
  void lose(std::uint64_t at, std::uint64_t bytes);

  Trace& trace_;
  Merge merge_;
  const Form& form_;
  PieceParser parser_;
  std::map<std::uint64_t, Piece> waiting_;
  std::uint64_t next_ = 0;
  bool list_ended_ = false;
};

void PieceJoiner::lose(std::uint64_t at, std::uint64_t bytes) {
  if (bytes == 0) return;
  if (trace_.damage.lost_bytes == 0) trace_.damage.first_at = at;
  trace_.damage.lost_bytes += bytes;
}

void PieceJoiner::take(Piece& piece) {
  list_ended_ = list_ended_ || piece.events->list_ended;
  merge_.add(std::move(*piece.events));
}

// Whether the events of this text could be read, which is not `complete` if it needs an opening and
// a closing.
bool PieceJoiner::take_text(std::string_view body, bool complete) {
  Piece piece;
  if (!complete) piece.text = form_.opening();
  piece.opening = piece.text.size();
  piece.body = body.size();
  piece.text += body;
  piece.close(complete ? "" : form_.closing());
  piece.events = parser_.parse(piece.text);
  if (piece.events) take(piece);
  return piece.events.has_value();
}

// A cut that was none leaves two pieces that are whole together.
bool PieceJoiner::take_joined(const Piece& piece, const Piece& following) {
  Piece both;
  static_cast<PieceText&>(both) = piece;
  both.join(following, form_);
  both.events = parser_.parse(both.text);
  if (!both.events) return false;
  take(both);
  return true;
}

// Finds the events that can be read in a text that cannot: halves it until each part can be read or
// is no more than one event.
void PieceJoiner::recover(std::string_view body, std::uint64_t at) {
  if (body.find_first_not_of(" \t\r\n,]}") == std::string_view::npos) return;
  if (take_text(body, false)) return;
  Cut cut = last_cut(body, 0, body.size() / 2);
  if (!cut) cut = last_cut(body, body.size() / 2, body.size());
  if (!cut) cut = last_cut(body, 0, body.size(), CutKind::any);
  if (!cut) return lose(at, body.size());
  recover(body.substr(0, cut.end), at);
  recover(body.substr(cut.next), at + cut.next);
}

void PieceJoiner::recover(Piece& piece) {
  std::size_t count = 0;
  std::string text = repaired(piece.text, count);
  if (count > 0) {
    trace_.damage.repaired_bytes += count;
    piece.text = std::move(text);
    piece.close(piece.last ? "" : form_.closing());
    piece.events = parser_.parse(piece.text);
    if (piece.events) return take(piece);
  }
  std::string_view body = piece.body_text();
  std::uint64_t at = piece.at;
  if (piece.first) {
    Form form;
    const std::size_t begin = begin_of_events(body, form);
    take_text(std::string(body.substr(0, begin)) + std::string(form_.closing()), true);
    body.remove_prefix(begin);
    at += begin;
  }
  if (piece.last && recover_end(body, at)) return;
  recover(body, at);
}

// Finds the last cut before which all can be read, and takes what stands before it and what of the
// rest it can. False if none of those near the end is such.
bool PieceJoiner::recover_end(std::string_view body, std::uint64_t at) {
  constexpr int most_tries = 64;
  Cut cut = last_cut(body, 0, body.size(), CutKind::any);
  for (int tries = 0; cut && !take_text(body.substr(0, cut.end), false); ++tries)
    cut = tries < most_tries ? last_cut(body, 0, cut.end, CutKind::any) : Cut();
  const std::size_t begin = cut ? cut.next : 0;
  std::string_view rest = body.substr(begin);
  const bool ended = take_text(std::string(form_.opening()) + std::string(rest), true);
  rest = rest.substr(0, rest.find_last_not_of(" \t\r\n,") + 1);
  const bool whole = ended || take_text(rest, false);
  trace_.damage.cut_short = !ended && !(whole && form_.bare_list);  // a bare list needs no end
  if (!cut && !whole) return false;
  if (!whole) lose(at + begin, rest.size());
  return true;
}

bool PieceJoiner::add(std::uint64_t number, Piece&& piece) {
  waiting_.emplace(number, std::move(piece));
  while (!list_ended_ && !waiting_.empty() && waiting_.begin()->first == next_) {
    const auto at = waiting_.begin();
    Piece& first = at->second;
    if (first.events) {
      take(first);
    } else if (first.last) {
      recover(first);
    } else {
      const auto following = waiting_.find(next_ + 1);
      if (following == waiting_.end()) return true;  // it is needed
      if (take_joined(first, following->second)) {
        waiting_.erase(following);
        ++next_;
      } else {
        recover(first);
      }
    }
    waiting_.erase(at);
    ++next_;
  }
  return !list_ended_;
}

void PieceJoiner::finish() { merge_.finish(); }

template <class File>
void read_events(const File& file, const ReadOptions& options, Trace& trace) {
  PieceCutter cutter(file, options.piece_bytes);
  PieceJoiner joiner(trace, cutter.form());
  ThreadPool pool(std::max(options.threads, 1));
  parse_pieces<PieceParser>(
      cutter, pool, options,
      [&](std::uint64_t number, PieceText&& text, std::optional<PieceEvents>&& events) {
        return joiner.add(number, {std::move(text), std::move(events)});
      });
  joiner.finish();
  trace.bytes = cutter.bytes_read();
  trace.damage.unpacking = cutter.damage();
}

// At most so many bytes of a text, of which a gzip file's damage is noted in the trace.
std::string text_of(Source source, std::size_t most, Trace& trace) {
  std::string text;
  std::size_t got = 0;
  do {
    const std::size_t before = text.size();
    text.resize(std::min(most, before + std::max<std::size_t>(before, 4096)));
    got = source.read(std::span(text).subspan(before));
    text.resize(before + got);
  } while (got > 0 && text.size() < most);
  trace.damage.unpacking = source.damage();
  return text;
}

template <class File>
std::string text_of(const File& file, Trace& trace) {
  return text_of(Source(file), std::numeric_limits<std::size_t>::max(), trace);
}

Database database_of(const std::filesystem::path& file, const std::string&) {
  return Database::of_file(file);
}

Database database_of(std::string_view file, const std::string& name) {
  return Database::of_bytes(file, name);
}

std::uint64_t size_of(const std::filesystem::path& file) {
  return std::filesystem::file_size(file);
}

std::uint64_t size_of(std::string_view file) { return file.size(); }

template <class File>
void read_database(const File& file, bool packed, Trace& trace) {
  if (!packed) return read_nsys(database_of(file, trace.file), size_of(file), trace);
  const std::string text = text_of(file, trace);
  read_nsys(Database::of_bytes(text, trace.file), text.size(), trace);
}

// With a table, what the same run wrote beside it.
void read_tables(const std::filesystem::path& file, Trace& trace) {
  for (const std::filesystem::path& table : rocprof_tables_of(file))
    read_rocprof_csv(text_of(table, trace), trace);
}

void read_tables(std::string_view file, Trace& trace) {
  read_rocprof_csv(text_of(file, trace), trace);
}

// Whether the first line of a text is the header of a table in CSV.
bool is_csv(std::string_view text) {
  const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  constexpr std::string_view others = "{}[]:\\<>";
  return line.size() < text.size() && line.find(',') != std::string_view::npos &&
         line.find_first_of(others) == std::string_view::npos &&
         find_invalid_utf8(line) == line.size();
}

// Reads a file by what it begins with, whatever its name says.
template <class File>
void read_any(const File& file, const ReadOptions& options, Trace& trace) {
  constexpr std::size_t most = 8192;
  const bool packed = Source(file).is_packed();
  const std::string head = text_of(Source(file), most, trace);
  if (is_sqlite(head)) {
    read_database(file, packed, trace);
  } else if (is_rocprof_json(head)) {
    read_rocprof_json(file, options, trace);
  } else if (is_rocprof_csv(head) || is_csv(head)) {
    read_tables(file, trace);
  } else {
    return read_events(file, options, trace);
  }
  if (options.progress) options.progress(size_of(file));
}

template <class File>
Trace read_file(const File& file, std::string name, const ReadOptions& options) {
  Trace trace;
  trace.file = std::move(name);
  try {
    read_any(file, options, trace);
  } catch (const FormatError& error) {
    throw FormatError("{} is no trace: {}", shown(trace.file), error.what());
  }
  if (trace.event_count == 0 && trace.damage.any())
    throw FormatError("{} has no event that can be read", shown(trace.file));
  return trace;
}

}  // namespace

Trace read(const std::filesystem::path& path, const ReadOptions& options) {
  return read_file(path, path.filename().string(), options);
}

Trace read_text(std::string_view file, std::string_view name, const ReadOptions& options) {
  return read_file(file, std::string(name), options);
}

}  // namespace ridge::trace
