#include "ridge/gpu/kernels/collective/rows_of_ranks.h"

#include <vector>

namespace ridge::gpu {

namespace {

constexpr std::size_t alignment = 64;

}  // namespace

RowsOfRanks::RowsOfRanks(GpuPrepare& prepare, std::string_view name, std::int64_t ranks,
                         std::int64_t columns)
    : others_(prepare.gpu.links.get(), name, ranks),
      gpu_(&prepare.gpu),
      columns_(columns),
      place_((prepare.workspace + alignment - 1) / alignment * alignment) {
  if (ranks > 1)
    prepare.workspace = place_ + static_cast<std::size_t>(ranks * columns) * sizeof(double);
}

double* RowsOfRanks::own(void* workspace) const {
  return all(workspace) + (*others_).rank() * columns_;
}

void RowsOfRanks::gather(void* workspace) const {
  Links& links = *others_;
  const std::size_t bytes = static_cast<std::size_t>(columns_) * sizeof(double);
  std::vector<Parcel> out, in;
  for (int rank = 0; rank < links.count(); ++rank) {
    if (rank == links.rank()) continue;
    out.push_back({rank, own(workspace), bytes});
    in.push_back({rank, all(workspace) + rank * columns_, bytes});
  }
  links.exchange(gpu_->stream, out, in);
}

}  // namespace ridge::gpu
