#pragma once

#include <cstdint>
#include <string_view>

namespace ridge {

// Throws UsageError: a kernel over so many ranks on a device that is one of `there`.
[[noreturn]] void refuse_ranks(std::string_view name, std::int64_t ranks, int there);

// The way to the others that a kernel has: a Communicator, or what a GPU has of its own. Way has
// count(), of ranks.
template <class Way>
class OtherRanks {
 public:
  // `way` is null on a device alone. UsageError if it is one of another number of ranks, more than
  // one.
  OtherRanks(Way* way, std::string_view name, std::int64_t ranks)
      : way_(way), name_(name), ranks_(ranks) {
    if (ranks > 1 && way_ && way_->count() != ranks) refuse(way_->count());
  }
  // UsageError on a device alone, where plans prepare the kernels of a rank.
  Way& operator*() const {
    if (!way_) refuse(1);
    return *way_;
  }

  std::int64_t ranks() const { return ranks_; }

 private:
  [[noreturn]] void refuse(int there) const { refuse_ranks(name_, ranks_, there); }

  Way* way_;
  std::string_view name_;
  std::int64_t ranks_;
};

}  // namespace ridge
