#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/file.h"

struct z_stream_s;

namespace ridge {

// Writes text into a file in the format of gzip.
class GzipWriter {
 public:
  explicit GzipWriter(AtomicFile& file);  // which outlives it
  ~GzipWriter();
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  void write(std::string_view text);
  void finish();  // once, and last; committing the file is left to its owner

 private:
  void drain(int flush);

  AtomicFile& file_;
  std::unique_ptr<z_stream_s> stream_;
};

// Text in the format of gzip.
std::string gzipped(std::string_view text);

// Unpacks a gzip file that comes piece by piece.
class GzipReader {
 public:
  // `more` fills a buffer as far as the file goes: fewer bytes are its last.
  using Source = std::function<std::size_t(std::span<char> into)>;
  explicit GzipReader(Source more);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Fills `into` as far as the text goes: fewer bytes are its last.
  std::size_t read(std::span<char> into);
  // Why the text ends before the file does: "cut short" or "damaged". Empty if it does not.
  const std::string& damage() const { return damage_; }

 private:
  bool refill();

  Source more_;
  std::unique_ptr<z_stream_s> stream_;
  std::vector<char> packed_;
  bool at_end_ = false;    // of the file
  bool in_member_ = true;  // of which a file may have several
  std::string damage_;
};

// Whether a file begins as gzip's do.
bool is_gzip(std::span<const std::byte> file);

// The content of a gzip file. FormatError, with its name, if it is damaged or cut short, or has
// more than `max_bytes`.
std::string gunzip(std::span<const std::byte> file, std::size_t max_bytes, std::string_view name);

}  // namespace ridge
