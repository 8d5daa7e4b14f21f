#pragma once

// A trace's text taken apart into pieces, which several threads parse at once.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ridge/base/thread_pool.h"
#include "ridge/trace/cut.h"
#include "ridge/trace/read.h"
#include "ridge/trace/source.h"

namespace ridge::trace {

// A stretch of a file's text from one cut to the next, completed to JSON of its own.
struct PieceText {
  std::string text;         // opening, body, closing, and room for a parser
  std::size_t opening = 0;  // bytes before the body
  std::size_t body = 0;     // bytes of it
  std::uint64_t at = 0;     // where the body begins in the file
  std::string gap;          // what stands between it and the next
  bool first = false, last = false;

  std::string_view body_text() const { return std::string_view(text).substr(opening, body); }
  std::uint64_t end() const { return at + body; }  // in the file
  // Completes the body, which stands behind the opening, to JSON.
  void close(std::string_view closing);
  // Puts the body of the piece that follows behind this one's.
  void join(const PieceText& following, const Form& form);
};

// Takes a file's text apart into pieces.
class PieceCutter {
 public:
  // Bytes that are read at once without a cut.
  static constexpr std::size_t most_bytes = std::size_t{256} << 20;

  template <class File>
  PieceCutter(const File& file, std::size_t piece_bytes)
      : source_(file), piece_bytes_(std::max<std::size_t>(piece_bytes, 64)) {}

  // The next piece; none at the file's end. FormatError if there is no list of events, or if no
  // event of it ends within most_bytes.
  std::optional<PieceText> next();
  const Form& form() const { return form_; }
  bool is_packed() const { return source_.is_packed(); }
  std::uint64_t bytes_read() const { return bytes_read_; }
  std::uint64_t file_bytes_read() const { return source_.file_bytes_read(); }
  std::string damage() const { return source_.damage(); }

 private:
  bool read_more(std::string& text);

  Source source_;
  std::size_t piece_bytes_;
  Form form_;
  std::string rest_;  // begins with an event, but for the first piece
  std::uint64_t rest_at_ = 0, bytes_read_ = 0;
  bool begun_ = false, at_end_ = false;
};

// Parses the pieces of a text on the threads of a pool, each with a Parser of its own, and gives
// each piece with its number to join(number, PieceText&&, what Parser::parse made of its text), in
// any order but one at a time. Ends early if that returns false: no more are wanted.
template <class Parser, class Join>
void parse_pieces(PieceCutter& cutter, ThreadPool& pool, const ReadOptions& options,
                  const Join& join) {
  std::mutex cutting, joining;
  std::uint64_t pieces = 0;
  bool ended = false;
  const auto cut = [&](std::uint64_t& number, PieceText& piece) {
    const std::scoped_lock lock(cutting);
    if (ended) return false;
    ended = true;  // also if the next line throws
    std::optional<PieceText> next = cutter.next();
    if (!next) return false;
    piece = std::move(*next);
    number = pieces++;
    ended = piece.last;
    if (options.progress) options.progress(cutter.file_bytes_read());
    return true;
  };
  const auto join_one = [&](std::uint64_t number, PieceText&& piece, auto&& parsed) {
    const std::scoped_lock lock(joining);
    return join(number, std::move(piece), std::move(parsed));
  };
  pool.run(pool.size(), [&](std::int64_t) {
    Parser parser;
    std::uint64_t number = 0;
    for (PieceText piece; cut(number, piece);) {
      auto parsed = parser.parse(piece.text);
      if (join_one(number, std::move(piece), std::move(parsed))) continue;
      const std::scoped_lock lock(cutting);
      ended = true;
    }
  });
}

}  // namespace ridge::trace
