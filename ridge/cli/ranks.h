#pragma once

namespace ridge {

// UsageError if a launcher started this process as one of several: each would do the whole run, and
// all would write the same files.
void refuse_several_ranks();

}  // namespace ridge
