// A card: its memory, streams, events and graphs, by the runtime of either vendor.

#include "ridge/gpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/device/gathered.h"
#include "ridge/device/lanes.h"
#include "ridge/gpu/card_properties.h"
#include "ridge/gpu/codegen/generated_kernels.h"
#include "ridge/gpu/device/api.h"
#include "ridge/gpu/device/context.h"
#include "ridge/gpu/device/faults.h"
#include "ridge/gpu/device/launch_graph.h"
#include "ridge/gpu/device/links.h"
#include "ridge/gpu/device/memory.h"
#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/device/probe.h"
#include "ridge/gpu/profile/counters.h"
#include "ridge/gpu/profile/tracing.h"
#include "ridge/gpu/vendor/blas.h"
#include "ridge/gpu/vendor/dnn.h"
#include "ridge/ops/op.h"

namespace ridge {
namespace gpu {

DeviceMemory::DeviceMemory(std::size_t bytes) {
  check(api::malloc(&data_, bytes), "a kernel's tables");
}
DeviceMemory::~DeviceMemory() { api::ignore(api::free(data_)); }

void DeviceMemory::clear(Stream stream, std::size_t bytes) {
  check(api::memset_async(data_, 0, bytes, stream), "clearing memory");
}

}  // namespace gpu

namespace {

namespace api = gpu::api;
using gpu::check;

// Pinned memory through which the host's data reaches the card while the host goes on. Each upload
// takes the next stretch of the ring; a half is reused only when the card has read it.
class UploadRing {
 public:
  explicit UploadRing(api::Stream stream) : stream_(stream) {
    check(api::malloc_host(&memory_, 2 * half), "pinned memory for uploads");
    for (api::Event& event : read_)
      check(api::event_create_without_time(&event), "creating an event");
  }
  ~UploadRing() {
    for (const api::Event event : read_) api::ignore(api::event_destroy(event));
    api::ignore(api::free_host(memory_));
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
      check(api::memcpy_async(to, staged, part, api::host_to_device, stream_), "an upload");
      used_ += std::min((part + 255) / 256 * 256, half - used_);
      from += part;
      to += part;
      bytes -= part;
    }
  }

 private:
  static constexpr std::size_t half = std::size_t{8} << 20;

  void turn() {
    check(api::event_record(read_[current_], stream_), "recording an event");
    current_ = 1 - current_;
    check(api::event_synchronize(read_[current_]), "waiting for an upload");
    used_ = 0;
  }

  api::Stream stream_;
  void* memory_ = nullptr;
  std::array<api::Event, 2> read_{};
  std::size_t current_ = 0, used_ = 0;
};

// So many works of a captured step run at once. CUDA's driver has 8 queues to a card, unless
// CUDA_DEVICE_MAX_CONNECTIONS says otherwise; in wider graphs kernels failed where several
// processes shared the card (docs/internals/gpu.md).
constexpr std::size_t most_at_once = 8;

class CapturedKernel final : public Kernel {
 public:
  CapturedKernel(const gpu::LaunchGraph& graph, api::Stream stream) : replay_(graph, stream) {}
  void launch(const Launch&) const override { replay_.launch(); }

 private:
  gpu::GraphReplay replay_;
};

// Finds what failed in a launch although nothing was said of it. The executor names the operator.
class CheckedKernel final : public Kernel {
 public:
  explicit CheckedKernel(KernelPtr kernel) : kernel_(std::move(kernel)) {}
  void launch(const Launch& call) const override {
    kernel_->launch(call);
    check(api::peek_at_last_error(), "a launch");
  }
  void launch_first(const Launch& call) const override {
    kernel_->launch_first(call);
    check(api::peek_at_last_error(), "a launch");
  }
  void launch_rest(const Launch& call) const override {
    kernel_->launch_rest(call);
    check(api::peek_at_last_error(), "a launch");
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
  void wait(api::Event event, gpu::Links& links) {
    const auto begin = Clock::now();
    const auto usual = waits_ < settling ? std::max(longest_, at_first) : longest_;
    const auto patience = beyond_work + 2 * std::max(begin - last_end_, usual);
    for (auto looked = begin;;) {
      const api::Status status = api::event_query(event);
      const auto now = Clock::now();
      if (status != api::not_ready) {
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

  std::string driver() override { return gpu::driver_text(); }
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

class GpuDevice final : public Device {
 public:
  explicit GpuDevice(const GpuOptions& options)
      : GpuDevice(options, gpu::properties_of(options.index)) {}
  ~GpuDevice() override {
    settle(*this);
    for (const api::Event mark : marks_)
      if (mark) api::ignore(api::event_destroy(mark));
    if (end_) api::ignore(api::event_destroy(end_));
    context_.links.reset();
    uploads_.reset();
    api::ignore(api::stream_destroy(background_));
    api::ignore(api::stream_destroy(stream_));
  }

  PreparedKernel prepare(const Op& op, Types in, Types out, const KernelChoice& choice) override {
    GpuPrepare prepare{.gpu = context_, .in = in, .out = out, .choice = choice};
    KernelPtr kernel = std::visit([&](const auto& o) { return o.gpu(prepare); }, op.variant());
    if (kernel) kernel = std::make_unique<CheckedKernel>(std::move(kernel));
    return {std::move(kernel), prepare.workspace};
  }

  // Ranks on cards of their own reach each other by NCCL, which wants that.
  void join(std::shared_ptr<Communicator> communicator) override {
    std::vector<gpu::CardId> cards = gathered(*communicator, id_);
    std::ranges::sort(cards);
    const bool is_shared = std::ranges::adjacent_find(cards) != cards.end();
    context_.links =
        is_shared ? gpu::link_through_host(communicator) : gpu::link_by_nccl(*communicator);
    communicator->when_lost([links = std::weak_ptr(context_.links)] {
      if (const auto there = links.lock()) there->give_up();
    });
    Device::join(std::move(communicator));
  }

  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    if (const api::Status status = api::malloc(&memory, bytes); status == api::memory_allocation) {
      api::ignore(api::get_last_error());  // the next check must not find it
      throw OutOfMemoryError(
          "the {} has {} left of {}, not the {} that were asked for: use a smaller batch or model",
          hardware(), format_bytes(available_memory()), format_bytes(total_memory()),
          format_bytes(bytes));
    } else {
      check(status, "allocating memory");
    }
    return memory;
  }
  void* allocate_jointly(std::size_t bytes) override {
    gpu::RowCopies* const copies = row_copies();
    void* const memory = copies ? copies->allocate(bytes) : nullptr;
    return memory ? memory : allocate(bytes);
  }
  void deallocate(void* memory, std::size_t) override {
    gpu::RowCopies* const copies = row_copies();
    if (!copies || !copies->deallocate(memory)) api::ignore(api::free(memory));
  }
  std::size_t available_memory() const override {
    std::size_t free = 0, total = 0;
    check(api::mem_get_info(&free, &total), "asking for free memory");
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
    check(api::memcpy_async(host, device, bytes, api::device_to_host, stream_), "a download");
  }
  void clear(void* device, std::size_t bytes) override {
    check(api::memset_async(device, 0, bytes, stream_), "clearing memory");
  }
  void synchronize() override {
    if (!waits_for_others()) return check(api::stream_synchronize(stream_), "waiting for the GPU");
    if (!end_) check(api::event_create_without_time(&end_), "creating an event");
    check(api::event_record(end_, stream_), "recording an event");
    others_.wait(end_, *context_.links);
  }

  void* allocate_host(std::size_t bytes) override {
    void* memory = nullptr;
    check(api::malloc_host(&memory, bytes), "allocating pinned memory");
    return memory;
  }
  void deallocate_host(void* memory) override { api::ignore(api::free_host(memory)); }

  void mark(std::size_t slot) override {
    if (marks_.size() <= slot) marks_.resize(slot + 1, nullptr);
    if (!marks_[slot]) check(api::event_create(&marks_[slot]), "creating an event");
    if (capturing_)
      capturing_->record(marks_[slot]);
    else
      check(api::event_record(marks_[slot], stream_), "recording an event");
  }
  void wait(std::size_t slot) override {
    if (!waits_for_others())
      return check(api::event_synchronize(marks_.at(slot)), "waiting for the GPU");
    others_.wait(marks_.at(slot), *context_.links);
  }
  double seconds_between(std::size_t from, std::size_t to) const override {
    float milliseconds = 0;
    check(api::event_elapsed_time(&milliseconds, marks_.at(from), marks_.at(to)), "reading a time");
    return milliseconds * 1e-3;
  }

  DeviceTools& tools() override { return tools_; }

  KernelPtr capture(std::span<const DeviceWork> works) override {
    if (context_.links && !context_.links->only_enqueues()) return nullptr;
    gpu::LaunchGraph graph;
    const std::vector<std::vector<std::size_t>> follows = follow_in_lanes(works, most_at_once);
    std::vector<gpu::LaunchGraph::Nodes> last;  // of each work: what follows it follows these
    while (last.size() < works.size()) {
      // What follows the work before it alone is captured with it: only within a capture does the
      // runtime know which kernels may be launched early.
      const std::size_t begin = last.size();
      std::size_t end = begin + 1;
      while (end < works.size() && follows[end] == std::vector{end - 1} &&
             works[end].background == works[begin].background)
        ++end;
      gpu::LaunchGraph::Nodes after;
      for (const std::size_t j : follows[begin])
        after.insert(after.end(), last[j].begin(), last[j].end());
      std::ranges::move(append(graph, after, works.subspan(begin, end - begin)),
                        std::back_inserter(last));
    }
    return std::make_unique<CapturedKernel>(graph, stream_);
  }

 private:
  GpuDevice(const GpuOptions& options, const gpu::CardProperties& card)
      : Device(card.info), id_(card.id) {
    int lowest = 0, highest = 0;
    check(api::device_get_stream_priority_range(&lowest, &highest), "asking for priorities");
    check(api::stream_create_with_priority(&stream_, highest), "creating a stream");
    check(api::stream_create_with_priority(&background_, lowest), "creating a stream");
    context_ = {.stream = stream_,
                .card = card.card,
                .deterministic = options.deterministic,
                .blas = gpu::make_blas(card.card),
                .dnn = gpu::make_dnn(card.card),
                .rotations = gpu::make_rotation_tables()};
    uploads_ = std::make_unique<UploadRing>(stream_);
  }

  gpu::RowCopies* row_copies() const {
    return context_.links ? context_.links->row_copies() : nullptr;
  }
  bool waits_for_others() const { return context_.links && context_.links->only_enqueues(); }

  std::vector<gpu::LaunchGraph::Nodes> append(gpu::LaunchGraph& graph,
                                              const gpu::LaunchGraph::Nodes& after,
                                              std::span<const DeviceWork> works) {
    // Kernels keep the priority of the stream that they are captured from.
    context_.stream = works.front().background ? background_ : stream_;
    capturing_ = &graph;
    const auto end = [this](gpu::LaunchGraph*) {
      context_.stream = stream_;
      capturing_ = nullptr;
    };
    const std::unique_ptr<gpu::LaunchGraph, decltype(end)> at_end(&graph, end);
    return graph.append(context_.stream, after, works);
  }

  api::Stream stream_ = nullptr;
  api::Stream background_ = nullptr;  // only captured from
  gpu::Context context_;
  std::unique_ptr<UploadRing> uploads_;
  std::vector<api::Event> marks_;
  gpu::CardId id_;
  api::Event end_ = nullptr;  // of all work
  PatientWait others_;
  gpu::LaunchGraph* capturing_ = nullptr;  // what works are being appended to
  GpuTools tools_{context_};
};

}  // namespace

int gpu_count() {
  int count = 0;
  if (api::get_device_count(&count) != api::success) {
    api::ignore(api::get_last_error());
    return 0;
  }
  return count;
}

std::unique_ptr<Device> open_gpu(const GpuOptions& options) {
  int count = 0;
  const api::Status status = api::get_device_count(&count);
  int driver = 0, runtime = 0;
  api::ignore(api::driver_get_version(&driver));
  api::ignore(api::runtime_get_version(&runtime));
  gpu::check_cards(status, count, driver, runtime);
  if (options.index >= count)
    throw DeviceError("there is no GPU {}: the driver shows {}", options.index, count);
  return std::make_unique<GpuDevice>(options);
}

}  // namespace ridge
