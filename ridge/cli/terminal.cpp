#include "ridge/cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "ridge/base/error.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

constexpr std::int64_t bar_width = 24;

bool is_dumb() {
  const char* term = std::getenv("TERM");
  return !term || std::string_view(term) == "dumb";
}

bool wants_no_color() {
  const char* value = std::getenv("NO_COLOR");
  return value && *value;
}

std::size_t columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

Terminal::Terminal()
    : has_bar_(::isatty(STDERR_FILENO) != 0 && !is_dumb()),
      has_colors_(::isatty(STDOUT_FILENO) != 0 && !is_dumb() && !wants_no_color()) {}

void Terminal::line(std::string_view text) {
  erase();
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fputc('\n', stdout) == EOF || std::fflush(stdout) != 0)
    throw IoError("cannot write to standard output: {}", std::generic_category().message(errno));
}

void Terminal::busy(std::string_view what) { show(what); }

void Terminal::progress(std::int64_t done, std::int64_t total, double seconds_left) {
  if (!has_bar_) return;
  const std::int64_t filled = bar_width * done / total;
  show(fmt::format("[{}{}] {:3}%  {}/{}  {} left",
                   std::string(static_cast<std::size_t>(filled), '#'),
                   std::string(static_cast<std::size_t>(bar_width - filled), '.'),
                   100 * done / total, done, total, format_duration(std::max(1.0, seconds_left))));
}

// A bar wider than the terminal would wrap, and could not be erased.
void Terminal::show(std::string_view text) {
  if (!has_bar_) return;
  std::fputs(fmt::format("\r\x1b[K{}", text.substr(0, columns() - 1)).c_str(), stderr);
  std::fflush(stderr);
  shown_ = true;
}

void Terminal::erase() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

std::string Terminal::bold(std::string_view text) const {
  return has_colors_ ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
}

std::function<void(std::int64_t done, std::int64_t all)> progress_on(Terminal& terminal) {
  return
      [&terminal, begin = std::chrono::steady_clock::now()](std::int64_t done, std::int64_t all) {
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        terminal.progress(done, all,
                          seconds / static_cast<double>(done) * static_cast<double>(all - done));
      };
}

std::function<void(std::string_view work, std::size_t number, std::size_t of)> tuning_on(
    Terminal& terminal) {
  return [&terminal](std::string_view work, std::size_t number, std::size_t of) {
    terminal.busy(fmt::format("Timing candidate {} of {} for {}...", number, of, work));
  };
}

}  // namespace ridge
