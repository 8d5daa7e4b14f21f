#pragma once

// A run by several processes, each of which does its part of every batch.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/base/child_process.h"
#include "ridge/device/device.h"
#include "ridge/dist/rank.h"
#include "ridge/session/options.h"

namespace ridge {

// This process as one of several that a launcher started; nothing if it is alone.
std::optional<Rank> one_of_several();

// Does a rank's part of a run: opens its device, with its part of the processors, connects it to
// the others, and calls `work`. Ranks but the first print nothing. Returns the program's exit code.
// UsageError if the options ask for another number of ranks, or those of other ranks differ.
using RankWork = std::function<int(const RunOptions& options, Device& device)>;
int run_as_rank(const Rank& rank, RunOptions options, const RankWork& work);

// Starts options.ranks processes of this program with the arguments that it has itself, and waits
// for all of them. One that fails ends the others, within seconds; that is told in one line, with
// what is left of the run. It is then started again, up to `restarts` times, from the checkpoint
// that it wrote, if it has any. Returns the program's exit code.
int run_ranks(const RunOptions& options, int restarts);

// How a rank ended, and what it said of it.
struct RankEnd {
  ChildEnd end;
  bool was_stopped = false;  // because another rank had failed
  std::string words = {};    // the message of its error; empty if it left none
};

// The exit code of a rank that ended because it lost another one.
inline constexpr int lost_rank_exit = 3;

// Which rank failed and why, of ranks given in the order in which they ended: "rank 2 was ended by
// signal 9 (Killed)". Nothing if none did.
std::optional<std::string> fault_of(std::span<const std::pair<int, RankEnd>> ends);

}  // namespace ridge
