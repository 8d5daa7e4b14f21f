#include "ridge/dist/gloo.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"

namespace ridge {
namespace {

// What Gloo wants of a meeting.
class Store final : public gloo::rendezvous::Store {
 public:
  explicit Store(const Rendezvous& meeting) : meeting_(meeting) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    meeting_.leave(key, {data.data(), data.size()});
  }
  std::vector<char> get(const std::string& key) override {
    const std::string text = meeting_.find(key);
    return {text.begin(), text.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }

 private:
  const Rendezvous& meeting_;
};

// Gloo's messages begin with the place in its sources: "[../gloo/transport/tcp/pair.cc:598] Read
// error [127.0.0.1]:40122: Connection reset by peer".
std::string reason_of(const std::exception& fault) {
  std::string_view text = fault.what();
  if (const auto end = text.find("] "); text.starts_with('[') && end != text.npos)
    text.remove_prefix(end + 2);
  return std::string(text);
}

template <class Action>
void checked(const Action& action) {
  try {
    action();
  } catch (const RankError&) {
    throw;
  } catch (const std::exception& fault) {
    throw RankError("another rank has ended or does not answer ({})", reason_of(fault));
  }
}

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(const Rank& rank, const Rendezvous& meeting, const RankPatience& patience)
      : patience_(patience),
        context_(std::make_shared<gloo::rendezvous::Context>(rank.index, rank.count)) {
    context_->setTimeout(patience.beyond_work);
    Store store(meeting);
    gloo::transport::tcp::attr address;
    address.hostname = meeting.own_address();
    auto device = gloo::transport::tcp::CreateDevice(address);
    context_->connectFullMesh(store, device);
  }

  int rank() const override { return context_->rank; }
  int count() const override { return context_->size; }

  void all_reduce(std::span<float> data) override {
    call([&] {
      gloo::AllreduceOptions options(context_);
      options.setTimeout(patience_for_others());
      options.setOutput(data.data(), data.size());
      options.setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
      gloo::allreduce(options);
    });
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    call([&] {
      gloo::AllgatherOptions options(context_);
      options.setTimeout(patience_for_others());
      // Gloo takes what it only reads as what it might write.
      options.setInput(reinterpret_cast<char*>(const_cast<std::byte*>(mine.data())), mine.size());
      options.setOutput(reinterpret_cast<char*>(all.data()), all.size());
      gloo::allgather(options);
    });
  }
  void wait_for_all() override {
    call([&] {
      gloo::BarrierOptions options(context_);
      options.setTimeout(patience_.for_all);
      gloo::barrier(options);
    });
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::milliseconds patience_for_others() const {
    return patience_.beyond_work +
           2 * std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - last_call_);
  }
  template <class Action>
  void call(const Action& action) {
    checked(action);
    last_call_ = Clock::now();
  }

  RankPatience patience_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  Clock::time_point last_call_ = Clock::now();  // when it ended
};

}  // namespace

std::unique_ptr<Communicator> connect_by_gloo(const Rank& rank, const Rendezvous& meeting,
                                              const RankPatience& patience) {
  std::unique_ptr<Communicator> communicator;
  checked([&] { communicator = std::make_unique<GlooCommunicator>(rank, meeting, patience); });
  return communicator;
}

}  // namespace ridge
