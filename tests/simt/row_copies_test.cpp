// Parts of tensors that go to other ranks in packed rows, where threads stand in for the ranks and
// copies of the host for those between cards.

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ridge/gpu/kernels/collective/by_copies.h"
#include "tests/simt/buffer.h"

namespace ridge {
namespace {

using simt::Buffer;

// What ranks copy to each other. One rank runs at a time: the machine has one thread.
class Ranks {
 public:
  explicit Ranks(int count) : memory_(static_cast<std::size_t>(count)) {}

  struct Memory {
    const std::byte* rows = nullptr;
    std::byte* room = nullptr;
    std::span<const gpu::Parcel> out = {}, in = {};
  };

  int count() const { return static_cast<int>(memory_.size()); }

  // f(rank) on each.
  template <class F>
  void run(const F& f) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count(); ++rank)
      threads.emplace_back([this, rank, &f] {
        const std::lock_guard lock(mutex_);
        f(rank);
      });
    for (std::thread& thread : threads) thread.join();
  }

  // Waits for all ranks; the last one copies, with all that they gave.
  template <class F>
  void meet(int rank, Memory own, const F& copy) {
    std::unique_lock lock(mutex_, std::adopt_lock);
    memory_[static_cast<std::size_t>(rank)] = own;
    if (++arrived_ == count()) {
      copy(memory_);
      arrived_ = 0;
      ++meetings_;
      all_came_.notify_all();
    } else {
      all_came_.wait(lock, [this, before = meetings_] { return meetings_ != before; });
    }
    lock.release();  // run() holds it
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_came_;
  std::vector<Memory> memory_;
  int arrived_ = 0, meetings_ = 0;
};

void copy_row(const std::byte* from, std::byte* to, std::size_t bytes) {
  std::memcpy(to, from, bytes);
  simt::note_written(to, bytes);
}

class HostCopies final : public gpu::RowCopies {
 public:
  HostCopies(Ranks& ranks, int rank) : ranks_(ranks), rank_(rank) {}

  void* allocate(std::size_t) override { return nullptr; }
  bool deallocate(void*) override { return false; }
  void give_up() noexcept override {}
  bool reach(const void*, const void*, std::size_t) override { return true; }
  bool is_captured(gpu::Stream) const override { return true; }

  void exchange(gpu::Stream, const void* rows, void* room, std::size_t row_bytes) override {
    meet(rows, room, [&](const std::vector<Ranks::Memory>& all, std::size_t from, std::size_t to) {
      copy_row(all[from].rows + to * row_bytes, all[to].room + from * row_bytes, row_bytes);
    });
  }
  void gather(gpu::Stream, void* rows, std::size_t row_bytes) override {
    meet(rows, rows, [&](const std::vector<Ranks::Memory>& all, std::size_t from, std::size_t to) {
      copy_row(all[from].rows + from * row_bytes, all[to].room + from * row_bytes, row_bytes);
    });
  }

 private:
  // f(memory of all, from, to) for all pairs of ranks.
  template <class F>
  void meet(const void* rows, void* room, const F& f) {
    ranks_.meet(rank_, {static_cast<const std::byte*>(rows), static_cast<std::byte*>(room)},
                [&](const std::vector<Ranks::Memory>& all) {
                  for (std::size_t from = 0; from < all.size(); ++from)
                    for (std::size_t to = 0; to < all.size(); ++to)
                      if (from != to) f(all, from, to);
                });
  }

  Ranks& ranks_;
  int rank_;
};

// With copies nothing may go in another way.
class HostLinks final : public gpu::Links {
 public:
  HostLinks(Ranks& ranks, int rank, bool has_copies)
      : ranks_(ranks), rank_(rank), has_copies_(has_copies), copies_(ranks, rank) {}

  int rank() const override { return rank_; }
  int count() const override { return ranks_.count(); }
  bool only_enqueues() const override { return true; }
  void exchange(gpu::Stream, std::span<const gpu::Parcel> out,
                std::span<const gpu::Parcel> in) override {
    if (has_copies_) throw std::logic_error("all goes by copies");
    ++messages_;
    ranks_.meet(rank_, {.out = out, .in = in}, [](const std::vector<Ranks::Memory>& all) {
      for (std::size_t from = 0; from < all.size(); ++from)
        for (std::size_t to = 0; to < all.size(); ++to)
          deliver(all[from].out, static_cast<int>(to), all[to].in, static_cast<int>(from));
    });
  }
  void all_reduce(gpu::Stream, std::span<const gpu::Summand>, bool) override {
    throw std::logic_error("parts are summed by kernels");
  }
  gpu::RowCopies* row_copies() override { return has_copies_ ? &copies_ : nullptr; }
  void check_others() override {}
  void give_up() noexcept override {}

  int messages() const { return messages_; }

 private:
  static void deliver(std::span<const gpu::Parcel> out, int to, std::span<const gpu::Parcel> in,
                      int from) {
    std::size_t next = 0;
    for (const gpu::Parcel& parcel : out) {
      if (parcel.rank != to) continue;
      while (in[next].rank != from) ++next;
      copy_row(static_cast<const std::byte*>(parcel.data), static_cast<std::byte*>(in[next].data),
               parcel.bytes);
      ++next;
    }
  }

  Ranks& ranks_;
  int rank_;
  bool has_copies_;
  int messages_ = 0;
  HostCopies copies_;
};

// Tensors that make rows, of which some have no equal parts.
struct Packed {
  std::vector<TensorType> types;
  bool by_copies;
  std::vector<std::size_t> left;  // that go in another way
};

std::vector<Packed> packed() {
  return {
      // Short tensors that are 4 MiB together.
      {{{DType::f32, {384, 1024}}, {DType::f32, {593, 1201}}, {DType::f32, {97}}}, true, {}},
      // That are little together, beside one of which a part is too long to be copied twice.
      {{{DType::f32, {31, 100}}, {DType::f32, {1021, 1031}}, {DType::f32, {97}}}, false, {1}},
      // One is packed with nothing.
      {{{DType::f32, {97}}}, false, {0}},
  };
}

float operand(int rank, std::size_t tensor, std::int64_t i) {
  return static_cast<float>((i + 3 * static_cast<std::int64_t>(tensor) + 5 * rank) % 17 - 8);
}

// Returns what f says of each element of a part, which may be all of a tensor.
template <class F>
std::vector<float> elements(const Part& part, const F& f) {
  std::vector<float> values;
  for (std::int64_t i = part.first; i < part.first + part.count; ++i) values.push_back(f(i));
  return values;
}

using Tensors = std::vector<std::unique_ptr<Buffer<float>>>;

std::vector<void*> places(const Tensors& tensors) {
  std::vector<void*> all;
  for (const auto& tensor : tensors) all.push_back(tensor->data());
  return all;
}

// f(rank, ranks, how tensors are packed, rows made of them) for 2 and 3 ranks, and checks what is
// left and how many messages were sent.
template <class F>
void each_case(const F& f) {
  for (const Packed& packed : packed())
    for (const int count : {2, 3}) {
      Ranks ranks(count);
      ranks.run([&](int rank) {
        gpu::Context gpu;
        const auto links = std::make_shared<HostLinks>(ranks, rank, packed.by_copies);
        gpu.links = links;
        const gpu::PartsInRows parts(gpu, packed.types, count);
        const std::span<const std::size_t> left = f(rank, count, packed, parts);
        EXPECT_EQ(std::vector(left.begin(), left.end()), packed.left);
        EXPECT_EQ(links->messages(),
                  !packed.by_copies && packed.left.size() < packed.types.size() ? 1 : 0);
      });
    }
}

bool goes_in_rows(const Packed& packed, std::size_t tensor) {
  return std::ranges::find(packed.left, tensor) == packed.left.end();
}

TEST(PackedRows, BringEachRankTheSumsOfItsParts) {
  each_case([](int rank, int count, const Packed& packed, const gpu::PartsInRows& parts) {
    const std::vector<TensorType>& types = packed.types;
    Tensors x, y;
    for (std::size_t t = 0; t < types.size(); ++t) {
      const std::int64_t n = types[t].numel();
      x.push_back(std::make_unique<Buffer<float>>(
          elements({0, n}, [&](std::int64_t i) { return operand(rank, t, i); })));
      y.push_back(std::make_unique<Buffer<float>>(
          static_cast<std::size_t>(part_of(n, rank, count).count), -77.0f));
    }
    const Buffer<std::byte> workspace(parts.workspace_to_sum(), std::byte{0});
    const std::vector<void*> in = places(x), out = places(y);
    const std::vector<const void*> inputs(in.begin(), in.end());
    const auto left = parts.sum({inputs, out, workspace.data()}, 1.0f);
    for (std::size_t t = 0; t < types.size(); ++t) {
      if (!goes_in_rows(packed, t)) continue;
      EXPECT_EQ(y[t]->values(), elements(part_of(types[t].numel(), rank, count),
                                         [&](std::int64_t i) {
                                           float sum = 0;
                                           for (int r = 0; r < count; ++r) sum += operand(r, t, i);
                                           return sum;
                                         }))
          << "rank " << rank << " of " << count << ", tensor " << t;
    }
    return left;
  });
}

TEST(PackedRows, BringAllRanksThePartsOfEach) {
  each_case([](int rank, int count, const Packed& packed, const gpu::PartsInRows& parts) {
    const std::vector<TensorType>& types = packed.types;
    const auto whole = [&](std::size_t t) {
      return elements({0, types[t].numel()}, [&](std::int64_t i) { return operand(0, t, i); });
    };
    Tensors y;
    for (std::size_t t = 0; t < types.size(); ++t) {
      std::vector<float> own(static_cast<std::size_t>(types[t].numel()), -77.0f);
      const Part part = part_of(types[t].numel(), rank, count);
      std::ranges::copy(elements(part, [&](std::int64_t i) { return operand(0, t, i); }),
                        own.begin() + part.first);
      y.push_back(std::make_unique<Buffer<float>>(own));
    }
    const Buffer<std::byte> workspace(parts.workspace_to_gather(), std::byte{0});
    const auto left = parts.gather({{}, places(y), workspace.data()});
    for (std::size_t t = 0; t < types.size(); ++t) {
      if (!goes_in_rows(packed, t)) continue;
      EXPECT_EQ(y[t]->values(), whole(t)) << "rank " << rank << " of " << count << ", " << t;
    }
    return left;
  });
}

}  // namespace
}  // namespace ridge
