#pragma once

// The part of NCCL that Ridge calls, as its documentation of the API has it ("NCCL API", release
// 2.18 and later; https://docs.nvidia.com/deeplearning/nccl). Ridge is built without its header.

#include <cstddef>

#include "ridge/base/vendor_library.h"
#include "ridge/gpu/device/context.h"

namespace ridge::gpu::nccl {

struct Comm;  // ncclComm_t points to it

struct Window;  // ncclWindow_t points to it

// A window that lies at the same place in the memory of all ranks (NCCL_WIN_COLL_SYMMETRIC).
inline constexpr int symmetric_window = 1;

struct UniqueId {
  char bytes[128];
};

// ncclResult_t, where it matters which error it is.
inline constexpr int success = 0;
inline constexpr int in_progress = 7;

enum class DataType : int { int8 = 0, f16 = 6, f32 = 7, bf16 = 9 };
enum class Reduction : int { sum = 0, mean = 4 };

// The first version that has all of what must be there, as ncclGetVersion() tells it; and the first
// whose collectives can go by copies.
inline constexpr int oldest_version = 21800, oldest_version_with_copies = 22800;

struct Library : VendorLibrary {
  Library();

  Function<int(int*)> get_version{*this, "ncclGetVersion"};
  Function<int(UniqueId*)> get_unique_id{*this, "ncclGetUniqueId"};
  Function<int(Comm**, int, UniqueId, int)> comm_init_rank{*this, "ncclCommInitRank"};
  Function<int(Comm*)> comm_destroy{*this, "ncclCommDestroy"};
  Function<int(Comm*)> comm_abort{*this, "ncclCommAbort"};
  Function<int(Comm*, int*)> comm_get_async_error{*this, "ncclCommGetAsyncError"};
  Function<const char*(int)> get_error_string{*this, "ncclGetErrorString"};
  Function<const char*(Comm*)> get_last_error{*this, "ncclGetLastError"};
  Function<int(const void*, void*, std::size_t, DataType, Comm*, Stream)> all_gather{
      *this, "ncclAllGather"};
  Function<int()> group_start{*this, "ncclGroupStart"};
  Function<int()> group_end{*this, "ncclGroupEnd"};
  Function<int(const void*, void*, std::size_t, DataType, Reduction, Comm*, Stream)> all_reduce{
      *this, "ncclAllReduce"};
  Function<int(const void*, std::size_t, DataType, int, Comm*, Stream)> send{*this, "ncclSend"};
  Function<int(void*, std::size_t, DataType, int, Comm*, Stream)> receive{*this, "ncclRecv"};

  // Since 2.19, 2.27 and 2.28.
  OptionalFunction<int(void**, std::size_t)> mem_alloc{*this, "ncclMemAlloc"};
  OptionalFunction<int(void*)> mem_free{*this, "ncclMemFree"};
  OptionalFunction<int(Comm*, void*, std::size_t, Window**, int)> window_register{
      *this, "ncclCommWindowRegister"};
  OptionalFunction<int(Comm*, Window*)> window_deregister{*this, "ncclCommWindowDeregister"};
  OptionalFunction<int(const void*, void*, std::size_t, DataType, Comm*, Stream)> all_to_all{
      *this, "ncclAlltoAll"};
};

// The library, opened at the first call. DeviceError if it is not there, or too old.
const Library& library();

}  // namespace ridge::gpu::nccl
