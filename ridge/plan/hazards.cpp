#include "ridge/plan/hazards.h"

#include <algorithm>

namespace ridge {
namespace {

bool conflict(const std::vector<Access>& a, const std::vector<Access>& b) {
  return std::ranges::any_of(a, [&](const Access& x) {
    return std::ranges::any_of(b, [&](const Access& y) { return x.conflicts_with(y); });
  });
}

}  // namespace

std::vector<std::vector<std::size_t>> order_of(std::span<const std::vector<Access>> work) {
  std::vector<std::vector<std::size_t>> after(work.size());
  // By work: all that is done before it, directly or not.
  std::vector<std::vector<bool>> done(work.size());
  for (std::size_t i = 0; i < work.size(); ++i) {
    done[i].resize(i);
    // The latest first: what they follow in turn need not be looked at.
    for (std::size_t j = i; j-- > 0;) {
      if (done[i][j] || !conflict(work[i], work[j])) continue;
      after[i].push_back(j);
      done[i][j] = true;
      for (std::size_t k = 0; k < j; ++k)
        if (done[j][k]) done[i][k] = true;
    }
  }
  return after;
}

}  // namespace ridge
