#include "ridge/run/autotuner.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/user_cache.h"
#include "ridge/device/device.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t max_cache_bytes = std::size_t{16} << 20;
constexpr std::string_view format_name = "ridge tuning cache";
constexpr int format_version = 1;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The best times of all candidates, timed in turn, so that whatever else the machine does strikes
// all alike. The best of several times is what the work costs undisturbed. Who is far behind after
// a round is timed no more.
std::vector<double> best_times(std::size_t candidates, const std::function<void(std::size_t)>& run,
                               double budget) {
  constexpr int most_rounds = 25;
  auto begin = Clock::now();
  std::vector<double> best(candidates, std::numeric_limits<double>::infinity());
  std::vector<double> first = best;
  std::vector<std::size_t> alive(candidates);
  for (std::size_t i = 0; i < candidates; ++i) alive[i] = i;
  for (int round = 0; round < most_rounds && alive.size() > 1; ++round) {
    std::vector<std::size_t> missing;
    for (const std::size_t i : alive) {
      const auto start = Clock::now();
      try {
        run(i);
      } catch (const Tuner::NoSuchCandidate&) {
        missing.push_back(i);
        continue;
      }
      // The first run meets cold caches, and memory that the system has yet to provide.
      const double seconds = seconds_since(start);
      if (round == 0)
        first[i] = seconds;
      else
        best[i] = std::min(best[i], seconds);
    }
    std::erase_if(alive, [&](std::size_t i) { return std::ranges::count(missing, i) > 0; });
    if (round == 0) {
      begin = Clock::now();  // what was prepared for it is no part of the search
      continue;
    }
    if (round > 1 && seconds_since(begin) > budget) break;
    const double bound = *std::min_element(best.begin(), best.end()) * (round < 3   ? 2.0
                                                                        : round < 6 ? 1.3
                                                                                    : 1.1);
    std::erase_if(alive, [&](std::size_t i) { return best[i] > bound; });
  }
  // Where one alone exists, nothing but its first run was timed.
  return std::ranges::all_of(best, [](double t) { return std::isinf(t); }) ? first : best;
}

// Times that differ by less than this are taken for equal.
constexpr double clearly_faster = 0.98;

// Held while the cache is read, changed and replaced, so that no process loses another's choices.
// The lock has a file of its own because the cache is replaced. Where the file system has no locks,
// the last to save wins.
class Lock {
 public:
  explicit Lock(const std::filesystem::path& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0)
      throw IoError("cannot write {}: {}", path.string(), std::generic_category().message(errno));
    while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~Lock() { ::close(descriptor_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int descriptor_;
};

}  // namespace

std::size_t fastest_of(std::span<const double> times) {
  std::size_t choice = 0;
  for (std::size_t i = 1; i < times.size(); ++i)
    if (times[i] < clearly_faster * times[choice]) choice = i;
  return choice;
}

Autotuner::Autotuner(Options options) : options_(std::move(options)) { choices_ = load(); }

std::size_t Autotuner::choose(std::string_view key, std::size_t candidates,
                              const std::function<void(std::size_t)>& run) {
  if (candidates < 1) throw UsageError("there are no candidates to choose from for {}", key);
  if (const Choice* known = find(choices_, key, candidates)) {
    ++cached_;
    if (!searched_keys_.contains(key)) remembered_.emplace(key);
    return known->candidate;
  }
  if (candidates == 1 || !options_.searches) return 0;
  ++searched_;
  searched_keys_.emplace(key);
  if (options_.log) options_.log(key, searched_);
  std::vector<bool> tried(candidates, false);
  const auto announced = [&](std::size_t i) {
    if (options_.trying && !tried[i]) options_.trying(key, i + 1, candidates);
    tried[i] = true;
    run(i);
  };
  const std::vector<double> times = best_times(candidates, announced, options_.seconds_per_search);
  const std::size_t fastest_candidate = fastest_of(times);
  Choice choice{fastest_candidate, candidates, times[fastest_candidate]};
  // Where none could be timed, the next process looks again.
  if (!options_.cache.empty() && std::isfinite(choice.seconds)) save(key, choice);
  choices_[options_.hardware].insert_or_assign(std::string(key), choice);
  return choice.candidate;
}

void Autotuner::tell(std::string_view work, std::string_view choice) {
  told_.insert_or_assign(std::string(work), choice);
}

const Autotuner::Choice* Autotuner::find(const Choices& choices, std::string_view key,
                                         std::size_t candidates) const {
  const auto hardware = choices.find(options_.hardware);
  if (hardware == choices.end()) return nullptr;
  const auto choice = hardware->second.find(key);
  if (choice == hardware->second.end() || choice->second.candidates != candidates) return nullptr;
  return &choice->second;
}

Autotuner::Choices Autotuner::load() {
  Choices choices;
  std::error_code ignored;
  if (options_.cache.empty() || !std::filesystem::exists(options_.cache, ignored)) return choices;
  try {
    const auto json = nlohmann::json::parse(read_text_file(options_.cache, max_cache_bytes));
    if (json.at("format") != format_name || json.at("version") != format_version)
      throw FormatError("it is of another format");
    for (const auto& [hardware, keys] : json.at("choices").items())
      for (const auto& [key, value] : keys.items()) {
        const Choice choice{value.at("candidate").get<std::size_t>(),
                            value.at("of").get<std::size_t>(), value.at("seconds").get<double>()};
        if (choice.candidate >= choice.candidates)
          throw FormatError("it has candidate {} of {}", choice.candidate, choice.candidates);
        choices[hardware].emplace(key, choice);
      }
    return choices;
  } catch (const IoError& error) {
    warn(fmt::format("tuning without a cache: {}", error.what()));
  } catch (const FormatError& error) {
    warn(fmt::format("the tuning cache {} is damaged and is begun anew: {}",
                     options_.cache.string(), error.what()));
  } catch (const nlohmann::json::exception&) {  // whose words are for programmers
    warn(fmt::format("the tuning cache {} is damaged and is begun anew: it is not the JSON of one",
                     options_.cache.string()));
  }
  return {};
}

// Adds a choice to the file. If another process has done so for the same key meanwhile, `choice`
// becomes that one's.
void Autotuner::save(std::string_view key, Choice& choice) {
  try {
    if (options_.cache.has_parent_path())
      std::filesystem::create_directories(options_.cache.parent_path());
    std::filesystem::path lock_path = options_.cache;
    lock_path += ".lock";
    const Lock lock(lock_path);
    Choices all = load();
    if (const Choice* other = find(all, key, choice.candidates)) {
      choice = *other;
      return;
    }
    all[options_.hardware].insert_or_assign(std::string(key), choice);
    nlohmann::json json{{"format", format_name}, {"version", format_version}};
    for (const auto& [hardware, keys] : all)
      for (const auto& [k, c] : keys)
        json["choices"][hardware][k] = {
            {"candidate", c.candidate}, {"of", c.candidates}, {"seconds", c.seconds}};
    write_text_file(options_.cache, json.dump(1) + "\n");
  } catch (const IoError& error) {
    warn(fmt::format("tuning without a cache: {}", error.what()));
  } catch (const std::filesystem::filesystem_error& error) {
    warn(fmt::format("tuning without a cache: cannot create {}: {}",
                     options_.cache.parent_path().string(), error.code().message()));
  }
}

void Autotuner::warn(std::string message) {
  if (std::find(warnings_.begin(), warnings_.end(), message) == warnings_.end())
    warnings_.push_back(std::move(message));
}

Autotuner remembered_choices(Device& device) {
  return Autotuner(
      {.cache = default_tuning_cache(), .hardware = measured_on(device), .searches = false});
}

std::string measured_on(Device& device) {
  // Raised where candidates change their speed or their order but not their number: choices among
  // the old ones would hide it.
  constexpr int kernels = 5;
  const std::string driver = device.tools().driver();
  return fmt::format("{}{}{}, kernels {}", device.hardware(), driver.empty() ? "" : ", ", driver,
                     kernels);
}

std::filesystem::path default_tuning_cache() { return user_cache("tuning.json"); }

}  // namespace ridge
