#pragma once

// How the ranks that a launcher started find each other.

#include <filesystem>
#include <memory>

#include "ridge/device/communicator.h"
#include "ridge/dist/rank.h"
#include "ridge/dist/rendezvous.h"

namespace ridge {

// Where the ranks of a run meet.
struct Meeting {
  HostAndPort at;
  bool is_served = false;  // by whoever started them; else by the first rank
  // Where the first rank says at which port it is, because any free one will do; empty if all know.
  std::filesystem::path notice = {};
};

// The variable by which a process that starts ranks, and serves their rendezvous, tells them where:
// "127.0.0.1:40123".
inline constexpr const char* rendezvous_variable = "RIDGE_RENDEZVOUS";

// By that variable; by MASTER_ADDR and MASTER_PORT, as PyTorch has them, where torchrun itself uses
// that port and the first rank the next one; or, where Open MPI started all on one machine, in the
// directory that it made for them. UsageError, with what to set, if nothing tells.
Meeting meeting_of(const Rank& rank, const Environment& environment);

// Connects this rank to all others. RankError if they do not come.
std::shared_ptr<Communicator> meet(const Rank& rank, const Meeting& meeting);

}  // namespace ridge
