#include "ridge/dist/local_ranks.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/dist/gloo.h"

namespace ridge {
namespace {

// What is thrown in the end: a rank's own fault comes before that it lost another one.
class FirstFault {
 public:
  void note(std::exception_ptr fault, bool of_others) {
    const std::lock_guard lock(mutex_);
    if (!fault_ || (of_others_ && !of_others)) fault_ = std::move(fault), of_others_ = of_others;
  }
  void rethrow() const {
    if (fault_) std::rethrow_exception(fault_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr fault_;
  bool of_others_ = false;
};

}  // namespace

void on_local_ranks(int count, const std::function<std::unique_ptr<Device>(int rank)>& open,
                    const std::function<void(Device&)>& work) {
  constexpr std::chrono::milliseconds patience{60'000};
  const RendezvousServer server({"127.0.0.1", 0});
  FirstFault first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const std::unique_ptr<Device> device = open(rank);
        if (count > 1)
          device->join(connect_by_gloo({.index = rank, .count = count, .on_host = count},
                                       Rendezvous({"127.0.0.1", server.port()}, patience)));
        work(*device);
      } catch (const RankError&) {
        first.note(std::current_exception(), true);
      } catch (...) {
        first.note(std::current_exception(), false);
      }
    });
  for (std::thread& thread : threads) thread.join();
  first.rethrow();
}

}  // namespace ridge
