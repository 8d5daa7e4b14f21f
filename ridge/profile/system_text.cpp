#include "ridge/profile/system_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <span>
#include <utility>

namespace ridge {
namespace {

constexpr double sector_bytes = 512;  // of /proc/diskstats, whatever the disk's own are

// Takes the next line off a text.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

// Takes the next word off a line; empty at its end.
std::string_view take_word(std::string_view& line) {
  const std::size_t begin = std::min(line.find_first_not_of(" \t"), line.size());
  const std::size_t end = std::min(line.find_first_of(" \t", begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

double number_of(std::string_view word) {
  double value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value;
}

// Takes words off a line, as numbers. What is not there is 0.
void take_numbers(std::string_view& line, std::span<double> numbers) {
  for (double& number : numbers) number = number_of(take_word(line));
}

// "user nice system idle iowait irq softirq steal"; the time of guests is within user.
CoreTicks ticks_of(std::string_view line) {
  double n[8] = {};
  take_numbers(line, n);
  return {.busy = n[0] + n[1] + n[2] + n[5] + n[6], .waiting = n[4], .stolen = n[7]};
}

}  // namespace

double ticks_per_second() { return static_cast<double>(::sysconf(_SC_CLK_TCK)); }

std::optional<StatText> parse_stat(std::string_view text) {
  StatText stat;
  bool any = false;
  while (!text.empty()) {
    std::string_view line = take_line(text);
    const std::string_view name = take_word(line);
    if (name == "ctxt") stat.context_switches = number_of(take_word(line));
    if (!name.starts_with("cpu")) continue;
    any = true;
    if (name == "cpu") {
      stat.all = ticks_of(line);
      continue;
    }
    constexpr std::size_t most_cores = 1 << 16;
    std::size_t core = 0;
    const auto parsed = std::from_chars(name.data() + 3, name.data() + name.size(), core);
    if (parsed.ec != std::errc() || core >= most_cores) continue;
    stat.cores.resize(std::max(stat.cores.size(), core + 1));
    stat.cores[core] = ticks_of(line);
  }
  return any ? std::optional(stat) : std::nullopt;
}

std::vector<double> parse_cpuinfo_mhz(std::string_view text) {
  std::vector<double> mhz;
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (!line.starts_with("cpu MHz")) continue;
    line.remove_prefix(std::min(line.find(':') + 1, line.size()));
    mhz.push_back(number_of(take_word(line)));
  }
  return mhz;
}

std::optional<double> number_behind(std::string_view text, std::string_view word) {
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (take_word(line) != word) continue;
    const std::string_view number = take_word(line);
    double value = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), value);
    return parsed.ec == std::errc() ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<ProcessText> parse_process(std::string_view text) {
  // "12 (a name) S 1 ..": the name may have spaces and brackets of its own.
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return std::nullopt;
  ProcessText process;
  process.id = static_cast<std::int64_t>(number_of(text.substr(0, open)));
  process.name = text.substr(open + 1, close - open - 1);
  std::string_view rest = text.substr(close + 1);
  const std::string_view state = take_word(rest);
  if (process.id <= 0 || state.empty()) return std::nullopt;
  process.state = state.front();
  double n[21] = {};  // from field 4 of proc(5), the parent, to field 24, rss
  take_numbers(rest, n);
  process.parent = static_cast<std::int64_t>(n[0]);
  process.own_faults = n[6];
  process.own_disk_faults = n[8];
  process.faults = n[6] + n[7];
  process.disk_faults = n[8] + n[9];
  process.ticks = n[10] + n[11];
  process.ticks_of_children = std::max(0.0, n[12] + n[13]);
  process.started = static_cast<std::uint64_t>(std::max(0.0, n[18]));
  process.resident_pages = static_cast<std::uint64_t>(std::max(0.0, n[20]));
  return process;
}

DiskText parse_diskstats(std::string_view text, const std::vector<std::string>& disks) {
  DiskText sum;
  while (!text.empty()) {
    std::string_view line = take_line(text);
    take_word(line);
    take_word(line);
    if (std::ranges::find(disks, take_word(line)) == disks.end()) continue;
    double n[10] = {};  // reads, merged, sectors, ms; the same of writes; in progress, ms busy
    take_numbers(line, n);
    sum.read_bytes += n[2] * sector_bytes;
    sum.written_bytes += n[6] * sector_bytes;
    sum.busy_ms += n[9];
  }
  return sum;
}

NetworkText parse_net_dev(std::string_view text) {
  NetworkText sum;
  while (!text.empty()) {
    std::string_view line = take_line(text);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view name = line.substr(0, colon);
    line.remove_prefix(colon + 1);
    if (take_word(name) == "lo") continue;
    double n[9] = {};  // eight of what is received, then bytes sent
    take_numbers(line, n);
    sum.received_bytes += n[0];
    sum.sent_bytes += n[8];
  }
  return sum;
}

std::optional<double> parse_pressure(std::string_view text) {
  constexpr std::string_view total = "total=";
  const std::string_view line = take_line(text);
  const std::size_t at = line.find(total);
  if (!line.starts_with("some") || at == std::string_view::npos) return std::nullopt;
  return number_of(line.substr(at + total.size()));
}

RereadFile::RereadFile(const std::filesystem::path& path)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) error_ = errno;
}

RereadFile::RereadFile(RereadFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      error_(other.error_),
      text_(std::move(other.text_)) {}

RereadFile& RereadFile::operator=(RereadFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(error_, other.error_);
  std::swap(text_, other.text_);
  return *this;
}

RereadFile::~RereadFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string_view RereadFile::read() {
  if (descriptor_ < 0) return {};
  constexpr std::size_t first = 4096, most = std::size_t{4} << 20;
  if (text_.empty()) text_.resize(first);
  std::size_t size = 0;
  while (size < most) {
    const ssize_t n =
        ::pread(descriptor_, text_.data() + size, text_.size() - size, static_cast<off_t>(size));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // such as of a process that has ended
    size += static_cast<std::size_t>(n);
    if (size == text_.size()) text_.resize(2 * text_.size());
  }
  return std::string_view(text_).substr(0, size);
}

}  // namespace ridge
