#include "ridge/cli/ranks.h"

#include "ridge/base/error.h"
#include "ridge/dist/rank.h"

namespace ridge {

void refuse_several_ranks() {
  const std::optional<Rank> rank = rank_from(process_environment());
  if (!rank || rank->count == 1) return;
  throw UsageError(
      "{} started this as process {} of {}, and a run on several devices is not there yet: each "
      "would do the whole run; start it once, without {}",
      rank->launcher, rank->index, rank->count, rank->launcher);
}

}  // namespace ridge
