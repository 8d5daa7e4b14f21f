#include "ridge/cli/study_rounds.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "ridge/base/child_process.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/cli/interrupt.h"
#include "ridge/cli/keep_run.h"
#include "ridge/report/report_page.h"
#include "ridge/study/study_result.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds glance{200};
constexpr std::size_t longest_fault = 300;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Holds a directory for this process, so that no two measure one study.
class DirectoryLock {
 public:
  DirectoryLock(const fs::path& directory, const std::string& study)
      : descriptor_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0)
      throw IoError("cannot open {}: {}", directory.string(), std::strerror(errno));
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    ::close(descriptor_);
    throw IoError("another process measures the study {} now, into {}", study, directory.string());
  }
  ~DirectoryLock() { ::close(descriptor_); }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int descriptor_;
};

// How long the turns that are left will take, by what those before took.
class Clockwork {
 public:
  void took(std::size_t variant, double seconds) { durations_[variant].push_back(seconds); }
  double expected(std::size_t variant) const {
    const auto known = durations_.find(variant);
    if (known != durations_.end()) return statistics_of(known->second).mean;
    std::vector<double> means;
    for (const auto& [other, durations] : durations_)
      means.push_back(statistics_of(durations).mean);
    return statistics_of(means).mean;
  }

 private:
  std::map<std::size_t, std::vector<double>> durations_;
};

// The last line that a program printed, without its name.
std::string last_line(const fs::path& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);)
    if (line.find_first_not_of(" \t=-") != std::string::npos) last = line;
  constexpr std::string_view name = "ridge: ";
  if (last.starts_with(name)) last.erase(0, name.size());
  return shortened(printable(last), longest_fault);
}

class StudyRounds {
 public:
  StudyRounds(const fs::path& store_file, const std::string& name, Terminal& terminal)
      : terminal_(terminal),
        store_(store_file),
        name_(name),
        definition_(study_from_json(store_.study(name).definition)),
        output_(definition_.output) {
    for (const char* part : {"variants", "logs"}) make_directories(output_ / part);
    lock_.emplace(output_, name);
    note_interrupts();
    for (std::size_t v = 0; v < definition_.variants.size(); ++v)
      write_text_file(config_file(v, ""), config_of(v, false));
  }

  int run() {
    read_taken();
    for (std::int64_t round = 1; round <= definition_.rounds && !interrupt_noted(); ++round)
      take_round(round);
    if (definition_.profiles)
      for (std::size_t v = 0; v < definition_.variants.size() && !interrupt_noted(); ++v)
        if (!dead_.contains(v)) profile(v);
    terminal_.erase();
    return interrupt_noted();
  }

 private:
  using Turn = std::pair<std::int64_t, std::size_t>;  // round, variant

  std::string number(std::size_t v) const { return fmt::format("{:02}", v + 1); }
  fs::path config_file(std::size_t v, std::string_view end) const {
    return output_ / "variants" / fmt::format("{}{}.json", number(v), end);
  }
  fs::path profile_dir(std::size_t v) const { return output_ / "profiles" / number(v); }
  bool trains(std::size_t v) const {
    return definition_.variants[v].options.use() == Use::training;
  }

  // What the process reads with --config: the variant, and where it writes.
  std::string config_of(std::size_t v, bool profiled) const {
    RunOptions options = definition_.variants[v].options;
    options.output_dir = (output_ / "runs" / number(v)).string();
    if (profiled) {
      RunOptions wanted = definition_.profile;
      const std::vector<OptionInfo> from = options_of(wanted), to = options_of(options);
      for (std::size_t i = 0; i < from.size(); ++i)
        if (from[i].group == "Profiling")
          std::visit([&]<class T>(T* value) { *std::get<T*>(to[i].target) = *value; },
                     from[i].target);
      if (!options.profiling()) options.enable_all_profiling = true;
      options.profile_dir = profile_dir(v).string();
    }
    return to_json(options);
  }

  ChildCommand command(std::size_t v, const fs::path& config, const fs::path& log) const {
    return {.words = {this_program, trains(v) ? "train" : "bench", "--config", config.string()},
            .output = log,
            .environment = {{"RIDGE_STORE", ""}}};
  }

  void read_taken() {
    const StudyResult result = read_study(store_, name_);
    for (std::size_t v = 0; v < result.variants.size(); ++v)
      if (result.variants[v].is_done && result.variants[v].outcome != "measured") dead_.insert(v);
    taken_.clear();
    for (const StudyEntry& entry : store_.study_entries(name_))
      if (entry.run)
        taken_.insert({entry.turn.round, static_cast<std::size_t>(entry.turn.variant)});
    // A run that diverged is one, and its variant alive.
    std::erase_if(dead_, [&](std::size_t v) { return count_taken(v) == definition_.rounds; });
  }
  std::int64_t count_taken(std::size_t v) const {
    return std::ranges::count_if(taken_, [&](const Turn& turn) { return turn.second == v; });
  }
  // The turns that are left, this one among them, and how long they will take.
  struct Ahead {
    std::int64_t turns = 0;
    double seconds = 0;
  };
  Ahead ahead() const {
    std::vector<std::int64_t> left(definition_.variants.size(), definition_.rounds);
    for (const Turn& turn : taken_) --left[turn.second];
    Ahead all;
    for (std::size_t v = 0; v < left.size(); ++v) {
      if (dead_.contains(v)) continue;
      all.turns += left[v];
      all.seconds += static_cast<double>(left[v]) * clockwork_.expected(v);
    }
    return all;
  }

  void take_round(std::int64_t round) {
    const auto begin = Clock::now();
    std::int64_t count = 0;
    for (const std::size_t v : order_of_round(definition_, round)) {
      if (dead_.contains(v) || taken_.contains({round, v})) continue;
      if (interrupt_noted()) return;
      take_turn(round, v);
      if (interrupt_noted()) return;
      ++count;
    }
    if (count > 0)
      terminal_.line(fmt::format("Round {} of {} is done: {} in {}", round, definition_.rounds,
                                 counted(count, "measurement"),
                                 format_duration(seconds_since(begin))));
  }

  void take_turn(std::int64_t round, std::size_t v) {
    const StudyTurn turn{.variant = static_cast<std::int64_t>(v), .round = round};
    const fs::path log = output_ / "logs" / fmt::format("{}-round-{}.log", number(v), round);
    ChildCommand child = command(v, config_file(v, ""), log);
    child.words.insert(child.words.end(),
                       {"--store", store_.file().string(), std::string(study_turn_flag),
                        study_turn_text(name_, turn)});
    const auto begin = Clock::now();
    const std::string fault = wait_for(child, log, v);
    if (interrupt_noted()) return;
    clockwork_.took(v, seconds_since(begin));
    if (store_.has_run(name_, turn)) {
      taken_.insert({round, v});
      return;
    }
    const std::string why = fault.empty() ? "it kept no run" : fault;
    store_.add_fault(name_, turn, why);
    dead_.insert(v);
    terminal_.line(fmt::format("{} failed in round {}: {}; see {}",
                               name_of(definition_.variants[v]), round, why, log.string()));
  }

  // Why the process came to no good end; empty if it came to one, or was interrupted.
  std::string wait_for(const ChildCommand& command, const fs::path& log, std::size_t v) {
    ChildProcess child(command);
    const auto begin = Clock::now();
    const Ahead all = ahead();  // once: what is measured wants the processor
    for (;;) {
      show_progress(v, all, seconds_since(begin));
      if (const auto end = child.wait_for(glance)) return fault_of(*end, log);
      if (interrupt_noted()) return "";  // which kills it
      if (seconds_since(begin) > definition_.time_limit)
        return fmt::format("no end after {}", format_duration(definition_.time_limit));
    }
  }
  static std::string fault_of(const ChildEnd& end, const fs::path& log) {
    if (end.ok()) return "";
    if (end.signal == SIGKILL)
      return fmt::format("{}, as the system does where memory runs out", to_string(end));
    const std::string said = last_line(log);
    return to_string(end) + (said.empty() ? "" : ": " + said);
  }

  void show_progress(std::size_t now, const Ahead& all, double elapsed) {
    const double seconds = all.seconds - std::min(elapsed, clockwork_.expected(now));
    const auto done = std::ssize(taken_);
    if (all.turns > 0 && seconds > 0)
      terminal_.progress(done, done + all.turns, seconds);
    else
      terminal_.busy(fmt::format("Measuring {}...", name_of(definition_.variants[now])));
  }

  void profile(std::size_t v) {
    std::error_code ignored;
    if (fs::exists(profile_dir(v) / "operators.json", ignored)) return keep_profile(v);
    make_directories(profile_dir(v));
    const fs::path config = config_file(v, "-profile");
    write_text_file(config, config_of(v, true));
    const fs::path log = output_ / "logs" / fmt::format("{}-profile.log", number(v));
    const std::string fault = wait_for(command(v, config, log), log, v);
    if (interrupt_noted()) return;
    const std::string& name = name_of(definition_.variants[v]);
    terminal_.line(fault.empty() ? fmt::format("Profiled {} into {}", name, profile_dir(v).string())
                                 : fmt::format("The profile of {} failed: {}; see {}", name, fault,
                                               log.string()));
    if (fault.empty()) keep_profile(v);
  }

  // The store has it with the newest of the variant's runs, and leads there from the others.
  void keep_profile(std::size_t v) {
    const std::vector<RunRow> runs = read_study(store_, name_).variants[v].runs;
    if (runs.empty() || store_.profiled_run(runs.back().id)) return;
    try {
      store_.set_profile(runs.back().id, kept_profile(profile_dir(v)).dump());
    } catch (const Error& error) {
      terminal_.line(fmt::format("The profile of {} is not kept in the store: {}",
                                 name_of(definition_.variants[v]), error.what()));
    }
  }

  Terminal& terminal_;
  Store store_;
  std::string name_;
  StudyDefinition definition_;
  fs::path output_;
  std::optional<DirectoryLock> lock_;
  std::set<Turn> taken_;
  std::set<std::size_t> dead_;  // variants that take no turn any more
  Clockwork clockwork_;
};

}  // namespace

int measure_study(const fs::path& store_file, const std::string& name, Terminal& terminal) {
  return StudyRounds(fs::absolute(store_file), name, terminal).run();
}

}  // namespace ridge
