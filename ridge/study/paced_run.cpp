#include "ridge/study/paced_run.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "ridge/base/child_process.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/text_table.h"
#include "ridge/session/pace.h"
#include "ridge/study/store.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto slice = std::chrono::milliseconds(100);  // between questions whether to stop
// A process that says nothing for so long hangs. To prepare a model may take minutes, if kernels
// are timed; a step takes about as long as those before it.
constexpr double longest_start = 600, longest_step = 10;  // seconds
constexpr double step_patience = 50;                      // times the longest turn so far
constexpr std::size_t max_record_bytes = std::size_t{256} << 20;
constexpr std::size_t max_output_bytes = std::size_t{64} << 20;

// Both ends of a connection; neither outlives its owner.
struct SocketPair {
  int ends[2] = {-1, -1};

  SocketPair() {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw IoError("cannot make a socket: {}", std::strerror(errno));
  }
  ~SocketPair() {
    close_end(0);
    close_end(1);
  }
  SocketPair(const SocketPair&) = delete;
  SocketPair& operator=(const SocketPair&) = delete;
  void close_end(int which) {
    if (ends[which] >= 0) ::close(ends[which]);
    ends[which] = -1;
  }
};

std::vector<std::string> words_of(const PacedRunConfig& config) {
  std::vector<std::string> words{config.program.string()};
  words.insert(words.end(), config.command.begin(), config.command.end());
  if (config.command.front() == "train") {
    words.insert(words.end(), {"--output-dir", config.directory.string()});
  } else {
    words.insert(words.end(), {"--export-json", (config.directory / "record.json").string()});
  }
  return words;
}

class ProcessRacer final : public Racer {
 public:
  explicit ProcessRacer(const PacedRunConfig& config) : config_(config) {
    fs::remove_all(config.directory);
    make_directories(config.directory);
    ChildCommand command{.words = words_of(config),
                         .output = output(),
                         .environment = {{"RIDGE_STORE", store().string()}}};
    if (config.paced) {
      command.keeps = sockets_.ends[1];
      command.environment.emplace_back(pace_variable,
                                       fmt::format("{}:{:.6f}", sockets_.ends[1], config.slowdown));
    }
    process_ = std::make_unique<ChildProcess>(command);
    sockets_.close_end(1);
  }

  bool ready() override {
    if (!config_.paced) {
      await_end(0);
      return false;
    }
    const std::optional<std::string> line = read_line(longest_start, "prepares");
    if (!line) {
      await_end(longest_step);
      return false;
    }
    if (*line != pace_greeting)
      throw Error("{} greets with '{}': it is no program that this one can pace", name(),
                  printable(*line));
    return true;
  }

  PacedTurn take(std::int64_t timed, std::int64_t untimed) override {
    const std::string request = fmt::format("{} {}\n", timed, untimed);
    const auto begin = Clock::now();
    const bool sent = ::send(sockets_.ends[0], request.data(), request.size(), MSG_NOSIGNAL) ==
                      static_cast<ssize_t>(request.size());
    const double patience =
        longest_turn_ > 0 ? std::max(longest_step, step_patience * longest_turn_) : longest_start;
    const std::optional<std::string> line =
        sent ? read_line(patience, "takes a step") : std::nullopt;
    if (!line) {
      await_end(longest_step);
      throw Error("{} ended in the middle of its steps", name());
    }
    longest_turn_ =
        std::max(longest_turn_, std::chrono::duration<double>(Clock::now() - begin).count());
    return paced_turn_from(*line);
  }

  void release() override { sockets_.close_end(0); }

  RunDocument finish() override {
    release();
    await_end(std::max(longest_start, step_patience * longest_turn_));
    return document();
  }

 private:
  fs::path output() const { return config_.directory / "output.txt"; }
  fs::path store() const { return config_.directory / "runs.db"; }
  std::string name() const {
    return fmt::format("{} {}", config_.program.string(), config_.command.front());
  }

  void check_stop() const {
    if (config_.stop && config_.stop()) throw GateInterrupted();
  }

  // None if the other end is closed. Error if nothing comes for so many seconds.
  std::optional<std::string> read_line(double patience, std::string_view what) {
    const auto begin = Clock::now();
    for (;;) {
      if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
        std::string line = received_.substr(0, end);
        received_.erase(0, end + 1);
        return line;
      }
      check_stop();
      if (std::chrono::duration<double>(Clock::now() - begin).count() > patience)
        throw Error("{} hangs: it {} for more than {:.0f} s", name(), what, patience);
      pollfd waited{.fd = sockets_.ends[0], .events = POLLIN, .revents = 0};
      if (::poll(&waited, 1, static_cast<int>(slice.count())) <= 0) continue;
      std::array<char, 512> bytes;
      const ssize_t got = ::recv(sockets_.ends[0], bytes.data(), bytes.size(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return std::nullopt;
      received_.append(bytes.data(), static_cast<std::size_t>(got));
    }
  }

  // Throws if it does not end, within so many seconds (0: whenever), as a program should.
  void await_end(double patience) {
    const auto begin = Clock::now();
    std::optional<ChildEnd> end;
    while (!(end = process_->wait_for(slice))) {
      check_stop();
      if (patience > 0 && std::chrono::duration<double>(Clock::now() - begin).count() > patience)
        throw Error("{} hangs: it does not end", name());
    }
    if (end->ok()) return;
    const std::string complaint = last_complaint();
    if (end->signal == 0 && end->exit_code == 2 && !complaint.empty())
      throw UsageError("{}: {}", name(), complaint);
    throw Error("{} ended with {}{}{}", name(), to_string(*end), complaint.empty() ? "" : ": ",
                complaint);
  }

  // What the program said on its last line, if it complained.
  std::string last_complaint() const {
    constexpr std::string_view mark = "ridge: ";
    std::string text;
    try {
      text = read_text_file(output(), max_output_bytes);
    } catch (const IoError&) {
      return {};
    }
    const std::size_t at = text.starts_with(mark) && text.find('\n') + 1 == text.size()
                               ? 0
                               : text.rfind('\n' + std::string(mark)) + 1;
    if (!std::string_view(text).substr(at).starts_with(mark)) return {};
    const std::size_t begin = at + mark.size();
    return printable(text.substr(begin, text.find('\n', begin) - begin));
  }

  // From the store that the program kept its run in, or from its JSON if it knows no store.
  RunDocument document() const {
    try {
      if (fs::exists(store())) {
        Store kept(store());
        if (const RunPage page = kept.list({.limit = 1}); !page.runs.empty())
          return kept.document(page.runs.front().id);
      }
      for (const char* file : {"performance_summary.json", "record.json"})
        if (fs::exists(config_.directory / file))
          return {.record = read_text_file(config_.directory / file, max_record_bytes)};
    } catch (const Error& error) {
      throw Error("{} left a record that cannot be read: {}", name(), error.what());
    }
    throw Error("{} left no record of a run: the command must run one workload to its end", name());
  }

  PacedRunConfig config_;
  SocketPair sockets_;
  std::unique_ptr<ChildProcess> process_;  // after the sockets: it dies before they close
  std::string received_;
  double longest_turn_ = 0;  // seconds
};

}  // namespace

std::unique_ptr<Racer> start_run(const PacedRunConfig& config) {
  return std::make_unique<ProcessRacer>(config);
}

// The directories of both have names of the same length: what the environment takes moves the
// stack.
RaceHooks hooks_of(const ProcessRace& processes) {
  const auto start = [&processes](Side side, bool paced) {
    const bool is_baseline = side == Side::baseline;
    return start_run({.program = is_baseline ? processes.baseline : processes.candidate,
                      .command = processes.command,
                      .directory = processes.scratch / (is_baseline ? "a" : "b"),
                      .slowdown = is_baseline ? 1 : processes.candidate_slowdown,
                      .paced = paced,
                      .stop = processes.stop});
  };
  const auto now = [] {
    return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  };
  return {.start = start, .now = now, .stop = processes.stop};
}

void check_gated_command(const std::vector<std::string>& command) {
  if (command.empty())
    throw UsageError(
        "gate which command? give it behind --, as in ridge gate --baseline "
        "./ridge-before -- train --version v4");
  if (command.front() != "train" && command.front() != "bench")
    throw UsageError("ridge gate runs train or bench, not '{}'", command.front());
  for (const std::string& word : command)
    for (const char* flag : {"--store", "--record", "--tag", "--tags"})
      if (word == flag || word.starts_with(std::string(flag) + "="))
        throw UsageError("{} cannot be gated: the gate keeps runs where it compares them", flag);
}

std::vector<std::string> split_words(std::string_view line) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = 0;
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        *word += c;
    } else if (c == '"' || c == '\'') {
      quote = c;
      if (!word) word.emplace();
    } else if (c == ' ' || c == '\t' || c == '\r') {
      if (word) words.push_back(*std::exchange(word, std::nullopt));
    } else {
      if (!word) word.emplace();
      *word += c;
    }
  }
  if (quote != 0) throw UsageError("the command '{}' has a quote without its other", line);
  if (word) words.push_back(*word);
  return words;
}

}  // namespace ridge
