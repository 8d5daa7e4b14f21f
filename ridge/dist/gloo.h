#pragma once

#include <memory>

#include "ridge/device/communicator.h"
#include "ridge/dist/rank.h"
#include "ridge/dist/rendezvous.h"

namespace ridge {

// How long a rank waits for another.
struct RankPatience {
  // In a collective, besides twice the time that its own work before took: that of the others is
  // much the same.
  std::chrono::milliseconds beyond_work{8'000};
  std::chrono::milliseconds for_all{600'000};  // in wait_for_all()
};

// Connects this rank to all others over TCP, by Gloo (https://github.com/pytorch/gloo), where each
// has been given the same meeting. RankError if they do not all come, and from then on for a rank
// that ends or does not answer.
std::unique_ptr<Communicator> connect_by_gloo(const Rank& rank, const Rendezvous& meeting,
                                              const RankPatience& patience = {});

}  // namespace ridge
