#pragma once

// Several kernels that compute the same thing, and which of them runs. Forms of one kernel that
// differ in their launch alone (which threads hold a row, how many blocks share it, whether
// accesses are packed) are one candidate: the shape, and what registers and shared memory hold,
// decide.

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridge/gpu/device/card.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/device/trial.h"

namespace ridge::gpu {

// One of the kernels of a family, a row of its table. `Problem` says all that is asked about the
// work; it also gives the tuner
//   std::string key() const   all that the times of candidates depend on, and
//   std::string work() const  the work in words for users; empty if they are not told.
template <class Problem>
struct Candidate {
  // As users are told: "own kernels", "cuDNN 9.14.0".
  std::string (*name)(const Problem&);
  // Whether this kernel computes the problem on this card. It may still turn out not to exist when
  // it is prepared, where only a library knows.
  bool (*supports)(const Problem&);
  // How fast it is expected to be compared with the others, untimed: the higher, the faster.
  // Candidates with the same expectation rank as they stand in the table.
  int (*expectation)(const Problem&, const Card&);
  // The kernel. DeviceError if there is none after all.
  KernelPtr (*prepare)(const Problem&, GpuPrepare&);
  // Whether it only stands in where no candidate expected to be faster exists. It is not timed
  // against those.
  bool fallback = false;
  // Whether preparing it may compile code, as many of a library's plans do. The tuner tries the
  // next such candidate only while preparing those before has taken little time.
  bool may_compile = false;
};

// The rows of candidates that differ in a number, such as a library's plans by rank:
// row.operator()<0>() up to row.operator()<count - 1>().
template <class Problem, std::size_t count, class Row>
constexpr std::array<Candidate<Problem>, count> numbered_rows(const Row& row) {
  return [&]<std::size_t... ranks>(std::index_sequence<ranks...>) {
    return std::array{row.template operator()<ranks>()...};
  }
  (std::make_index_sequence<count>());
}

// One table of several, one after the other.
template <class Problem, std::size_t... counts>
constexpr auto joined_rows(const std::array<Candidate<Problem>, counts>&... parts) {
  std::array<Candidate<Problem>, (counts + ...)> all{};
  auto at = all.begin();
  ((at = std::copy(parts.begin(), parts.end(), at)), ...);
  return all;
}

// A candidate for one problem, whatever the type of that.
struct RankedCandidate {
  int expectation;
  bool fallback, may_compile;
  std::function<bool()> supports;
  std::function<std::string()> name;
  std::function<KernelPtr(GpuPrepare&)> prepare;
};

struct TunedWork {
  std::string key, work;
};

// As best_kernel(), of candidates in the table's order.
KernelPtr best_of(GpuPrepare& prepare, std::vector<RankedCandidate> candidates,
                  const std::function<TunedWork()>& tuned, Trial::Runs runs);

// The rows of a table about one problem.
template <class Problem>
std::vector<RankedCandidate> ranked_candidates(const Card& card, const Problem& problem,
                                               std::span<const Candidate<Problem>> table) {
  std::vector<RankedCandidate> candidates;
  candidates.reserve(table.size());
  for (const Candidate<Problem>& c : table)
    candidates.push_back({c.expectation(problem, card), c.fallback, c.may_compile,
                          [&c, &problem] { return c.supports(problem); },
                          [&c, &problem] { return c.name(problem); },
                          [&c, &problem](GpuPrepare& p) { return c.prepare(problem, p); }});
  return candidates;
}

// Prepares one of a family's kernels. Without a tuner that is the candidate with the highest
// expectation among those that support the problem and exist; with a tuner the one that it measures
// to be the fastest, or remembers. Where the tuner remembers one that exists no more, it is as
// without. Repetitions are timed as `runs` says. DeviceError if no candidate exists.
template <class Problem>
KernelPtr best_kernel(GpuPrepare& prepare, const Problem& problem,
                      std::span<const Candidate<Problem>> table,
                      Trial::Runs runs = Trial::Runs::in_turn) {
  return best_of(
      prepare, ranked_candidates(prepare.gpu.card, problem, table),
      [&] {
        return TunedWork{problem.key(), problem.work()};
      },
      runs);
}

// The kernel with the highest expectation, tuner or not: for operands that a trial cannot make up,
// and for work that is not worth one.
template <class Problem>
KernelPtr expected_kernel(GpuPrepare& prepare, const Problem& problem,
                          std::span<const Candidate<Problem>> table) {
  GpuPrepare untuned = prepare;
  untuned.choice.tuner = nullptr;
  KernelPtr kernel = best_of(untuned, ranked_candidates(prepare.gpu.card, problem, table), {},
                             Trial::Runs::in_turn);
  prepare.workspace = untuned.workspace;
  return kernel;
}

}  // namespace ridge::gpu
