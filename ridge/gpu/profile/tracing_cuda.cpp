#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/gpu/profile/tracing.h"
#include "ridge/gpu/vendor/cupti.h"

namespace ridge::gpu {
namespace {

using Kind = Activity::Kind;

constexpr std::size_t buffer_bytes = std::size_t{4} << 20, buffer_alignment = 8;
constexpr CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                        CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
                                        CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME,
                                        // Libraries launch through the driver's interface as well.
                                        CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_OVERHEAD,
                                        CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
constexpr CUpti_CallbackIdResource graph_events[] = {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                                                     CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED};
constexpr auto owner_kind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

// With this CUPTI gives all times on the clock of the rest of Ridge: those of the host at once,
// those of the device by interpolation between moments at which it reads both.
std::uint64_t CUPTIAPI steady_time() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// On whose behalf something was launched.
struct Owner {
  NodeId node = no_node;
  std::uint32_t run = Activity::no_run;

  std::uint64_t packed() const { return std::uint64_t{run} << 32 | node; }
  static Owner unpacked(std::uint64_t id) {
    return {static_cast<NodeId>(id & 0xffffffff), static_cast<std::uint32_t>(id >> 32)};
  }
};

std::string_view copy_name(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "Memcpy HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "Memcpy DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "Memcpy DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "Memcpy PtoP";
    default:
      return "Memcpy";
  }
}

std::string_view overhead_name(CUpti_ActivityOverheadKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER:
      return "compiling a kernel";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH:
      return "CUPTI: buffer flush";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION:
      return "CUPTI: instrumentation";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE:
      return "CUPTI: resources";
    default:
      return "CUPTI";
  }
}

class CuptiTracer final : public Tracer {
 public:
  explicit CuptiTracer(std::size_t max_activities) : max_activities_(max_activities) {}
  ~CuptiTracer() override {
    try {
      if (active_) stop();
    } catch (const DeviceError&) {
      // Whoever destroys it unstopped wants no trace.
    }
  }

  void start() override;
  DeviceTrace stop() override;
  bool active() const override { return active_; }

  void enter(NodeId node, std::uint32_t run) override {
    if (!active_) return;
    owner_ = {node, run};
    cupti_->activity_push_external(owner_kind, owner_.packed());
  }
  void leave() override {
    if (!active_) return;
    owner_ = {};
    std::uint64_t last = 0;
    cupti_->activity_pop_external(owner_kind, &last);
  }

 private:
  // CUPTI's callbacks for buffers have no argument of ours.
  static inline std::atomic<CuptiTracer*> listening = nullptr;

  static void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* records);
  static void CUPTIAPI take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                                   std::size_t size, std::size_t valid);
  static void CUPTIAPI on_callback(void* tracer, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                   const void* data);

  void enable(bool on) const;
  void on_graph_node(CUpti_CallbackId id, const CUpti_GraphData& graph);
  void parse(std::uint8_t* buffer, std::size_t valid);
  void add(const CUpti_Activity& record);
  template <class Record>
  Activity device_activity(Kind kind, std::string_view name, const Record& record,
                           std::uint64_t bytes);
  void add_kernel(const CUpti_ActivityKernel10& record);
  void add_call(const CUpti_ActivityAPI& record);
  void keep(const Activity& activity, std::uint64_t graph_node);
  std::uint32_t name_index(std::string_view name);
  void join(DeviceTrace& trace) const;

  // Records that are joined once all are there: of whom a call was, by its correlation, and which
  // part of a graph ran.
  struct GraphPart {
    std::size_t activity;
    std::uint64_t graph_node;
  };

  std::size_t max_activities_;
  std::unique_ptr<Cupti> cupti_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  bool active_ = false;
  Owner owner_;
  std::mutex mutex_;  // of all that follows: buffers come back on a thread of CUPTI's
  DeviceTrace trace_;
  std::vector<GraphPart> graph_parts_;
  std::unordered_map<std::uint32_t, std::uint64_t> owner_of_call_;  // by correlation
  std::unordered_map<std::string, std::uint32_t> name_indices_;
  std::unordered_map<std::uint64_t, Owner> owner_of_graph_node_;  // kept: graphs outlive a trace
};

void CuptiTracer::start() {
  if (active_) return;
  if (!cupti_) cupti_ = std::make_unique<Cupti>();
  CuptiTracer* nobody = nullptr;
  if (!listening.compare_exchange_strong(nobody, this))
    throw UsageError("a trace of this process is being taken already");
  try {
    trace_ = {};
    graph_parts_.clear();
    owner_of_call_.clear();
    name_indices_.clear();
    cupti_->check(
        cupti_->subscribe(&subscriber_, static_cast<CUpti_CallbackFunc>(on_callback), this),
        "listen to the driver");
    cupti_->check(cupti_->activity_register_timestamp(steady_time), "use a clock of ours");
    cupti_->check(cupti_->activity_register_callbacks(give_buffer, take_buffer),
                  "take buffers of ours");
    // As gettid() has them, not the low half of a pthread_t.
    cupti_->check(cupti_->set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM),
                  "number threads as the system does");
    for (const CUpti_CallbackIdResource event : graph_events)
      cupti_->check(cupti_->enable_callback(1u, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, event),
                    "listen to the making of graphs");
    enable(true);
  } catch (...) {
    if (subscriber_) cupti_->unsubscribe(std::exchange(subscriber_, nullptr));
    listening = nullptr;
    throw;
  }
  active_ = true;
}

void CuptiTracer::enable(bool on) const {
  for (const CUpti_ActivityKind kind : kinds)
    cupti_->check(on ? cupti_->activity_enable(kind) : cupti_->activity_disable(kind),
                  fmt::format("trace activities of kind {}", static_cast<int>(kind)));
}

DeviceTrace CuptiTracer::stop() {
  if (!active_) return {};
  active_ = false;
  cupti_->check(cupti_->activity_flush_all(0u), "hand over its records");
  enable(false);
  // What was begun and not finished comes too, without its end.
  cupti_->check(cupti_->activity_flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED),
                "hand over its last records");
  cupti_->check(cupti_->unsubscribe(std::exchange(subscriber_, nullptr)), "stop listening");
  listening = nullptr;
  const std::lock_guard lock(mutex_);
  DeviceTrace trace = std::exchange(trace_, {});
  join(trace);
  return trace;
}

void CuptiTracer::give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(buffer_alignment, buffer_bytes));
  *size = *buffer ? buffer_bytes : 0;  // without a buffer CUPTI drops records, and counts them
  *records = 0;                        // as many as fit
}

void CuptiTracer::take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                              std::size_t, std::size_t valid) {
  if (CuptiTracer* const tracer = listening) {
    const std::lock_guard lock(tracer->mutex_);
    tracer->parse(buffer, valid);
    std::size_t dropped = 0;
    tracer->cupti_->activity_get_dropped(context, stream, &dropped);
    tracer->trace_.dropped += dropped;
  }
  std::free(buffer);
}

void CuptiTracer::on_callback(void* tracer, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                              const void* data) {
  if (domain != CUPTI_CB_DOMAIN_RESOURCE) return;
  const auto& resource = *static_cast<const CUpti_ResourceData*>(data);
  if (resource.resourceDescriptor)
    static_cast<CuptiTracer*>(tracer)->on_graph_node(
        id, *static_cast<const CUpti_GraphData*>(resource.resourceDescriptor));
}

// Capturing makes a node within the very call that is captured, so its owner is who launches just
// now. Instantiating copies it, and the copy is what runs.
void CuptiTracer::on_graph_node(CUpti_CallbackId id, const CUpti_GraphData& graph) {
  std::uint64_t node = 0, original = 0;
  if (cupti_->get_graph_node_id(graph.node, &node) != CUPTI_SUCCESS) return;
  const std::lock_guard lock(mutex_);
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
    if (owner_.node != no_node) owner_of_graph_node_[node] = owner_;
  } else if (cupti_->get_graph_node_id(graph.originalNode, &original) == CUPTI_SUCCESS) {
    if (const auto it = owner_of_graph_node_.find(original); it != owner_of_graph_node_.end())
      owner_of_graph_node_[node] = it->second;
  }
}

void CuptiTracer::parse(std::uint8_t* buffer, std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cupti_->activity_get_next_record(buffer, valid, &record) == CUPTI_SUCCESS) add(*record);
}

// Records say by `kind` what they are; each version of CUPTI only adds fields at the end of them.
void CuptiTracer::add(const CUpti_Activity& record) {
  const auto keep_copy = [this](const auto& copy) {
    keep(device_activity(Kind::copy, copy_name(copy.copyKind), copy, copy.bytes), copy.graphNodeId);
  };
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return add_kernel(reinterpret_cast<const CUpti_ActivityKernel10&>(record));
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return keep_copy(reinterpret_cast<const CUpti_ActivityMemcpy6&>(record));
    case CUPTI_ACTIVITY_KIND_MEMCPY2:  // between cards
      return keep_copy(reinterpret_cast<const CUpti_ActivityMemcpyPtoP4&>(record));
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& fill = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
      return keep(device_activity(Kind::fill, "Memset", fill, fill.bytes), fill.graphNodeId);
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return add_call(reinterpret_cast<const CUpti_ActivityAPI&>(record));
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& owner = reinterpret_cast<const CUpti_ActivityExternalCorrelation&>(record);
      if (owner.externalKind == owner_kind) owner_of_call_[owner.correlationId] = owner.externalId;
      return;
    }
    case CUPTI_ACTIVITY_KIND_OVERHEAD: {
      const auto& overhead = reinterpret_cast<const CUpti_ActivityOverhead3&>(record);
      Activity activity{.kind = Kind::overhead,
                        .name = name_index(overhead_name(overhead.overheadKind)),
                        .correlation = overhead.correlationId,
                        .begin_ns = static_cast<std::int64_t>(overhead.start),
                        .end_ns = static_cast<std::int64_t>(overhead.end)};
      if (overhead.objectKind == CUPTI_ACTIVITY_OBJECT_THREAD)
        activity.stream = overhead.objectId.pt.threadId;
      return keep(activity, 0);
    }
    default:
      return;
  }
}

template <class Record>
Activity CuptiTracer::device_activity(Kind kind, std::string_view name, const Record& record,
                                      std::uint64_t bytes) {
  return {.kind = kind,
          .name = name_index(name),
          .correlation = record.correlationId,
          .stream = record.streamId,
          .begin_ns = static_cast<std::int64_t>(record.start),
          .end_ns = static_cast<std::int64_t>(record.end),
          .bytes = bytes};
}

void CuptiTracer::add_kernel(const CUpti_ActivityKernel10& record) {
  Activity activity = device_activity(Kind::kernel, record.name ? record.name : "", record, 0);
  const auto size = [](std::int32_t extent) { return static_cast<std::uint32_t>(extent); };
  activity.grid = {size(record.gridX), size(record.gridY), size(record.gridZ)};
  activity.block = {size(record.blockX), size(record.blockY), size(record.blockZ)};
  activity.registers = record.registersPerThread;
  activity.static_shared = size(record.staticSharedMemory);
  activity.dynamic_shared = size(record.dynamicSharedMemory);
  activity.local_memory = record.localMemoryPerThread;
  keep(activity, record.graphNodeId);
}

// Adds those of the driver's calls that give the device something to do or wait for it: the runtime
// makes many others of its own.
void CuptiTracer::add_call(const CUpti_ActivityAPI& record) {
  const bool of_runtime = record.kind == CUPTI_ACTIVITY_KIND_RUNTIME;
  const char* name = nullptr;
  cupti_->get_callback_name(of_runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API,
                            record.cbid, &name);
  // "cudaLaunchKernel_v7000": the version says when the function came to be.
  std::string_view text = name ? name : "call";
  if (const auto version = text.rfind("_v"); of_runtime && version != text.npos)
    text = text.substr(0, version);
  constexpr std::string_view work[] = {"cuLaunch",      "cuMemcpy",     "cuMemset",
                                       "cuGraphLaunch", "cuStreamSync", "cuEventSync"};
  const auto begins = [&](std::string_view start) { return text.starts_with(start); };
  if (!of_runtime && std::ranges::none_of(work, begins)) return;
  keep({.kind = Kind::call,
        .name = name_index(text),
        .correlation = record.correlationId,
        .stream = record.threadId,
        .begin_ns = static_cast<std::int64_t>(record.start),
        .end_ns = static_cast<std::int64_t>(record.end)},
       0);
}

void CuptiTracer::keep(const Activity& activity, std::uint64_t graph_node) {
  // One that has no end was still running, or its times were lost.
  if (activity.begin_ns == 0 || activity.end_ns < activity.begin_ns ||
      trace_.activities.size() >= max_activities_) {
    ++trace_.dropped;
    return;
  }
  if (graph_node != 0) graph_parts_.push_back({trace_.activities.size(), graph_node});
  trace_.activities.push_back(activity);
  trace_.activities.back().in_graph = graph_node != 0;
}

std::uint32_t CuptiTracer::name_index(std::string_view name) {
  const auto next = static_cast<std::uint32_t>(trace_.names.size());
  const auto [it, added] = name_indices_.try_emplace(std::string(name), next);
  if (added) trace_.names.emplace_back(name);
  return it->second;
}

void CuptiTracer::join(DeviceTrace& trace) const {
  std::unordered_map<std::uint32_t, std::int64_t> call_begin;
  for (Activity& activity : trace.activities) {
    if (const auto it = owner_of_call_.find(activity.correlation); it != owner_of_call_.end()) {
      const Owner owner = Owner::unpacked(it->second);
      activity.node = owner.node;
      activity.run = owner.run;
    }
    if (activity.kind == Kind::call) call_begin[activity.correlation] = activity.begin_ns;
  }
  for (const GraphPart& part : graph_parts_) {
    const auto it = owner_of_graph_node_.find(part.graph_node);
    const Owner owner = it == owner_of_graph_node_.end() ? Owner{} : it->second;
    trace.activities[part.activity].node = owner.node;
    trace.activities[part.activity].captured_run = owner.run;
  }
  for (const Activity& activity : trace.activities)
    if (const auto call = call_begin.find(activity.correlation);
        activity.on_device() && call != call_begin.end() && activity.begin_ns < call->second)
      ++trace.out_of_order;
  std::ranges::stable_sort(trace.activities, {}, &Activity::begin_ns);
}

}  // namespace

std::unique_ptr<Tracer> make_tracer(std::size_t max_activities) {
  return std::make_unique<CuptiTracer>(max_activities);
}

}  // namespace ridge::gpu
