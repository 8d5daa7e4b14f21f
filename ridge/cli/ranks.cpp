#include "ridge/cli/ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "ridge/base/digest.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/system.h"
#include "ridge/base/version.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/terminal.h"
#include "ridge/cli/workshop_names.h"
#include "ridge/device/gathered.h"
#include "ridge/dist/meeting.h"
#include "ridge/session/devices.h"
#include "ridge/session/loop.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// What other ranks have after one has failed, to notice that and end by themselves.
constexpr auto time_to_end = 4s;

std::string words_name(int rank) { return fmt::format("last-words-{}", rank); }

// Ranks of another version, or with other options, would wait for each other in vain or, worse,
// not.
void check_alike(const RunOptions& options, Communicator& communicator) {
  const std::uint64_t own =
      fnv1a(fmt::format("{} {} {}", version(), commit(), to_json(course_of(options))));
  const std::vector<std::uint64_t> all = gathered(communicator, own);
  const auto other = std::ranges::find_if(all, [&](std::uint64_t x) { return x != all.front(); });
  if (other != all.end())
    throw UsageError("rank {} is another version of Ridge than rank 0, or has other options",
                     other - all.begin());
}

// More ranks than were meant to be on a GPU would compute, one after the other, and take longer
// than one alone.
void check_cards(const RunOptions& options, const Device& device, Communicator& communicator) {
  std::array<char, 128> own{}, none{};
  if (device.is_gpu())
    fmt::format_to_n(own.data(), own.size() - 1, "{} of {}", device.info().bus_id, host_name());
  const auto sharing = std::ranges::count(gathered(communicator, own), own);
  if (own == none || options.ranks_per_gpu == 0 || sharing <= options.ranks_per_gpu) return;
  throw UsageError(
      "{} ranks are on GPU {}: give each a GPU of its own, or, for tests, --ranks-per-gpu {}",
      sharing, own.data(), sharing);
}

int work_as_rank(const Rank& rank, RunOptions options, const RankWork& work) {
  if (options.ranks != 1 && options.ranks != rank.count)
    throw UsageError("--ranks is {}, but {} started {} processes", options.ranks, rank.launcher,
                     rank.count);
  options.ranks = rank.count;
  options.resolve();
  if (options.threads == 0) options.threads = threads_of_rank(rank.on_host);
  const std::unique_ptr<Device> device =
      open_device(options, gpu_of_rank(options, rank.index_on_host));
  std::shared_ptr<Communicator> communicator = meet(rank, meeting_of(rank, process_environment()));
  check_alike(options, *communicator);
  check_cards(options, *device, *communicator);
  device->join(std::move(communicator));
  return work(options, *device);
}

void print_nothing() {
  const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nothing < 0 || ::dup2(nothing, STDOUT_FILENO) < 0)
    throw IoError("cannot open /dev/null for the output of a rank");
  ::close(nothing);
}

// What this process was started with, its own name first.
std::vector<std::string> command_line() {
  const std::string text = read_text_file("/proc/self/cmdline", std::size_t{1} << 24);
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  words.front() = fs::path(words.front()).filename().string();
  return words;
}

// The same as `ridge` takes it.
std::vector<std::string> own_arguments() {
  std::vector<std::string> words = command_line();
  const std::string name = words.front();
  words.erase(words.begin());
  return workshop_command(name, words).value_or(words);
}

// The processes of one attempt.
class Ranks {
 public:
  // `resume` names a checkpoint to go on from, unless it is empty.
  Ranks(std::int64_t count_of_ranks, const std::string& resume)
      : server_({"127.0.0.1", 0}), count_(static_cast<int>(count_of_ranks)) {
    std::vector<std::string> command{this_program};
    for (std::string& word : own_arguments()) command.push_back(std::move(word));
    if (!resume.empty()) command.insert(command.end(), {"--resume", resume});
    const std::string port = std::to_string(server_.port()), count = std::to_string(count_);
    for (int rank = 0; rank < count_; ++rank) {
      const std::string number = std::to_string(rank);
      processes_.push_back(std::make_unique<ChildProcess>(
          ChildCommand{.words = command,
                       .shares_output = true,
                       .environment = {{rendezvous_variable, "127.0.0.1:" + port},
                                       {"RANK", number},
                                       {"LOCAL_RANK", number},
                                       {"WORLD_SIZE", count},
                                       {"LOCAL_WORLD_SIZE", count}}}));
    }
  }

  // Waits for all of them, and ends those that go on after one has failed.
  std::vector<std::pair<int, RankEnd>> wait() {
    while (static_cast<int>(ends_.size()) < count_) {
      look();
      if (const int signal = interrupt_noted(); signal != 0 && signal != passed_on_) {
        passed_on_ = signal;
        for (const auto& process : processes_) process->send(signal);
      }
      if (failed_ && Clock::now() > *failed_ + time_to_end && !stopped_) {
        stopped_ = true;
        for (const auto& process : processes_) process->send(SIGKILL);
      }
    }
    return ends_;
  }

 private:
  void look() {
    for (int rank = 0; rank < count_; ++rank) {
      if (has_ended(rank)) continue;
      const auto end = processes_[static_cast<std::size_t>(rank)]->wait_for(20ms / count_ + 1ms);
      if (!end) continue;
      ends_.push_back({rank, {*end, stopped_, server_.left(words_name(rank)).value_or("")}});
      if (!end->ok() && !failed_) failed_ = Clock::now();
    }
  }
  bool has_ended(int rank) const {
    return std::ranges::any_of(ends_, [&](const auto& end) { return end.first == rank; });
  }

  RendezvousServer server_;
  int count_;
  std::vector<std::unique_ptr<ChildProcess>> processes_;
  std::vector<std::pair<int, RankEnd>> ends_;  // in that order
  std::optional<Clock::time_point> failed_;    // when the first did
  bool stopped_ = false;
  int passed_on_ = 0;
};

// The checkpoint that a run has written since it began; empty if there is none.
fs::path checkpoint_of(const RunOptions& options, fs::file_time_type begin) {
  const fs::path file = fs::path(options.output_dir) / "checkpoint.safetensors";
  std::error_code fault;
  const auto written = fs::last_write_time(file, fault);
  return options.save_every > 0 && !fault && written >= begin ? file : fs::path();
}

std::string rest_of(const RunOptions& options, const fs::path& checkpoint) {
  if (!checkpoint.empty())
    return fmt::format("the last checkpoint is intact: go on with --resume {}",
                       checkpoint.string());
  return nothing_saved(options);
}

}  // namespace

std::optional<Rank> one_of_several() {
  const std::optional<Rank> rank = rank_from(process_environment());
  return rank && rank->count > 1 ? rank : std::nullopt;
}

int run_as_rank(const Rank& rank, RunOptions options, const RankWork& work) {
  if (rank.index > 0) print_nothing();
  const auto at = process_environment()(rendezvous_variable);
  if (!at) return work_as_rank(rank, std::move(options), work);
  // Who started this rank tells of its end.
  const Rendezvous home(meeting_of(rank, process_environment()).at, 1s);
  const auto leave = [&](const std::exception& fault, int exit_code) {
    home.leave(words_name(rank.index), fault.what());
    return exit_code;
  };
  try {
    return work_as_rank(rank, std::move(options), work);
  } catch (const RankError& fault) {
    return leave(fault, lost_rank_exit);
  } catch (const UsageError& fault) {
    return leave(fault, 2);
  } catch (const std::exception& fault) {
    return leave(fault, 1);
  }
}

std::optional<std::string> fault_of(std::span<const std::pair<int, RankEnd>> ends) {
  // The first that failed by itself; else one that the others waited for, which did not end; else
  // any that lost another.
  for (const auto& [rank, end] : ends) {
    if (end.was_stopped || end.end.exit_code == lost_rank_exit) continue;
    if (end.end.signal != 0)
      return fmt::format("rank {} was ended by {}", rank, to_string(end.end));
    if (!end.words.empty()) return fmt::format("rank {}: {}", rank, end.words);
  }
  for (const auto& [rank, end] : ends)
    if (end.was_stopped && end.end.signal != 0)
      return fmt::format("rank {} did not answer the others, and was ended", rank);
  for (const auto& [rank, end] : ends)
    if (end.end.exit_code == lost_rank_exit) return fmt::format("rank {}: {}", rank, end.words);
  return std::nullopt;
}

int run_ranks(const RunOptions& options, int restarts) {
  gpu_of_rank(options, static_cast<int>(options.ranks) - 1);  // refuses more than there is room for
  if (command_line().front() == "torchrun") Terminal().line("**** Launching with torchrun ****");
  RunOptions attempt = options;
  note_interrupts();
  for (int left = restarts;; --left) {
    const auto begin = fs::file_time_type::clock::now();
    Ranks ranks(attempt.ranks, attempt.resume);
    const auto ends = ranks.wait();
    const std::optional<std::string> fault = fault_of(ends);
    if (!fault) return ends.front().second.end.exit_code;
    // Told to end before it could note that.
    if (const int signal = interrupt_noted();
        signal != 0 && ends.front().second.end.signal == signal)
      return 128 + signal;
    const bool is_usage = std::ranges::any_of(ends, [](const auto& end) {
      return end.second.end.exit_code == 2 && !end.second.words.empty();
    });
    if (is_usage) throw UsageError("{}", *fault);
    const fs::path checkpoint = checkpoint_of(attempt, begin);
    if (left <= 0 || interrupt_noted() != 0)
      throw Error("{}; {}", *fault, rest_of(attempt, checkpoint));
    fmt::print(stderr, "ridge: {}; starting again from {}\n", *fault,
               checkpoint.empty() ? attempt.resume.empty() ? "the beginning" : attempt.resume
                                  : checkpoint.string());
    if (!checkpoint.empty()) attempt.resume = checkpoint.string();
  }
}

}  // namespace ridge
