#pragma once

// How data gets from the memory of one rank's card to that of another's.

#include <cstddef>
#include <memory>
#include <span>

#include "ridge/base/dtype.h"
#include "ridge/device/communicator.h"
#include "ridge/gpu/device/context.h"

namespace ridge::gpu {

// Bytes on the device that go to another rank, or have room for what comes from it.
struct Parcel {
  int rank = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

// A tensor on the device.
struct Summand {
  void* data = nullptr;
  std::size_t elements = 0;
  DType dtype = DType::f32;  // or a type of 16 bits
};

// A way to other cards that occupies none of their multiprocessors: engines copy rows, one for each
// rank, each of row_bytes, from memory of allocate() to such memory. All ranks make the same calls
// in the same order.
class RowCopies {
 public:
  virtual ~RowCopies() = default;

  // Null unless every rank gets memory.
  virtual void* allocate(std::size_t bytes) = 0;
  // False if it is not memory of allocate().
  virtual bool deallocate(void* memory) = 0;
  // Other ranks are lost: memory is not given back any more, which needs them.
  virtual void give_up() noexcept = 0;

  // Whether `bytes` at `rows` and at `room` lie in such memory, at the same places on all ranks,
  // which call it together and get the same answer.
  virtual bool reach(const void* rows, const void* room, std::size_t bytes) = 0;
  // Whether a stream is being captured: the two below can be called only then.
  virtual bool is_captured(Stream stream) const = 0;
  // Each row goes to the rank of its number, in whose `room` it is the row of this rank's number.
  virtual void exchange(Stream stream, const void* rows, void* room, std::size_t row_bytes) = 0;
  // Each rank's own row goes to all others, where it replaces the row of that rank's number.
  virtual void gather(Stream stream, void* rows, std::size_t row_bytes) = 0;
};

// Whether such copies may be used: not where NCCL_CTA_POLICY, which NCCL reads too, is set to
// anything but 2.
bool allows_row_copies();

// The way to the cards of all other ranks. Every rank makes the same calls in the same order; what
// they do is done in the order of the stream. RankError for a rank that is lost, as far as a call
// can know of it.
class Links {
 public:
  virtual ~Links() = default;

  virtual int rank() const = 0;
  virtual int count() const = 0;  // of ranks
  // Whether calls only enqueue, so that they can be captured; else they return when all is done.
  virtual bool only_enqueues() const = 0;

  // Hands parcels to other ranks while those from others come in. What one rank has for another is
  // in the same order, and of the same sizes, on both.
  virtual void exchange(Stream stream, std::span<const Parcel> out, std::span<const Parcel> in) = 0;
  // Replaces each element by its sum over all ranks, or their mean. All of them get the same bits;
  // the order of the sums is that of the transport.
  virtual void all_reduce(Stream stream, std::span<const Summand> tensors, bool mean) = 0;

  // Null where the links have no such way.
  virtual RowCopies* row_copies() { return nullptr; }

  // RankError if the transport has noticed that another rank is lost.
  virtual void check_others() = 0;
  // Ends what waits for other ranks, so that the device can be left.
  virtual void give_up() noexcept = 0;
};

// Over the vendor's library, in which each rank has a card of its own. DeviceError if it is not
// there; all ranks call it.
std::shared_ptr<Links> link_by_nccl(Communicator& communicator);

// Through memory of the host, by what connects the ranks there: for several of them on one card.
std::shared_ptr<Links> link_through_host(std::shared_ptr<Communicator> communicator);

}  // namespace ridge::gpu
