#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ridge/device/tuner.h"

namespace ridge {

class Device;  // device/device.h

// Chooses by timing, and remembers what it chose in a file.
//
// Times vary, so two searches may choose differently, and results may then differ in rounding. A
// rerun gives the same bits if it finds the same choices: within a process a key is searched once;
// across processes the cache file has to be the same one. Two processes that search the same key at
// once both end up with the choice of the one that saved first.
class Autotuner final : public Tuner {
 public:
  struct Options {
    std::filesystem::path cache;  // empty: none is read or written
    // What a choice holds for, beyond its key: measured_on() the device.
    std::string hardware;
    // Called before each search, with the key and its number in this process, from 1 on.
    std::function<void(std::string_view key, int number)> log = {};
    // Called before a candidate is run for the first time, with its number, from 1 on, among all.
    std::function<void(std::string_view key, std::size_t number, std::size_t of)> trying = {};
    double seconds_per_search = 0.3;  // soon after which a search ends; two rounds are always timed
    bool searches = true;             // else what is not known is the first candidate, untimed
  };

  // A file that is missing, or unreadable, is no error; see warnings().
  explicit Autotuner(Options options);

  std::size_t choose(std::string_view key, std::size_t candidates,
                     const std::function<void(std::size_t)>& run) override;

  void tell(std::string_view work, std::string_view choice) override;

  // What there was to tell: by work, the choice.
  const std::map<std::string, std::string>& told() const { return told_; }
  int searched() const { return searched_; }  // keys timed by this object
  int cached() const { return cached_; }      // calls answered without timing
  // Keys answered by what runs before this object had chosen.
  int remembered() const { return static_cast<int>(remembered_.size()); }
  // What went wrong with the cache, each once: a corrupt file, a directory that cannot be written.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Choice {
    std::size_t candidate = 0, candidates = 0;
    double seconds = 0;
  };
  // By hardware, then key; ordered, so that the file is the same whatever the order of searches.
  using Choices = std::map<std::string, std::map<std::string, Choice, std::less<>>, std::less<>>;

  const Choice* find(const Choices& choices, std::string_view key, std::size_t candidates) const;
  Choices load();
  void save(std::string_view key, Choice& choice);
  void warn(std::string message);

  Options options_;
  Choices choices_;
  int searched_ = 0, cached_ = 0;
  std::set<std::string, std::less<>> searched_keys_, remembered_;
  std::map<std::string, std::string> told_;
  std::vector<std::string> warnings_;
};

// Which candidate to take of those with these times: the first, unless another is faster by more
// than noise.
std::size_t fastest_of(std::span<const double> times);

// A tuner with the choices in the user's cache, for plans: it answers what runs before have chosen
// and times nothing. What they have not met, another batch's products say, gets the first
// candidate, which may want less memory than the fastest: in f32 on a GPU up to 384 MiB less.
Autotuner remembered_choices(Device& device);

// The processor, its driver and the state of Ridge's kernels, any of which may make others faster.
std::string measured_on(Device& device);

// $XDG_CACHE_HOME/ridge/tuning.json, or ~/.cache/ridge/tuning.json; empty without a home.
std::filesystem::path default_tuning_cache();

}  // namespace ridge
