#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

namespace ridge {

// Moves data in the host's memory among the ranks of a run (dist/rank.h). All ranks make the same
// calls in the same order; each call returns when this rank has its result. RankError, here and
// below, if another rank has ended or does not answer.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;   // from 0
  virtual int count() const = 0;  // of ranks

  // Replaces each element by its sum over all ranks. All of them get the same bits. The order is
  // that of a binary tree, ((0 + 1) + (2 + 3)) + .., so that a power of two of ranks that hold
  // parts of one such tree get its sum.
  virtual void all_reduce(std::span<float> data) = 0;
  // The same of data that are one part for each rank, one after another, of so many elements each,
  // which all ranks know: each gets the sum of its own part alone.
  virtual void reduce_scatter(std::span<float> data, std::span<const std::int64_t> counts,
                              std::span<float> own) = 0;
  // Gives each rank what every other has for it: both are one part for each rank, one after
  // another, of so many bytes each. A rank's own part is copied.
  virtual void exchange(std::span<const std::byte> given, std::span<const std::int64_t> given_bytes,
                        std::span<std::byte> got, std::span<const std::int64_t> got_bytes) = 0;
  // Gives every rank the parts of all: `data` has room for them, one after another, of so many
  // bytes each, and has this rank's in its place.
  virtual void all_gather_parts(std::span<std::byte> data, std::span<const std::int64_t> bytes) = 0;
  // Gives every rank what all have, by rank: `all` is `mine` times the number of ranks long.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  // Returns when all ranks have called it. Waits for minutes where other calls wait for seconds:
  // after work that one rank alone may do, or that takes some longer than others.
  virtual void wait_for_all() = 0;

  // What is done before a call tells that another rank is lost: what else waits for that one has to
  // be ended, or this rank could not leave.
  void when_lost(std::function<void()> act) { when_lost_ = std::move(act); }

 protected:
  std::function<void()> when_lost_ = [] {};
};

// Whether a condition holds on any rank; `communicator` is null where there is one alone.
inline bool on_any_rank(Communicator* communicator, bool condition) {
  if (communicator == nullptr) return condition;
  float count = condition ? 1.0f : 0.0f;
  communicator->all_reduce({&count, 1});
  return count > 0;
}

}  // namespace ridge
