#include "ridge/gpu/vendor/nccl_row_copies.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string_view>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/device/gathered.h"

namespace ridge::gpu::nccl {
namespace {

class NcclRowCopies final : public RowCopies {
 public:
  // A communicator of its own: kernels of one that has windows would be others, in memory of these.
  NcclRowCopies(const Library& library, Communicator& communicator, AsideCapture& aside)
      : library_(library), communicator_(communicator), aside_(aside) {
    UniqueId id{};
    if (rank() == 0) check_status(library_.get_unique_id(&id));
    id = gathered(communicator_, id).front();
    check_status(library_.comm_init_rank(&comm_, communicator_.count(), id, rank()));
  }
  ~NcclRowCopies() override {
    for (const Block& block : blocks_) release(block);
    if (!gave_up_) library_.comm_destroy(comm_);
  }

  void* allocate(std::size_t bytes) override {
    // A window is as large on all ranks.
    const std::vector<std::size_t> wanted = gathered(communicator_, bytes);
    Block block{.bytes = std::ranges::max(wanted)};
    if (library_.mem_alloc(&block.memory, block.bytes) != success) block.memory = nullptr;
    if (on_any_rank(&communicator_, block.memory == nullptr)) {
      if (block.memory) library_.mem_free(block.memory);
      return nullptr;
    }
    const int status =
        library_.window_register(comm_, block.memory, block.bytes, &block.window, symmetric_window);
    if (on_any_rank(&communicator_, status != success || !block.window)) {
      release(block);
      return nullptr;
    }
    blocks_.push_back(block);
    return block.memory;
  }

  bool deallocate(void* memory) override {
    const auto found = std::ranges::find(blocks_, memory, &Block::memory);
    if (found == blocks_.end()) return false;
    const Block block = *found;
    blocks_.erase(found);
    release(block);
    return true;
  }
  void give_up() noexcept override { gave_up_ = true; }

  // NCCL prepares its copies at the first call, which must not be one that is captured. Two calls,
  // because ranks tell each other how far they are by counting, the first call leaves 1 where the
  // first captured one waits for 1, and would not wait.
  bool works() {
    constexpr std::size_t row_bytes = 4096;
    const std::size_t bytes = row_bytes * static_cast<std::size_t>(communicator_.count());
    auto* const rows = static_cast<std::byte*>(allocate(2 * bytes));
    if (!rows) return false;
    Stream stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
    bool done = true;
    for (int call = 0; call < 2; ++call)
      done = done && library_.all_to_all(rows, rows + bytes, row_bytes, DataType::int8, comm_,
                                         stream) == success;
    done = done && cudaStreamSynchronize(stream) == cudaSuccess;
    cudaStreamDestroy(stream);
    deallocate(rows);
    return !on_any_rank(&communicator_, !done);
  }

  bool is_captured(Stream stream) const override { return AsideCapture::is_capturing(stream); }
  bool reach(const void* rows, const void* room, std::size_t bytes) override {
    const Places mine{.rows = place_of(rows, bytes), .room = place_of(room, bytes), .bytes = bytes};
    const std::vector<Places> all = gathered(communicator_, mine);
    return mine.rows != nowhere && mine.room != nowhere &&
           std::ranges::all_of(all, [&](const Places& one) { return one == mine; });
  }

  void exchange(Stream stream, const void* rows, void* room, std::size_t row_bytes) override {
    aside_.capture(stream, [&](Stream to) {
      check_status(library_.all_to_all(rows, room, row_bytes, DataType::int8, comm_, to));
    });
  }

  void gather(Stream stream, void* rows, std::size_t row_bytes) override {
    aside_.capture(stream, [&](Stream to) {
      const std::byte* const own =
          static_cast<std::byte*>(rows) + row_bytes * static_cast<std::size_t>(rank());
      check_status(library_.all_gather(own, rows, row_bytes, DataType::int8, comm_, to));
    });
  }

 private:
  struct Block {
    void* memory = nullptr;
    std::size_t bytes = 0;
    Window* window = nullptr;
  };
  static constexpr std::size_t nowhere = ~std::size_t{0};
  // Bytes from the beginning of this rank's blocks, which all ranks have in the same order.
  struct Places {
    std::size_t rows, room, bytes;
    friend bool operator==(const Places&, const Places&) = default;
  };

  int rank() const { return communicator_.rank(); }

  std::size_t place_of(const void* memory, std::size_t bytes) const {
    std::size_t before = 0;
    for (const Block& block : blocks_) {
      const auto* const begin = static_cast<const std::byte*>(block.memory);
      const auto* const at = static_cast<const std::byte*>(memory);
      if (std::less_equal{}(begin, at) && std::less_equal{}(at + bytes, begin + block.bytes))
        return before + static_cast<std::size_t>(at - begin);
      before += block.bytes;
    }
    return nowhere;
  }

  void release(const Block& block) const {
    if (gave_up_) return;
    if (block.window) library_.window_deregister(comm_, block.window);
    library_.mem_free(block.memory);
  }

  void check_status(int status) const {
    if (status != success)
      throw DeviceError("NCCL failed in copies between GPUs: {}; NCCL_DEBUG=INFO says more",
                        library_.get_error_string(status));
  }

  const Library& library_;
  Comm* comm_ = nullptr;
  Communicator& communicator_;
  AsideCapture& aside_;
  std::vector<Block> blocks_;
  std::atomic<bool> gave_up_ = false;
};

bool has_copies(const Library& library) {
  int version = 0;
  library.get_version(&version);
  return allows_row_copies() && version >= oldest_version_with_copies && library.mem_alloc &&
         library.mem_free && library.window_register && library.window_deregister &&
         library.all_to_all;
}

// The identifier that a kernel of Linux gives itself when it starts, which containers on it share.
using Machine = std::array<char, 36>;

Machine this_machine() {
  Machine id{};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(id.data(), id.size());
  return id;
}

// Between machines NCCL has no such copies, and later versions register memory all the same.
bool are_on_one_machine(Communicator& communicator) {
  const std::vector<Machine> all = gathered(communicator, this_machine());
  return std::ranges::all_of(all, [&](const Machine& one) { return one == all.front(); });
}

}  // namespace

std::unique_ptr<RowCopies> make_row_copies(const Library& library, Communicator& communicator,
                                           AsideCapture& aside) {
  if (communicator.count() == 1 || on_any_rank(&communicator, !has_copies(library)) ||
      !are_on_one_machine(communicator))
    return nullptr;
  auto copies = std::make_unique<NcclRowCopies>(library, communicator, aside);
  if (!copies->works()) return nullptr;
  return copies;
}

}  // namespace ridge::gpu::nccl

namespace ridge::gpu {

bool allows_row_copies() {
  const char* const policy = std::getenv("NCCL_CTA_POLICY");
  return !policy || policy == std::string_view("2");
}

}  // namespace ridge::gpu
