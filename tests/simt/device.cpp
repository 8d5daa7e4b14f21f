// The device of tests/gpu, with its kernels on the machine of tests/simt instead of on a card.

#include "ridge/gpu/device.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/gpu/device/memory.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/device/target.h"
#include "ridge/gpu/vendor/blas.h"
#include "ridge/gpu/vendor/dnn.h"
#include "ridge/ops/op.h"
#include "tests/simt/machine.h"

namespace ridge {
namespace gpu {

void check(int status, std::string_view what) {
  if (status != 0) throw DeviceError("the machine failed in {}", what);
}

DeviceMemory::DeviceMemory(std::size_t bytes) : data_(simt::allocate(bytes)) { simt::keep(data_); }
DeviceMemory::~DeviceMemory() { simt::deallocate(data_); }
void DeviceMemory::clear(Stream, std::size_t bytes) {
  std::memset(data_, 0, bytes);
  simt::note_written(data_, bytes);
}

}  // namespace gpu

namespace {

// A card with matrix units that no kernel is written for: all that is left is portable. It has few
// multiprocessors, so that work is cut into few blocks, but more than one.
constexpr gpu::Card card{.compute_capability = 80,
                         .multiprocessors = 4,
                         .shared_per_block = simt::most_shared_bytes,
                         .l2_bytes = std::size_t{1} << 20};

int calls = 0;  // of kernels of operators

// Tells at the end what was run.
class Summary : public ::testing::Environment {
 public:
  void TearDown() override {
    const simt::Counts& all = simt::counts();
    fmt::print(
        "warps of {}: {} kernels in {} calls of operators and {} launches, {} blocks, {} threads, "
        "{} accesses to memory judged\n",
        simt::warp_width, all.kernels.size(), calls, all.launches, all.blocks, all.threads,
        all.accesses);
  }
};
::testing::Environment* const summary = ::testing::AddGlobalTestEnvironment(new Summary);

// Holds a kernel to its operands: it reads them, writes its results, and touches nothing else but
// its workspace.
class HeldKernel final : public Kernel {
 public:
  HeldKernel(KernelPtr kernel, const Op& op, Types in, Types out, std::size_t workspace)
      : kernel_(std::move(kernel)), workspace_(workspace) {
    for (const TensorType& type : in) in_.push_back(type.bytes());
    for (std::uint32_t o = 0; o < out.size(); ++o)
      out_.push_back({out[o].bytes(), aliased_input(op, o, in).has_value()});
  }

  void launch(const Launch& call) const override {
    std::vector<simt::Operand> operands;
    for (std::size_t o = 0; o < out_.size(); ++o)
      operands.push_back({call.outputs[o], out_[o].bytes, true, out_[o].is_alias, "a result"});
    for (std::size_t i = 0; i < in_.size(); ++i)
      operands.push_back({call.inputs[i], in_[i], false, true, "an operand"});
    operands.push_back({call.workspace, workspace_, true, false, "the workspace"});
    const simt::OperandsOnly held(operands);
    ++calls;
    try {
      kernel_->launch(call);
    } catch (const simt::Fault& fault) {
      ADD_FAILURE() << fault.what();  // of which sample is known here alone
      throw;
    }
  }

 private:
  struct Result {
    std::size_t bytes;
    bool is_alias;
  };
  KernelPtr kernel_;
  std::vector<std::size_t> in_;
  std::vector<Result> out_;
  std::size_t workspace_;
};

class SimtDevice final : public Device {
 public:
  explicit SimtDevice(bool deterministic)
      : Device({.name = "simt",
                .hardware = "SIMT machine",
                .description = fmt::format("SIMT machine, warps of {}", simt::warp_width),
                .target = gpu::target_of(card, "SIMT machine")}) {
    context_.card = card;
    context_.deterministic = deterministic;
    context_.blas = gpu::make_portable_blas(card);
    context_.dnn = gpu::make_portable_dnn(card);
    context_.rotations = gpu::make_rotation_tables();
  }

  PreparedKernel prepare(const Op& op, Types in, Types out, const KernelChoice& choice) override {
    GpuPrepare prepare{.gpu = context_, .in = in, .out = out, .choice = choice};
    KernelPtr kernel = std::visit([&](const auto& o) { return o.gpu(prepare); }, op.variant());
    if (kernel)
      kernel = std::make_unique<HeldKernel>(std::move(kernel), op, in, out, prepare.workspace);
    return {std::move(kernel), prepare.workspace};
  }

  void* allocate(std::size_t bytes) override { return simt::allocate(bytes); }
  void deallocate(void* memory, std::size_t) override { simt::deallocate(memory); }
  std::size_t available_memory() const override { return std::size_t{1} << 30; }
  void upload(void* device, const void* host, std::size_t bytes) override {
    std::memcpy(device, host, bytes);
    simt::note_written(device, bytes);
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void clear(void* device, std::size_t bytes) override {
    std::memset(device, 0, bytes);
    simt::note_written(device, bytes);
  }
  void synchronize() override {}
  void download_later(void* host, const void* device, std::size_t bytes) override {
    download(host, device, bytes);
  }
  void* allocate_host(std::size_t bytes) override { return ::operator new(bytes); }
  void deallocate_host(void* memory) override { ::operator delete(memory); }
  void mark(std::size_t) override {}
  void wait(std::size_t) override {}
  double seconds_between(std::size_t, std::size_t) const override { return 0; }
  KernelPtr capture(std::span<const DeviceWork>) override { return nullptr; }
  DeviceTools& tools() override { return no_tools_; }

 private:
  gpu::Context context_;
  DeviceTools no_tools_;
};

}  // namespace

int gpu_count() { return 1; }
std::unique_ptr<Device> open_gpu(const GpuOptions& options) {
  return std::make_unique<SimtDevice>(options.deterministic);
}

}  // namespace ridge
