#include "ridge/gpu/kernels/collective/rows_of_ranks.h"

#include <vector>

namespace ridge::gpu {

namespace {

constexpr std::size_t alignment = 64;

// Each other rank gets row_to(rank), and sends what becomes its row of the room.
template <class RowTo>
void send_rows(Links& links, Stream stream, std::byte* room, std::size_t row_bytes,
               const RowTo& row_to) {
  std::vector<Parcel> out, in;
  for (int rank = 0; rank < links.count(); ++rank) {
    if (rank == links.rank()) continue;
    out.push_back({rank, row_to(rank), row_bytes});
    in.push_back({rank, room + row_bytes * static_cast<std::size_t>(rank), row_bytes});
  }
  links.exchange(stream, out, in);
}

}  // namespace

void exchange_rows(Links& links, Stream stream, std::byte* rows, std::byte* room,
                   std::size_t row_bytes) {
  send_rows(links, stream, room, row_bytes,
            [&](int rank) { return rows + row_bytes * static_cast<std::size_t>(rank); });
}

void gather_rows(Links& links, Stream stream, std::byte* rows, std::size_t row_bytes) {
  std::byte* const own = rows + row_bytes * static_cast<std::size_t>(links.rank());
  send_rows(links, stream, rows, row_bytes, [&](int) { return own; });
}

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
  gather_rows(*others_, gpu_->stream, reinterpret_cast<std::byte*>(all(workspace)),
              static_cast<std::size_t>(columns_) * sizeof(double));
}

}  // namespace ridge::gpu
