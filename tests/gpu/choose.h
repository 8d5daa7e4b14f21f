#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "ridge/device/tuner.h"

namespace ridge::testing {

// Chooses the candidate it is told to, or the last, having run it; the first if there is no such
// kernel.
class Choose final : public Tuner {
 public:
  explicit Choose(std::size_t candidate) : candidate_(candidate) {}
  std::size_t choose(std::string_view, std::size_t candidates,
                     const std::function<void(std::size_t)>& run) override {
    most_ = std::max(most_, candidates);
    const std::size_t choice = std::min(candidate_, candidates - 1);
    try {
      run(choice);
    } catch (const NoSuchCandidate&) {
      return 0;
    }
    return choice;
  }
  void tell(std::string_view, std::string_view choice) override { told = choice; }
  bool is_last() const { return candidate_ + 1 >= most_; }

  std::string told;  // what was chosen last, in words

 private:
  std::size_t candidate_, most_ = 0;
};

}  // namespace ridge::testing
