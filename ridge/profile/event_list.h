#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "ridge/base/file.h"
#include "ridge/base/gzip.h"
#include "ridge/profile/chrome_trace.h"

namespace ridge {

// Nanoseconds as microseconds with three decimals: exact, which no double would be.
struct Microseconds {
  std::int64_t ns;
};

template <class Out>
void append(Out out, Microseconds time) {
  const std::uint64_t ns =
      time.ns < 0 ? -static_cast<std::uint64_t>(time.ns) : static_cast<std::uint64_t>(time.ns);
  fmt::format_to(out, "{}{}.{:03}", time.ns < 0 ? "-" : "", ns / 1000, ns % 1000);
}

// The events of a Chrome trace, one a line, up to a number of bytes; gzip if the path ends in
// ".gz". The file appears when it is committed.
class EventList {
 public:
  explicit EventList(const std::filesystem::path& path) : file_(path) {
    if (path.extension() == ".gz") gzip_.emplace(file_);
  }

  void text(std::string_view text) {
    if (gzip_)
      gzip_->write(text);
    else
      file_.write(text);
    size_.bytes += text.size();
  }

  // The file may grow to so many bytes from now on.
  void allow(std::uint64_t max_bytes) {
    max_bytes_ = max_bytes;
    full_ = false;
  }

  // Takes an event, unless it or one before it did not fit.
  void event(std::string_view event) {
    constexpr std::uint64_t closing = 4096;  // for what follows the events
    full_ |= size_.bytes + event.size() + closing > max_bytes_;
    if (full_) {
      ++size_.left_out;
      return;
    }
    text(size_.events++ == 0 ? "\n" : ",\n");
    text(event);
  }

  const TraceSize& size() const { return size_; }

  void commit() {
    if (gzip_) gzip_->finish();
    file_.commit();
  }

 private:
  AtomicFile file_;
  std::optional<GzipWriter> gzip_;
  std::uint64_t max_bytes_ = 0;
  TraceSize size_;
  bool full_ = false;
};

}  // namespace ridge
