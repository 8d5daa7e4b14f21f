#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/shape.h"
#include "ridge/device/activity.h"
#include "ridge/device/communicator.h"
#include "ridge/device/kernel.h"
#include "ridge/device/tuner.h"
#include "ridge/passes/target.h"

namespace ridge {

struct Op;

// A kernel and the workspace it wants at each launch.
struct PreparedKernel {
  KernelPtr kernel;  // null if there is nothing to do (a reshape)
  std::size_t workspace = 0;
};

// A measurement of a device: one operation, done as fast as the device can.
enum class Probe : std::uint8_t {
  nothing,       // a launch
  multiply_add,  // f32 in registers, by vector units
  read,          // from a buffer, the first input
  write,         // to a buffer, the first output
  copy,          // from one to the other
};

// A kernel for a probe, and its work: FLOPs, bytes read and written, or 1 for `nothing`.
struct ProbeKernel {
  KernelPtr kernel;  // null where the device has no such thing
  double work = 0;
};

// A launch to capture, and the earlier launches, by index, that it must follow.
struct DeviceWork {
  std::function<void()> enqueue;
  std::vector<std::size_t> after;
  bool background = false;  // others go before it where both could begin
};

// What is known of a device for as long as it is open.
struct DeviceInfo {
  std::string name;              // "cpu", "cuda"
  std::string hardware;          // "AMD EPYC": the same whatever number of threads shares it
  std::string description;       // "AMD EPYC, 4 threads"
  int threads = 1;               // that share a kernel; 1 where they do not count
  std::size_t total_memory = 0;  // bytes fitted
  std::size_t cache_bytes = 0;   // of its last cache; 0 if not known
  ProcessorLimits limits = {};   // for the occupancy of its kernels; unknown by default
  // Where a card is plugged in, "0000:0a:00.0", to ask the driver of its clocks; empty if it is
  // none.
  std::string bus_id = {};
  Target target = {};
};

// Interfaces that measure or diagnose a device; this base class provides none of them.
class DeviceTools {
 public:
  virtual ~DeviceTools() = default;
  virtual std::string driver() { return {}; }  // "driver 580.159.04"; empty if it has none
  // A line for each feature that the kernels prepared so far lack, with the remedy.
  virtual std::vector<std::string> warnings() { return {}; }
  // The tracer of an asynchronous device, on its own clock; else null.
  virtual Tracer* tracer() { return nullptr; }
  // What it can count in hardware, over at most so many ranges; null if it cannot. DeviceError with
  // what to do if the system does not allow it.
  virtual std::unique_ptr<RangeCounters> range_counters(std::size_t /*max_ranges*/) {
    return nullptr;
  }
  // A kernel that measures the device, on buffers of so many bytes, as often as makes its work long
  // against its launch.
  virtual ProbeKernel probe(Probe /*what*/, std::size_t /*bytes*/) { return {}; }
};

// Where kernels run and tensors live. Work is enqueued in order; synchronize() waits for all
// of it. On a GPU calls return before their work is done. DeviceError if a call on the device
// fails.
class Device {
 public:
  explicit Device(DeviceInfo info) : info_(std::move(info)) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  const std::string& name() const { return info_.name; }
  const std::string& hardware() const { return info_.hardware; }
  const std::string& description() const { return info_.description; }
  int threads() const { return info_.threads; }
  std::size_t total_memory() const { return info_.total_memory; }
  const Target& target() const { return info_.target; }
  bool is_gpu() const { return info_.target.is_gpu(); }

  // Makes the device that of one rank of several, before kernels are prepared: by this the ranks'
  // kernels reach each other. Null, as at first, for a device alone.
  // Where memory is not the host's, the ranks call it together: they agree how their data moves.
  virtual void join(std::shared_ptr<Communicator> communicator) {
    communicator_ = std::move(communicator);
  }
  Communicator* communicator() const { return communicator_.get(); }
  int ranks() const { return communicator_ ? communicator_->count() : 1; }
  int rank() const { return communicator_ ? communicator_->rank() : 0; }

  virtual PreparedKernel prepare(const Op& op, Types in, Types out,
                                 const KernelChoice& choice = {}) = 0;

  // Uninitialized memory aligned to 64 bytes; OutOfMemoryError if there is none.
  virtual void* allocate(std::size_t bytes) = 0;
  // The same, of memory that other ranks' devices may write to; all ranks call it together.
  virtual void* allocate_jointly(std::size_t bytes) { return allocate(bytes); }
  virtual void deallocate(void* memory, std::size_t bytes) = 0;
  virtual std::size_t available_memory() const = 0;  // bytes that could still be allocated

  // upload() has read the host's memory when it returns; download() waits for all work before it.
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  virtual void clear(void* device, std::size_t bytes) = 0;  // to zero bytes
  virtual void synchronize() = 0;

  // Enqueues a copy to memory of allocate_host(), to be read after a later mark was waited for.
  virtual void download_later(void* host, const void* device, std::size_t bytes) = 0;
  virtual void* allocate_host(std::size_t bytes) = 0;
  virtual void deallocate_host(void* memory) = 0;

  // Marks, numbered by the caller, are points in the order of the work. wait() waits until the work
  // before a mark is done; only then can the seconds between it and an earlier one be told.
  virtual void mark(std::size_t slot) = 0;
  virtual void wait(std::size_t slot) = 0;
  virtual double seconds_between(std::size_t from, std::size_t to) const = 0;

  // All the work as one kernel without operands, which does it at once; nothing is done now. The
  // device may do work at the same time, or in another order, that does not follow from what it
  // must be `after`. Null where the device has no such thing.
  virtual KernelPtr capture(std::span<const DeviceWork> works) = 0;

  virtual DeviceTools& tools() = 0;

 private:
  DeviceInfo info_;
  std::shared_ptr<Communicator> communicator_;
};

// Waits for all work on behalf of a destructor, which can tell nobody of an error: a device that is
// lost has no work any more, and whoever uses it next is told.
inline void settle(Device& device) noexcept {
  try {
    device.synchronize();
  } catch (const std::exception&) {
    // The call that met the error first has reported it, or it does not matter.
  }
}

}  // namespace ridge
