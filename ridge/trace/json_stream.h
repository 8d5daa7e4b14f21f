#pragma once

// JSON that may be larger than memory, taken in value by value: no more of it is kept than the
// longest value that is asked for.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ridge/trace/source.h"

namespace ridge::trace {

class JsonStream {
 public:
  // Bytes that a value may have which is asked for whole.
  static constexpr std::size_t most_bytes = std::size_t{256} << 20;

  // Of a file, or of a text in memory; reads about so many bytes at once, and tells each time how
  // many of the file's it has read.
  template <class File>
  JsonStream(const File& file, std::size_t chunk_bytes,
             std::function<void(std::uint64_t)> progress = {})
      : source_(file),
        chunk_bytes_(std::max<std::size_t>(chunk_bytes, 64)),
        read_bytes_(std::min<std::size_t>(chunk_bytes_, 8192)),
        progress_(std::move(progress)) {}

  // The next value, whole, until the next call of any function. None if there is none, if the text
  // ends within it, or if it is longer than most_bytes.
  std::optional<std::string_view> value();
  // The functions below return false where the text is no JSON, or ends: what follows cannot be
  // told apart.
  bool skip_value();
  // Calls `take` with each key of the object that comes next, as it is written. That takes the
  // key's value, and returns false if it could not. Another value than an object is skipped.
  bool each_member(const std::function<bool(std::string_view key)>& take);
  // The same for each value of a list.
  bool each_value(const std::function<bool()>& take);
  // Calls `take` with the values of the list that comes next, many at a time, as a list, and with
  // where the first of them stands in the text.
  bool each_batch(const std::function<void(std::string& list, std::uint64_t at)>& take);

  bool begins_with(char c);  // the next value
  bool at_end();             // but for space
  // Where the next value begins in the text; if one was not whole, where that begins.
  std::uint64_t at() const { return stopped_at_.value_or(begin_ + next_); }
  std::uint64_t skip_rest();  // returns how many bytes the whole text has
  std::string damage() const { return source_.damage(); }
  std::uint64_t file_bytes_read() const { return source_.file_bytes_read(); }

 private:
  bool read_more();
  void skip_space();
  bool take(char c);
  std::optional<std::size_t> scan(bool keep);
  std::optional<std::string> key();

  Source source_;
  std::size_t chunk_bytes_, read_bytes_;
  std::function<void(std::uint64_t)> progress_;
  std::string text_;         // a stretch of it
  std::uint64_t begin_ = 0;  // where that begins
  std::size_t next_ = 0;     // in the stretch
  std::optional<std::uint64_t> stopped_at_;
};

}  // namespace ridge::trace
