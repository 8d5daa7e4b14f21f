#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ridge/cpu/device.h"
#include "ridge/dist/gloo.h"
#include "ridge/dist/local_ranks.h"

namespace ridge {

// How each of the ranks of a run ended: null for a good end.
using RankFaults = std::vector<std::exception_ptr>;

// Calls work(communicator) on so many ranks at once, each on a thread of its own.
template <class Work>
RankFaults on_communicators(int count, const Work& work, const RankPatience& patience = {}) {
  RendezvousServer server({"127.0.0.1", 0});
  RankFaults faults(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const Rendezvous meeting({"127.0.0.1", server.port()}, std::chrono::seconds(20));
        const auto communicator =
            connect_by_gloo({.index = rank, .count = count, .on_host = count}, meeting, patience);
        work(*communicator);
      } catch (...) {
        faults[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return faults;
}

using OpenRank = std::function<std::unique_ptr<Device>(int rank)>;

inline std::unique_ptr<Device> cpu_of_rank(int) { return std::make_unique<CpuDevice>(1); }

// The same of devices, of one thread each if nothing else is said; throws what the first that
// failed has thrown.
template <class Work>
void on_ranks(int count, const Work& work, const OpenRank& open = cpu_of_rank) {
  on_local_ranks(count, open, work);
}

// What an exception says.
inline std::string message_in(const std::exception_ptr& fault) {
  try {
    std::rethrow_exception(fault);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace ridge
