#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/device/gathered.h"
#include "ridge/gpu/device/libraries.h"
#include "ridge/gpu/device/links.h"
#include "ridge/gpu/vendor/aside_capture.h"
#include "ridge/gpu/vendor/nccl.h"
#include "ridge/gpu/vendor/nccl_row_copies.h"

namespace ridge::gpu {
namespace nccl {
namespace {

// What NCCL does by itself in captured graphs, which whoever sets these variables can have back.
// Ridge's collectives follow each other in one stream, or in a captured graph by its edges: that
// NCCL keeps an order between graphs and streams too would put two nodes more around each of them.
// That it registers the memory of graphs with the other ranks gained nothing where it was tried.
// Policy 2 is copies without kernels where memory is registered, as that of RowCopies is.
LibrarySearch search() {
  ::setenv("NCCL_CTA_POLICY", "2", 0);
  ::setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
  ::setenv("NCCL_GRAPH_REGISTER", "0", 0);
  return search_for(nccl_library());
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

int version_of(const Library& library) {
  int version = 0;
  library.get_version(&version);
  return version;
}

}  // namespace

Library::Library() : VendorLibrary(search()) {}

const Library& library() {
  static const Library opened;
  if (const int version = version_of(opened); version < oldest_version)
    throw DeviceError(
        "{} is NCCL {}, and Ridge needs {} or later: install it, or add its "
        "directory to LD_LIBRARY_PATH",
        opened.path(), version_text(version), version_text(oldest_version));
  return opened;
}

}  // namespace nccl

namespace {

using nccl::DataType;
using nccl::Reduction;

DataType type_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return DataType::f16;
    case DType::bf16:
      return DataType::bf16;
    default:
      return DataType::f32;
  }
}

class NcclLinks final : public Links {
 public:
  explicit NcclLinks(Communicator& communicator)
      : library_(nccl::library()), rank_(communicator.rank()), count_(communicator.count()) {
    nccl::UniqueId id{};
    if (rank_ == 0) check(library_.get_unique_id(&id), "making a communicator");
    id = gathered(communicator, id).front();
    check(library_.comm_init_rank(&comm_, count_, id, rank_), "making a communicator");
    gpu::check(cudaGetDevice(&card_), "asking for the current GPU");
    copies_ = nccl::make_row_copies(library_, communicator, *aside_);
  }
  ~NcclLinks() override {
    if (std::uncaught_exceptions() > 0) give_up();  // others may not come to an orderly end
    is_gone_ = true;
    if (end_waits_.joinable()) end_waits_.join();
    aside_.reset();  // whose graphs the library would wait for
    copies_.reset();
    if (abort_.joinable())
      abort_.join();
    else if (comm_)
      library_.comm_destroy(comm_);
  }
  NcclLinks(const NcclLinks&) = delete;
  NcclLinks& operator=(const NcclLinks&) = delete;

  int rank() const override { return rank_; }
  int count() const override { return count_; }
  bool only_enqueues() const override { return true; }

  void exchange(Stream stream, std::span<const Parcel> out, std::span<const Parcel> in) override {
    together(stream, [&](Stream to) {
      for (const Parcel& p : out)
        if (p.bytes > 0)
          check(library_.send(p.data, p.bytes, DataType::int8, p.rank, comm_, to), "sending");
      for (const Parcel& p : in)
        if (p.bytes > 0)
          check(library_.receive(p.data, p.bytes, DataType::int8, p.rank, comm_, to), "receiving");
    });
  }

  void all_reduce(Stream stream, std::span<const Summand> tensors, bool mean) override {
    together(stream, [&](Stream to) {
      for (const Summand& t : tensors)
        check(library_.all_reduce(t.data, t.data, t.elements, type_of(t.dtype),
                                  mean ? Reduction::mean : Reduction::sum, comm_, to),
              "all_reduce");
    });
  }

  RowCopies* row_copies() override { return copies_.get(); }

  void check_others() override {
    int status = nccl::success;
    if (!abort_.joinable()) library_.comm_get_async_error(comm_, &status);
    if (status != nccl::success && status != nccl::in_progress)
      throw RankError("another rank has ended or does not answer ({})", reason(status));
  }
  // Ends the kernels that wait at once, but returns only when the last graph with a call in it is
  // gone: others will see to that. Of copies each has waits of its own.
  void give_up() noexcept override {
    if (!comm_ || abort_.joinable()) return;
    if (copies_) copies_->give_up();
    abort_ = std::thread([this] { library_.comm_abort(comm_); });
    end_waits_ = std::thread([this] {
      cudaSetDevice(card_);
      for (; !is_gone_; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
        aside_->end_waits();
    });
  }

 private:
  // Makes calls(stream) one launch.
  template <class Calls>
  void together(Stream stream, const Calls& calls) {
    if (abort_.joinable()) throw RankError("another rank was lost before");
    const auto group = [&](Stream to) {
      check(library_.group_start(), "a group of calls");
      try {
        calls(to);
      } catch (...) {
        library_.group_end();
        throw;
      }
      check(library_.group_end(), "a group of calls");
    };
    if (AsideCapture::is_capturing(stream))
      aside_->capture(stream, group);
    else
      group(stream);
  }

  std::string reason(int status) const {
    const std::string_view more = library_.get_last_error(comm_);
    return fmt::format("{}{}{}", library_.get_error_string(status), more.empty() ? "" : ": ", more);
  }
  void check(int status, std::string_view what) const {
    if (status == nccl::success) return;
    throw DeviceError("NCCL failed in {}: {}; NCCL_DEBUG=INFO says more", what, reason(status));
  }

  const nccl::Library& library_;
  int rank_, count_;
  nccl::Comm* comm_ = nullptr;
  int card_ = 0;
  std::unique_ptr<AsideCapture> aside_ = std::make_unique<AsideCapture>();
  std::unique_ptr<RowCopies> copies_;  // if there are such
  std::atomic<bool> is_gone_ = false;
  std::thread abort_, end_waits_;
};

}  // namespace

std::shared_ptr<Links> link_by_nccl(Communicator& communicator) {
  return std::make_shared<NcclLinks>(communicator);
}

}  // namespace ridge::gpu
