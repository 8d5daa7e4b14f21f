#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ridge/device/other_ranks.h"
#include "ridge/gpu/device/links.h"
#include "ridge/gpu/device/prepare.h"

namespace ridge::gpu {

// What RowCopies::exchange() and gather() do (gpu/device/links.h), in one message to each rank.
void exchange_rows(Links& links, Stream stream, std::byte* rows, std::byte* room,
                   std::size_t row_bytes);
void gather_rows(Links& links, Stream stream, std::byte* rows, std::size_t row_bytes);

// A row of f64 for each rank, at the end of a kernel's workspace: each fills its own, and gets
// those of the others.
class RowsOfRanks {
 public:
  // Makes room behind what the workspace has by now. One rank has no rows. UsageError if the device
  // is one of another number of ranks.
  RowsOfRanks(GpuPrepare& prepare, std::string_view name, std::int64_t ranks, std::int64_t columns);

  int ranks() const { return static_cast<int>(others_.ranks()); }
  double* all(void* workspace) const {
    return reinterpret_cast<double*>(static_cast<char*>(workspace) + place_);
  }
  double* own(void* workspace) const;
  // Enqueues what fills the rows of all others. UsageError on a device alone, where plans prepare
  // the kernels of a rank.
  void gather(void* workspace) const;

 private:
  OtherRanks<Links> others_;
  const Context* gpu_;
  std::int64_t columns_;
  std::size_t place_;
};

}  // namespace ridge::gpu
