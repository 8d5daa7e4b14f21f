#include <fmt/format.h>

#include <numeric>
#include <utility>
#include <vector>

#include "ridge/gpu/device/api.h"
#include "ridge/gpu/device/links.h"

namespace ridge::gpu {
namespace {

// Memory that the card reads and writes by itself.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  ~PinnedMemory() { api::ignore(api::free_host(data_)); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::byte* of(std::size_t bytes) {
    if (bytes <= size_) return data_;
    check(api::free_host(std::exchange(data_, nullptr)), "pinned memory for other ranks");
    size_ = 0;
    void* memory = nullptr;
    check(api::malloc_host(&memory, bytes), "pinned memory for other ranks");
    data_ = static_cast<std::byte*>(memory);
    size_ = bytes;
    return data_;
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

class HostLinks final : public Links {
 public:
  explicit HostLinks(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  int rank() const override { return communicator_->rank(); }
  int count() const override { return communicator_->count(); }
  bool only_enqueues() const override { return false; }

  void exchange(Stream stream, std::span<const Parcel> out, std::span<const Parcel> in) override {
    const std::vector<std::int64_t> given = bytes_by_rank(out), got = bytes_by_rank(in);
    const std::size_t given_all = sum_of(given), got_all = sum_of(got);
    settle(stream);
    std::byte* const from = given_.of(given_all);
    std::byte* const to = got_.of(got_all);
    in_order_of_ranks(out, [&](const Parcel& p, std::size_t at) {
      check(api::memcpy_async(from + at, p.data, p.bytes, api::device_to_host, stream),
            "sending to another rank");
    });
    settle(stream);
    communicator_->exchange({from, given_all}, given, {to, got_all}, got);
    in_order_of_ranks(in, [&](const Parcel& p, std::size_t at) {
      check(api::memcpy_async(p.data, to + at, p.bytes, api::host_to_device, stream),
            "receiving from another rank");
    });
  }

  void all_reduce(Stream stream, std::span<const Summand> tensors, bool mean) override {
    std::size_t elements = 0, bytes = 0;
    for (const Summand& t : tensors) elements += t.elements, bytes += bytes_of(t);
    settle(stream);
    std::byte* const staged = given_.of(bytes);
    std::size_t at = 0;
    for (const Summand& t : tensors) {
      check(api::memcpy_async(staged + at, t.data, bytes_of(t), api::device_to_host, stream),
            "sending to another rank");
      at += bytes_of(t);
    }
    settle(stream);
    sums_.resize(elements);
    const auto each = [&](const auto& f) {
      std::size_t first = 0, place = 0;
      for (const Summand& t : tensors) {
        f(t, std::span(sums_).subspan(first, t.elements), staged + place);
        first += t.elements, place += bytes_of(t);
      }
    };
    each([](const Summand& t, std::span<float> sums, const std::byte* bytes_there) {
      load_floats(bytes_there, t.dtype, sums);
    });
    communicator_->all_reduce(sums_);
    const float factor = mean ? 1.0f / static_cast<float>(count()) : 1.0f;
    for (float& sum : sums_) sum *= factor;
    each([&](const Summand& t, std::span<const float> sums, std::byte* bytes_there) {
      store_floats(sums, t.dtype, bytes_there);
      check(api::memcpy_async(t.data, bytes_there, bytes_of(t), api::host_to_device, stream),
            "receiving from another rank");
    });
  }

  void check_others() override {}  // its calls wait, and tell
  void give_up() noexcept override {}

 private:
  static std::size_t bytes_of(const Summand& t) { return t.elements * size_of(t.dtype); }
  static std::size_t sum_of(const std::vector<std::int64_t>& bytes) {
    return static_cast<std::size_t>(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}));
  }
  // Also until what was received before has been read.
  static void settle(Stream stream) {
    check(api::stream_synchronize(stream), "waiting for what other ranks want");
  }

  std::vector<std::int64_t> bytes_by_rank(std::span<const Parcel> parcels) const {
    std::vector<std::int64_t> bytes(static_cast<std::size_t>(count()), 0);
    for (const Parcel& p : parcels)
      bytes[static_cast<std::size_t>(p.rank)] += static_cast<std::int64_t>(p.bytes);
    return bytes;
  }
  // f(parcel, place) as they lie one after another.
  template <class F>
  void in_order_of_ranks(std::span<const Parcel> parcels, const F& f) const {
    std::size_t at = 0;
    for (int rank = 0; rank < count(); ++rank)
      for (const Parcel& p : parcels) {
        if (p.rank != rank || p.bytes == 0) continue;
        f(p, at);
        at += p.bytes;
      }
  }

  std::shared_ptr<Communicator> communicator_;
  PinnedMemory given_, got_;
  std::vector<float> sums_;
};

}  // namespace

std::shared_ptr<Links> link_through_host(std::shared_ptr<Communicator> communicator) {
  return std::make_shared<HostLinks>(std::move(communicator));
}

}  // namespace ridge::gpu
