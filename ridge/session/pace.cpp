#include "ridge/session/pace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "ridge/base/error.h"
#include "ridge/base/statistics.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t most_steps = 1'000'000;  // of a turn
constexpr double most_slowdown = 100;

// Takes a number, and the character behind it if there is more text, from the front of `text`.
template <class T>
bool take_number(std::string_view& text, T& value) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.empty()) text.remove_prefix(1);
  return true;
}

bool is_socket(int descriptor) {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

double median(const std::vector<double>& values) { return percentile(values, 0.5); }

std::string field(double value) { return value > 0 ? fmt::format("{}", value) : "-"; }

}  // namespace

std::string to_line(const PacedTurn& turn) {
  return fmt::format("{} {} {} {} {}", turn.seconds, field(turn.forward), field(turn.backward),
                     field(turn.optimizer), turn.loss);
}

PacedTurn paced_turn_from(std::string_view line) {
  PacedTurn turn;
  std::string_view rest = line;
  double* const fields[] = {&turn.seconds, &turn.forward, &turn.backward, &turn.optimizer,
                            &turn.loss};
  for (double* value : fields) {
    if (rest.starts_with("- ")) {
      rest.remove_prefix(2);
    } else if (!take_number(rest, *value)) {
      throw FormatError("a run that is paced answered '{}', which is no turn", line);
    }
  }
  if (!rest.empty() || !(turn.seconds > 0) || !std::isfinite(turn.seconds))
    throw FormatError("a run that is paced answered '{}', which is no turn", line);
  return turn;
}

std::unique_ptr<Pace> Pace::open() {
  const char* const value = std::getenv(pace_variable);
  if (value == nullptr) return nullptr;
  const std::string text = value;
  ::unsetenv(pace_variable);
  std::string_view rest = text;
  int socket = -1;
  double slowdown = 1;
  const bool sound = take_number(rest, socket) && (rest.empty() || take_number(rest, slowdown)) &&
                     rest.empty() && slowdown >= 1 && slowdown <= most_slowdown;
  if (!sound || !is_socket(socket))
    throw UsageError("{} is '{}', which names no socket: it is ridge gate's to set", pace_variable,
                     text);
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  return std::make_unique<Pace>(socket, slowdown);
}

Pace::Pace(int socket, double slowdown) : socket_(socket), slowdown_(slowdown) {
  ended_ = !write_line(pace_greeting);
}

Pace::~Pace() { ::close(socket_); }

// What the loop had to do after the last step of a turn is done by now: the other's turn begins
// when this process sleeps.
bool Pace::wait() {
  if (!seconds_.empty() && timed_ == 0) answer();
  while (!ended_ && untimed_ + timed_ == 0) ended_ = !read_request();
  if (ended_) ::shutdown(socket_, SHUT_RDWR);  // who asks need not wait for the run's last files
  return !ended_;
}

bool Pace::read_request() {
  std::size_t end = 0;
  while ((end = received_.find('\n')) == std::string::npos) {
    std::array<char, 256> bytes;
    const ssize_t got = ::read(socket_, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    received_.append(bytes.data(), static_cast<std::size_t>(got));
  }
  std::string_view line = std::string_view(received_).substr(0, end);
  const bool sound = take_number(line, timed_) && take_number(line, untimed_) && line.empty() &&
                     timed_ >= 1 && timed_ <= most_steps && untimed_ >= 0 && untimed_ <= most_steps;
  received_.erase(0, end + 1);
  return sound;
}

void Pace::begin_step() { begin_ = Clock::now(); }

void Pace::end_step(const StepReport& report) {
  const Clock::duration taken = Clock::now() - begin_;
  const auto end = begin_ + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double, Clock::period>(taken) * slowdown_);
  while (Clock::now() < end) {
  }
  if (untimed_ > 0) {
    --untimed_;
    return;
  }
  seconds_.push_back(slowdown_ * std::chrono::duration<double>(taken).count());
  if (report.has_phases) {
    forward_.push_back(report.forward_seconds);
    backward_.push_back(report.backward_seconds);
    optimizer_.push_back(report.optimizer_seconds);
  }
  loss_ = report.loss;
  --timed_;
}

void Pace::answer() {
  const PacedTurn turn{.seconds = median(seconds_),
                       .forward = median(forward_),
                       .backward = median(backward_),
                       .optimizer = median(optimizer_),
                       .loss = loss_};
  ended_ = !write_line(to_line(turn)) || ended_;
  for (std::vector<double>* values : {&seconds_, &forward_, &backward_, &optimizer_})
    values->clear();
}

// A line is less than the socket takes at once. Who asked may have gone meanwhile.
bool Pace::write_line(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  ssize_t written = 0;
  do {
    written = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  } while (written < 0 && errno == EINTR);
  return written == static_cast<ssize_t>(text.size());
}

}  // namespace ridge
