#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ridge {

// Standard output, line by line, and below it a progress bar on standard error if that is a
// terminal. Each line is flushed, so that a killed run leaves all it had said.
class Terminal {
 public:
  Terminal();
  ~Terminal() { erase(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Prints text and ends the line. IoError if it cannot be written.
  void line(std::string_view text);
  // The same of text that ends its last line itself.
  void lines(std::string_view text) { line(text.substr(0, text.find_last_not_of('\n') + 1)); }

  // Shows what is being done until the next line.
  void busy(std::string_view what);
  void progress(std::int64_t done, std::int64_t total, double seconds_left);
  void erase();

  // Text as it looks on a terminal with colors, unchanged elsewhere (see https://no-color.org).
  std::string bold(std::string_view text) const;

 private:
  void show(std::string_view text);

  bool has_bar_ = false;
  bool has_colors_ = false;
  bool shown_ = false;
};

// Shows, on a terminal that outlives it, how far something is that began now, and how long it will
// take if the rest goes as fast.
std::function<void(std::int64_t done, std::int64_t all)> progress_on(Terminal& terminal);

// Shows which candidate for a kernel is being timed: SessionHooks::trying.
std::function<void(std::string_view work, std::size_t number, std::size_t of)> tuning_on(
    Terminal& terminal);

}  // namespace ridge
