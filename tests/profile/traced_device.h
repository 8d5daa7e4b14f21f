#pragma once

// The CPU as a device that runs by itself: every launch is traced as a call, and later, on a clock
// behind the host's, as a fill and a kernel. Captures launches as a GPU does.

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridge/device/activity.h"
#include "ridge/exercise/devices.h"
#include "ridge/ops/op.h"
#include "ridge/run/observer.h"
#include "tests/device/processor_limits.h"

namespace ridge::testing {

class FakeTracer final : public Tracer {
 public:
  static constexpr std::int64_t lag_ns = 200'000, fill_ns = 300, gap_ns = 100, kernel_ns = 2'000;

  void start() override {
    active_ = true;
    trace_ = {};
  }
  DeviceTrace stop() override {
    active_ = false;
    std::ranges::stable_sort(trace_.activities, {}, &Activity::begin_ns);
    return std::exchange(trace_, {});
  }
  bool active() const override { return active_; }
  void enter(NodeId node, std::uint32_t run) override { owner_ = {node, run}; }
  void leave() override { owner_ = {}; }

  struct Owner {
    NodeId node = no_node;
    std::uint32_t run = Activity::no_run;
  };
  Owner owner() const { return owner_; }

  // A call now, and what it makes the device do; parts of a graph share one call.
  std::uint32_t call(const std::string& name) {
    const std::int64_t now = Clock::now().time_since_epoch().count();
    add({.kind = Activity::Kind::call,
         .name = name_index(name),
         .node = owner_.node,
         .run = owner_.run,
         .correlation = ++correlation_,
         .stream = 4242,
         .begin_ns = now,
         .end_ns = now + 1'000});
    device_ns_ = std::max(device_ns_, now + lag_ns);
    return correlation_;
  }
  void run(const std::string& kernel, Activity what) {
    what.stream = 7;
    what.kind = Activity::Kind::fill;
    what.name = name_index("Memset");
    what.bytes = 64;
    last(what, fill_ns + gap_ns, fill_ns);
    what.kind = Activity::Kind::kernel;
    what.name = name_index(kernel);
    what.bytes = 0;
    what.grid = {256, 2, 1};
    what.block = {128, 1, 1};
    what.registers = 40;
    what.static_shared = 1024;
    last(what, kernel_ns, kernel_ns);
  }

 private:
  void last(Activity& what, std::int64_t until_next_ns, std::int64_t ns) {
    what.begin_ns = device_ns_;
    what.end_ns = device_ns_ + ns;
    device_ns_ += until_next_ns;
    add(what);
  }
  void add(const Activity& activity) {
    if (active_) trace_.activities.push_back(activity);
  }
  std::uint32_t name_index(const std::string& name) {
    const auto it = std::ranges::find(trace_.names, name);
    if (it != trace_.names.end()) return static_cast<std::uint32_t>(it - trace_.names.begin());
    trace_.names.push_back(name);
    return static_cast<std::uint32_t>(trace_.names.size() - 1);
  }

  bool active_ = false;
  Owner owner_;
  std::uint32_t correlation_ = 0;
  std::int64_t device_ns_ = 0;
  DeviceTrace trace_;
};

class TracedDevice final : public WrappedDevice {
 public:
  explicit TracedDevice(Device& inner) : WrappedDevice(inner, info_of(inner)) {}

  DeviceTools& tools() override { return tools_; }

  PreparedKernel prepare(const Op& op, Types in, Types out, const KernelChoice& choice) override {
    PreparedKernel prepared = WrappedDevice::prepare(op, in, out, choice);
    if (prepared.kernel)
      prepared.kernel = std::make_unique<TracedKernel>(*this, std::move(prepared.kernel),
                                                       std::string(name_of(op)) + "_kernel");
    return prepared;
  }
  void mark(std::size_t slot) override {
    if (!capturing_) WrappedDevice::mark(slot);
  }
  KernelPtr capture(std::span<const DeviceWork> works) override {
    ++captures;
    auto graph = std::make_unique<Graph>(*this);
    capturing_ = graph.get();
    for (const DeviceWork& work : works) work.enqueue();
    capturing_ = nullptr;
    return graph;
  }
  int captures = 0;

 private:
  class TracedKernel;

  class Graph final : public Kernel {
   public:
    explicit Graph(TracedDevice& device) : device_(device) {}
    void launch(const Launch&) const override {
      FakeTracer& tracer = device_.tracer_;
      const FakeTracer::Owner replay = tracer.owner();
      const std::uint32_t correlation = tracer.call("cudaGraphLaunch");
      for (const Part& part : parts) {
        part.kernel->run(part.call);
        tracer.run(part.kernel->name(), {.node = part.owner.node,
                                         .run = replay.run,
                                         .captured_run = part.owner.run,
                                         .correlation = correlation,
                                         .in_graph = true});
      }
      for (std::size_t slot = 0; slot < 16; ++slot) device_.WrappedDevice::mark(slot);
    }
    struct Part {
      const TracedKernel* kernel;
      Launch call;
      FakeTracer::Owner owner;
    };
    std::vector<Part> parts;

   private:
    TracedDevice& device_;
  };

  class TracedKernel final : public Kernel {
   public:
    TracedKernel(TracedDevice& device, KernelPtr kernel, std::string name)
        : device_(device), kernel_(std::move(kernel)), name_(std::move(name)) {}
    void launch(const Launch& call) const override {
      FakeTracer& tracer = device_.tracer_;
      if (device_.capturing_) {
        device_.capturing_->parts.push_back({this, call, tracer.owner()});
        return;
      }
      const std::uint32_t correlation = tracer.call("cudaLaunchKernel");
      run(call);
      tracer.run(
          name_,
          {.node = tracer.owner().node, .run = tracer.owner().run, .correlation = correlation});
    }
    void run(const Launch& call) const { kernel_->launch(call); }
    const std::string& name() const { return name_; }

   private:
    TracedDevice& device_;
    KernelPtr kernel_;
    std::string name_;
  };

  static DeviceInfo info_of(const Device& inner) {
    DeviceInfo info = inner.info();
    info.name = "cuda";
    info.target.kind = DeviceKind::gpu;
    info.limits = sm90_limits;
    info.limits.count = 4;
    return info;
  }

  class Tools final : public DeviceTools {
   public:
    explicit Tools(FakeTracer& tracer) : tracer_(tracer) {}
    Tracer* tracer() override { return &tracer_; }

   private:
    FakeTracer& tracer_;
  };

  FakeTracer tracer_;
  Tools tools_{tracer_};
  Graph* capturing_ = nullptr;
};

}  // namespace ridge::testing
