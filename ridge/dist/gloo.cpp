#include "ridge/dist/gloo.h"

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/part.h"

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

// Blocks SIGPIPE in this thread while it lives, so that a write to a socket whose other end is gone
// is an error. Gloo's writes do not ask for that, and the signal would end a rank that was about to
// tell which other one is lost. Gloo's threads, which are started meanwhile, inherit the block.
class WithoutBrokenPipes {
 public:
  WithoutBrokenPipes() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutBrokenPipes() {
    const timespec at_once{};
    if (!was_pending_)
      while (sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
      }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutBrokenPipes(const WithoutBrokenPipes&) = delete;
  WithoutBrokenPipes& operator=(const WithoutBrokenPipes&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

template <class Action>
void checked(const Action& action) {
  const WithoutBrokenPipes without;
  try {
    action();
  } catch (const RankError&) {
    throw;
  } catch (const std::exception& fault) {
    throw RankError("another rank has ended or does not answer ({})", reason_of(fault));
  }
}

// Gloo's thread that listens asks for a lock again and again while the thread that sends holds it.
// Where ranks are more than processors, it would take the processor from that one: three ranks on
// two took three times as long. So it has the least priority, which it inherits (on Linux each
// thread has its own) from the thread that opens the device.
std::shared_ptr<gloo::transport::Device> open_device(const gloo::transport::tcp::attr& address) {
  return std::async(std::launch::async,
                    [&] {
                      constexpr int least_priority = 19;
                      setpriority(PRIO_PROCESS, 0, least_priority);
                      return gloo::transport::tcp::CreateDevice(address);
                    })
      .get();
}

// The sum of `count` rows of n elements, in the order of a binary tree, in the first of them.
void add_rows(std::span<float> rows, std::size_t count) {
  constexpr std::size_t cached = 4096;
  const std::size_t n = rows.size() / count;
  for (std::size_t begin = 0; begin < n; begin += cached) {
    const std::size_t length = std::min(cached, n - begin);
    for (std::size_t stride = 1; stride < count; stride *= 2)
      for (std::size_t row = 0; row + stride < count; row += 2 * stride) {
        float* const to = &rows[row * n + begin];
        const float* const from = to + stride * n;
        for (std::size_t i = 0; i < length; ++i) to[i] += from[i];
      }
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
    auto device = open_device(address);
    context_->connectFullMesh(store, device);
    // A rank that ends at once would otherwise close its connections to ranks that still connect.
    gloo::BarrierOptions all_connected(context_);
    gloo::barrier(all_connected);
  }

  int rank() const override { return context_->rank; }
  int count() const override { return context_->size; }

  // Each rank adds one part of all and hands it round: as few bytes as any way takes. Little data
  // takes one message less if each rank adds all of it. Gloo's own sums have an order that depends
  // on the number of ranks.
  void all_reduce(std::span<float> data) override {
    constexpr std::size_t little = 2048;
    const auto ranks = static_cast<std::size_t>(count());
    if (data.size() * ranks <= little) {
      received_.resize(data.size() * ranks);
      all_gather(std::as_bytes(data), std::as_writable_bytes(std::span(received_)));
      add_rows(received_, ranks);
      std::ranges::copy_n(received_.begin(), static_cast<std::ptrdiff_t>(data.size()),
                          data.begin());
      return;
    }
    std::vector<std::int64_t> counts, bytes;
    for (int other = 0; other < count(); ++other) {
      counts.push_back(part_of(static_cast<std::int64_t>(data.size()), other, count()).count);
      bytes.push_back(counts.back() * static_cast<std::int64_t>(sizeof(float)));
    }
    const Part own = part_of(static_cast<std::int64_t>(data.size()), rank(), count());
    reduce_scatter(
        data, counts,
        data.subspan(static_cast<std::size_t>(own.first), static_cast<std::size_t>(own.count)));
    all_gather_parts(std::as_writable_bytes(data), bytes);
  }
  void reduce_scatter(std::span<float> data, std::span<const std::int64_t> counts,
                      std::span<float> own) override {
    received_.resize(own.size() * static_cast<std::size_t>(count()));
    const std::vector<std::int64_t> own_counts(static_cast<std::size_t>(count()),
                                               static_cast<std::int64_t>(own.size()));
    all_to_all(data.data(), counts, received_.data(), own_counts);
    add_rows(received_, static_cast<std::size_t>(count()));
    std::ranges::copy_n(received_.begin(), static_cast<std::ptrdiff_t>(own.size()), own.begin());
  }
  void exchange(std::span<const std::byte> given, std::span<const std::int64_t> given_bytes,
                std::span<std::byte> got, std::span<const std::int64_t> got_bytes) override {
    all_to_all(const_cast<std::byte*>(given.data()), given_bytes, got.data(), got_bytes);
  }
  void all_gather_parts(std::span<std::byte> data, std::span<const std::int64_t> bytes) override {
    call([&] {
      gloo::AllgathervOptions options(context_);
      options.setTimeout(patience_for_others());
      options.setOutput(reinterpret_cast<char*>(data.data()),
                        std::vector<std::size_t>(bytes.begin(), bytes.end()));
      gloo::allgatherv(options);
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
  // Gloo takes what it only reads as what it might write.
  template <class T>
  void all_to_all(T* given, std::span<const std::int64_t> given_counts, T* got,
                  std::span<const std::int64_t> got_counts) {
    call([&] {
      gloo::AlltoallvOptions options(context_);
      options.setTimeout(patience_for_others());
      options.setInput(given, std::vector(given_counts.begin(), given_counts.end()));
      options.setOutput(got, std::vector(got_counts.begin(), got_counts.end()));
      gloo::alltoallv(options);
    });
  }
  template <class Action>
  void call(const Action& action) {
    try {
      checked(action);
    } catch (const RankError&) {
      when_lost_();
      throw;
    }
    last_call_ = Clock::now();
  }

  RankPatience patience_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  Clock::time_point last_call_ = Clock::now();  // when it ended
  std::vector<float> received_;                 // as long as the longest has been
};

}  // namespace

std::unique_ptr<Communicator> connect_by_gloo(const Rank& rank, const Rendezvous& meeting,
                                              const RankPatience& patience) {
  std::unique_ptr<Communicator> communicator;
  checked([&] { communicator = std::make_unique<GlooCommunicator>(rank, meeting, patience); });
  return communicator;
}

}  // namespace ridge
