// The CUDA runtime's memory, streams, events and graphs: all of Ridge's use of them outside the
// kernels.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/device/gathered.h"
#include "ridge/device/lanes.h"
#include "ridge/gpu/codegen/generated_kernels.h"
#include "ridge/gpu/device.h"
#include "ridge/gpu/device/capture_place.h"
#include "ridge/gpu/device/context.h"
#include "ridge/gpu/device/faults.h"
#include "ridge/gpu/device/links.h"
#include "ridge/gpu/device/memory.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/device/probe.h"
#include "ridge/gpu/device/target.h"
#include "ridge/gpu/profile/counters.h"
#include "ridge/gpu/profile/tracing.h"
#include "ridge/gpu/vendor/blas.h"
#include "ridge/gpu/vendor/dnn.h"
#include "ridge/gpu/vendor/nvml.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace gpu {

DeviceMemory::DeviceMemory(std::size_t bytes) {
  check(cudaMalloc(&data_, bytes), "a kernel's tables");
}
DeviceMemory::~DeviceMemory() { cudaFree(data_); }

void DeviceMemory::clear(Stream stream, std::size_t bytes) {
  check(cudaMemsetAsync(data_, 0, bytes, stream), "clearing memory");
}

}  // namespace gpu

namespace {

using gpu::check;

// Pinned memory through which the host's data reaches the card while the host goes on. Each upload
// takes the next stretch of the ring; a half is reused only when the card has read it.
class UploadRing {
 public:
  explicit UploadRing(cudaStream_t stream) : stream_(stream) {
    check(cudaMallocHost(&memory_, 2 * half), "pinned memory for uploads");
    for (cudaEvent_t& event : read_)
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  }
  ~UploadRing() {
    for (const cudaEvent_t event : read_) cudaEventDestroy(event);
    cudaFreeHost(memory_);
  }
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  void upload(void* device, const void* host, std::size_t bytes) {
    const auto* from = static_cast<const std::byte*>(host);
    auto* to = static_cast<std::byte*>(device);
    while (bytes > 0) {
      if (used_ == half) turn();
      const std::size_t part = std::min(bytes, half - used_);
      std::byte* const staged = static_cast<std::byte*>(memory_) + current_ * half + used_;
      std::memcpy(staged, from, part);
      check(cudaMemcpyAsync(to, staged, part, cudaMemcpyHostToDevice, stream_), "an upload");
      used_ += std::min((part + 255) / 256 * 256, half - used_);
      from += part;
      to += part;
      bytes -= part;
    }
  }

 private:
  static constexpr std::size_t half = std::size_t{8} << 20;

  void turn() {
    check(cudaEventRecord(read_[current_], stream_), "recording an event");
    current_ = 1 - current_;
    check(cudaEventSynchronize(read_[current_]), "waiting for an upload");
    used_ = 0;
  }

  cudaStream_t stream_;
  void* memory_ = nullptr;
  std::array<cudaEvent_t, 2> read_{};
  std::size_t current_ = 0, used_ = 0;
};

// Of the works of a captured step. The driver has 8 queues to a card, unless
// CUDA_DEVICE_MAX_CONNECTIONS says otherwise; in wider graphs kernels failed where several
// processes shared the card (docs/internals/gpu.md).
constexpr std::size_t most_at_once = 8;

class CapturedKernel final : public Kernel {
 public:
  CapturedKernel(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
    check(cudaGraphInstantiate(&replay_, graph, 0), "preparing a captured step");
    check(cudaGraphUpload(replay_, stream), "preparing a captured step");  // else at first launch
  }
  ~CapturedKernel() override { cudaGraphExecDestroy(replay_); }
  void launch(const Launch&) const override {
    check(cudaGraphLaunch(replay_, stream_), "a captured step");
  }

 private:
  cudaGraphExec_t replay_ = nullptr;
  cudaStream_t stream_;
};

// Finds what failed in a launch although nothing was said of it. The executor names the operator.
class CheckedKernel final : public Kernel {
 public:
  explicit CheckedKernel(KernelPtr kernel) : kernel_(std::move(kernel)) {}
  void launch(const Launch& call) const override {
    kernel_->launch(call);
    check(cudaPeekAtLastError(), "a launch");
  }
  void launch_first(const Launch& call) const override {
    kernel_->launch_first(call);
    check(cudaPeekAtLastError(), "a launch");
  }
  void launch_rest(const Launch& call) const override {
    kernel_->launch_rest(call);
    check(cudaPeekAtLastError(), "a launch");
  }
  std::span<const std::size_t> late_outputs() const override { return kernel_->late_outputs(); }

 private:
  KernelPtr kernel_;
};

// Waits for events that may depend on other ranks, and gives up on them where it takes far longer
// than it has so far.
class PatientWait {
 public:
  // RankError, after which the links are of no use, if another rank is lost.
  void wait(cudaEvent_t event, gpu::Links& links) {
    const auto begin = Clock::now();
    const auto usual = waits_ < settling ? std::max(longest_, at_first) : longest_;
    const auto patience = beyond_work + 2 * std::max(begin - last_end_, usual);
    for (auto looked = begin;;) {
      const cudaError_t status = cudaEventQuery(event);
      const auto now = Clock::now();
      if (status != cudaErrorNotReady) {
        check(status, "waiting for the GPU");
        longest_ = std::max(longest_, now - begin);
        ++waits_;
        last_end_ = now;
        return;
      }
      if (now - looked > look_every) {
        looked = now;
        look_for_others(links, now - begin > patience);
      }
      if (now - begin > spin) std::this_thread::sleep_for(pause);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds beyond_work{8'000}, look_every{10}, spin{5};
  static constexpr std::chrono::microseconds pause{50};

  static void look_for_others(gpu::Links& links, bool is_late) {
    try {
      links.check_others();
      if (is_late) throw RankError("another rank has ended or does not answer (the GPU waits)");
    } catch (const RankError&) {
      links.give_up();
      throw;
    }
  }

  // Until so many waits have been, how long a step takes is not known.
  static constexpr int settling = 16;
  static constexpr Clock::duration at_first = std::chrono::seconds(60);

  Clock::time_point last_end_ = Clock::now();
  Clock::duration longest_{};  // of its waits
  int waits_ = 0;
};

class GpuTools final : public DeviceTools {
 public:
  explicit GpuTools(const gpu::Context& context) : context_(context) {}

  std::string driver() override {
    int version = 0;
    try {
      return "driver " + gpu::Nvml().driver_version();
    } catch (const DeviceError&) {  // where only the runtime of CUDA was brought along
      gpu::check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
    }
    return fmt::format("driver of CUDA {}.{}", version / 1000, version % 1000 / 10);
  }
  std::vector<std::string> warnings() override {
    std::vector<std::string> lines = gpu::GeneratedKernels::of_process().warnings();
    if (std::string line = context_.blas->warning(); !line.empty()) lines.push_back(line);
    if (context_.links && !context_.links->only_enqueues())
      lines.emplace_back(
          "Several ranks share a GPU: their data goes through the host, and their steps are not "
          "captured. Give each a GPU of its own");
    return lines;
  }
  Tracer* tracer() override { return tracer_.get(); }
  std::unique_ptr<RangeCounters> range_counters(std::size_t max_ranges) override {
    return gpu::make_range_counters(gpu::default_metrics(), max_ranges);
  }
  ProbeKernel probe(Probe what, std::size_t bytes) override {
    return gpu::make_probe(context_, what, bytes);
  }

 private:
  const gpu::Context& context_;
  std::unique_ptr<Tracer> tracer_ = gpu::make_tracer();
};

gpu::Card card_of(const cudaDeviceProp& card) {
  return {.compute_capability = card.major * 10 + card.minor,
          .multiprocessors = card.multiProcessorCount,
          .shared_per_block = card.sharedMemPerBlockOptin,
          .l2_bytes = static_cast<std::size_t>(card.l2CacheSize)};
}

DeviceInfo info_of(int index, const cudaDeviceProp& card) {
  std::array<char, 32> bus_id{};
  check(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), index),
        "asking for the GPU's place");
  return {.name = "cuda",
          .hardware = card.name,
          .description = fmt::format("{}, {} multiprocessors, {}", card.name,
                                     card.multiProcessorCount, format_bytes(card.totalGlobalMem)),
          .total_memory = card.totalGlobalMem,
          .cache_bytes = static_cast<std::size_t>(card.l2CacheSize),
          .limits = {.count = card.multiProcessorCount,
                     .warp_size = card.warpSize,
                     .warps = card.maxThreadsPerMultiProcessor / card.warpSize,
                     .blocks = card.maxBlocksPerMultiProcessor,
                     .registers = card.regsPerMultiprocessor,
                     .shared_memory = static_cast<int>(card.sharedMemPerMultiprocessor),
                     .shared_memory_reserved = static_cast<int>(card.reservedSharedMemPerBlock)},
          .bus_id = bus_id.data(),
          .target = gpu::target_of(card_of(card), card.name)};
}

cudaDeviceProp chosen_card(int index) {
  cudaDeviceProp properties{};
  check(cudaSetDevice(index), "choosing the GPU");
  check(cudaGetDeviceProperties(&properties, index), "asking for the GPU's properties");
  return properties;
}

class GpuDevice final : public Device {
 public:
  explicit GpuDevice(const GpuOptions& options) : GpuDevice(options, chosen_card(options.index)) {}
  ~GpuDevice() override {
    settle(*this);
    for (const cudaEvent_t mark : marks_)
      if (mark) cudaEventDestroy(mark);
    if (end_) cudaEventDestroy(end_);
    context_.links.reset();
    uploads_.reset();
    cudaStreamDestroy(background_);
    cudaStreamDestroy(stream_);
  }

  PreparedKernel prepare(const Op& op, Types in, Types out, const KernelChoice& choice) override {
    GpuPrepare prepare{.gpu = context_, .in = in, .out = out, .choice = choice};
    KernelPtr kernel = std::visit([&](const auto& o) { return o.gpu(prepare); }, op.variant());
    if (kernel) kernel = std::make_unique<CheckedKernel>(std::move(kernel));
    return {std::move(kernel), prepare.workspace};
  }

  // Ranks on cards of their own reach each other by NCCL, which wants that.
  void join(std::shared_ptr<Communicator> communicator) override {
    std::vector<cudaUUID_t> cards = gathered(*communicator, uuid_);
    const auto before = [](const cudaUUID_t& a, const cudaUUID_t& b) {
      return std::memcmp(&a, &b, sizeof a) < 0;
    };
    std::ranges::sort(cards, before);
    const bool is_shared = std::ranges::adjacent_find(cards, std::not_fn(before)) != cards.end();
    context_.links =
        is_shared ? gpu::link_through_host(communicator) : gpu::link_by_nccl(*communicator);
    communicator->when_lost([links = std::weak_ptr(context_.links)] {
      if (const auto there = links.lock()) there->give_up();
    });
    Device::join(std::move(communicator));
  }

  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    if (const cudaError_t status = cudaMalloc(&memory, bytes);
        status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // the next check must not find it
      throw OutOfMemoryError(
          "the {} has {} left of {}, not the {} that were asked for: use a smaller batch or model",
          hardware(), format_bytes(available_memory()), format_bytes(total_memory()),
          format_bytes(bytes));
    } else {
      check(status, "allocating memory");
    }
    return memory;
  }
  void deallocate(void* memory, std::size_t) override { cudaFree(memory); }
  std::size_t available_memory() const override {
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for free memory");
    return free;
  }

  void upload(void* device, const void* host, std::size_t bytes) override {
    uploads_->upload(device, host, bytes);
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    download_later(host, device, bytes);
    synchronize();
  }
  void download_later(void* host, const void* device, std::size_t bytes) override {
    check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_), "a download");
  }
  void clear(void* device, std::size_t bytes) override {
    check(cudaMemsetAsync(device, 0, bytes, stream_), "clearing memory");
  }
  void synchronize() override {
    if (!waits_for_others()) return check(cudaStreamSynchronize(stream_), "waiting for the GPU");
    if (!end_) check(cudaEventCreateWithFlags(&end_, cudaEventDisableTiming), "creating an event");
    check(cudaEventRecord(end_, stream_), "recording an event");
    others_.wait(end_, *context_.links);
  }

  void* allocate_host(std::size_t bytes) override {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, bytes), "allocating pinned memory");
    return memory;
  }
  void deallocate_host(void* memory) override { cudaFreeHost(memory); }

  void mark(std::size_t slot) override {
    if (marks_.size() <= slot) marks_.resize(slot + 1, nullptr);
    if (!marks_[slot]) check(cudaEventCreate(&marks_[slot]), "creating an event");
    // Inside a capture: a node that records the event at every replay.
    const unsigned flags = capturing_ ? cudaEventRecordExternal : cudaEventRecordDefault;
    check(cudaEventRecordWithFlags(marks_[slot], context_.stream, flags), "recording an event");
  }
  void wait(std::size_t slot) override {
    if (!waits_for_others())
      return check(cudaEventSynchronize(marks_.at(slot)), "waiting for the GPU");
    others_.wait(marks_.at(slot), *context_.links);
  }
  double seconds_between(std::size_t from, std::size_t to) const override {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, marks_.at(from), marks_.at(to)), "reading a time");
    return milliseconds * 1e-3;
  }

  DeviceTools& tools() override { return tools_; }

  KernelPtr capture(std::span<const DeviceWork> works) override {
    if (context_.links && !context_.links->only_enqueues()) return nullptr;
    Graph graph;
    const std::vector<std::vector<std::size_t>> follows = follow_in_lanes(works, most_at_once);
    std::vector<Nodes> last(works.size());  // of each work: those that no other of it follows
    for (std::size_t begin = 0; begin < works.size();) {
      // What follows the work before it alone is captured with it: only within a capture does the
      // runtime know which kernels may be launched early.
      std::size_t end = begin + 1;
      while (end < works.size() && follows[end] == std::vector{end - 1} &&
             works[end].background == works[begin].background)
        ++end;
      Nodes after;
      for (const std::size_t j : follows[begin])
        after.insert(after.end(), last[j].begin(), last[j].end());
      capture_into(graph.handle, after, works.subspan(begin, end - begin),
                   std::span(last).subspan(begin, end - begin));
      begin = end;
    }
    return std::make_unique<CapturedKernel>(graph.handle, stream_);
  }

 private:
  using Nodes = std::vector<cudaGraphNode_t>;

  GpuDevice(const GpuOptions& options, const cudaDeviceProp& card)
      : Device(info_of(options.index, card)), uuid_(card.uuid) {
    int lowest = 0, highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for priorities");
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest),
          "creating a stream");
    check(cudaStreamCreateWithPriority(&background_, cudaStreamNonBlocking, lowest),
          "creating a stream");
    context_ = {.stream = stream_,
                .card = card_of(card),
                .deterministic = options.deterministic,
                .blas = gpu::make_blas(card_of(card)),
                .dnn = gpu::make_dnn(card_of(card)),
                .rotations = gpu::make_rotation_tables()};
    uploads_ = std::make_unique<UploadRing>(stream_);
  }

  bool waits_for_others() const { return context_.links && context_.links->only_enqueues(); }

  struct Graph {
    cudaGraph_t handle = nullptr;
    Graph() { check(cudaGraphCreate(&handle, 0), "capturing a step"); }
    ~Graph() { cudaGraphDestroy(handle); }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
  };

  // Appends works that follow each other, the first of them `after` those nodes, and tells of each
  // which of its nodes no other follows; those of the work before it if it enqueues nothing.
  void capture_into(cudaGraph_t graph, const Nodes& after, std::span<const DeviceWork> works,
                    std::span<Nodes> last) {
    // Kernels keep the priority of the stream that they are captured from.
    const cudaStream_t stream = works.front().background ? background_ : stream_;
    check(cudaStreamBeginCaptureToGraph(stream, graph, after.data(), nullptr, after.size(),
                                        cudaStreamCaptureModeThreadLocal),
          "capturing a step");
    context_.stream = stream;
    capturing_ = true;
    try {
      for (std::size_t i = 0; i < works.size(); ++i) {
        works[i].enqueue();
        last[i] = gpu::CapturePlace(context_.stream).nodes;
      }
    } catch (...) {
      end_capture(graph);
      throw;
    }
    check(end_capture(graph), "capturing a step");
  }

  cudaError_t end_capture(cudaGraph_t graph) {
    capturing_ = false;
    return cudaStreamEndCapture(std::exchange(context_.stream, stream_), &graph);
  }

  cudaStream_t stream_ = nullptr;
  cudaStream_t background_ = nullptr;  // only captured from
  gpu::Context context_;
  std::unique_ptr<UploadRing> uploads_;
  std::vector<cudaEvent_t> marks_;
  cudaUUID_t uuid_;
  cudaEvent_t end_ = nullptr;  // of all work
  PatientWait others_;
  bool capturing_ = false;
  GpuTools tools_{context_};
};

}  // namespace

int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

std::unique_ptr<Device> open_gpu(const GpuOptions& options) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  gpu::check_cards(status, count, driver, runtime);
  if (options.index >= count)
    throw DeviceError("there is no GPU {}: the driver shows {}", options.index, count);
  return std::make_unique<GpuDevice>(options);
}

}  // namespace ridge
