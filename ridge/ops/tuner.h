#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace ridge {

// Decides which of several ways to do the same work is the fastest here.
class Tuner {
 public:
  virtual ~Tuner() = default;

  // The choice, less than `candidates`, which is at least 1. `key` describes the work and the
  // candidates. run(i) does the work once in the i-th way; it is called only if the choice for
  // `key` is not known yet. Where times do not differ clearly, the earlier candidate is chosen.
  virtual std::size_t choose(std::string_view key, std::size_t candidates,
                             const std::function<void(std::size_t)>& run) = 0;
};

}  // namespace ridge
