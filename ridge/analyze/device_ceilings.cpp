#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <thread>

#include "ridge/analyze/ceilings.h"
#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/base/statistics.h"
#include "ridge/ops/op.h"
#include "ridge/run/autotuner.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Long against the marks around it.
constexpr double sample_seconds = 500e-6;
// Long against a sample.
constexpr milliseconds rest(5);
// Kernels in the two captured chains whose difference is what one more costs.
constexpr std::size_t short_chain = 100, long_chain = 500;

// Memory of a device for as long as it is measured.
class Buffer {
 public:
  Buffer(Device& device, std::size_t bytes)
      : device_(device), bytes_(bytes), memory_(device.allocate(bytes)) {}
  ~Buffer() {
    settle(device_);
    device_.deallocate(memory_, bytes_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return memory_; }
  // The block of `bytes` bytes again and again.
  void fill(const void* block, std::size_t bytes) const {
    for (std::size_t at = 0; at < bytes_; at += bytes)
      device_.upload(static_cast<std::byte*>(memory_) + at, block, std::min(bytes, bytes_ - at));
  }

 private:
  Device& device_;
  std::size_t bytes_;
  void* memory_;
};

class Measurement {
 public:
  Measurement(Device& device, milliseconds duration) : device_(device), duration_(duration) {}

  // The least seconds that work enqueued by `enqueue` takes, of many samples for the duration, each
  // of as many times as make it long enough. The device rests between them, or its power limit
  // would slow what it does not slow where other work comes between.
  template <class F>
  double seconds(const F& enqueue) const {
    const std::int64_t times = times_of(enqueue);
    const Clock::time_point end = Clock::now() + duration_;
    double best = std::numeric_limits<double>::infinity();
    do {
      std::this_thread::sleep_for(rest);
      enqueue();  // what comes next need not wait for its launch
      best = std::min(best, sample(enqueue, times));
    } while (Clock::now() < end);
    return best;
  }

  // What it takes when the device does nothing else: the median of the second half of the duration.
  template <class F>
  double sustained_seconds(const F& enqueue) const {
    const std::int64_t times = times_of(enqueue);
    const Clock::time_point begin = Clock::now();
    std::vector<double> samples{sample(enqueue, times)};
    while (Clock::now() < begin + duration_) {
      if (Clock::now() < begin + duration_ / 2) samples.clear();
      samples.push_back(sample(enqueue, times));
    }
    return percentile(samples, 0.5);
  }

  // Work per second of a probe; 0 if the device has none.
  double rate(Probe what, std::size_t bytes = 0, const void* from = nullptr,
              void* to = nullptr) const {
    const ProbeKernel probe = device_.tools().probe(what, bytes);
    if (!probe.kernel) return 0;
    const void* const inputs[] = {from};
    void* const outputs[] = {to};
    return probe.work / seconds([&] { probe.kernel->launch({inputs, outputs}); });
  }

 private:
  template <class F>
  std::int64_t times_of(const F& enqueue) const {
    std::int64_t times = 1;
    while (sample(enqueue, times) * static_cast<double>(times) < sample_seconds &&
           times < (1 << 20))
      times *= 2;
    return times;
  }
  template <class F>
  double sample(const F& enqueue, std::int64_t times) const {
    device_.mark(0);
    for (std::int64_t i = 0; i < times; ++i) enqueue();
    device_.mark(1);
    device_.wait(1);
    return device_.seconds_between(0, 1) / static_cast<double>(times);
  }

  Device& device_;
  milliseconds duration_;
};

BandwidthCeiling bandwidth_of(const Measurement& measurement, Device& device,
                              const std::string& level, std::uint64_t capacity, std::size_t bytes) {
  const Buffer from(device, bytes), to(device, bytes);
  device.clear(from.data(), bytes);
  BandwidthCeiling ceiling{.level = level, .bytes = capacity};
  const std::pair<const char*, Probe> accesses[] = {
      {"read", Probe::read}, {"write", Probe::write}, {"copy", Probe::copy}};
  for (const auto& [name, probe] : accesses) {
    // Both buffers of a copy share what is measured.
    const std::size_t each = probe == Probe::copy ? bytes / 2 : bytes;
    const double rate = measurement.rate(probe, each, from.data(), to.data());
    ceiling.accesses.push_back({name, rate});
    ceiling.all_cores = std::max(ceiling.all_cores, rate);
  }
  return ceiling;
}

// Random numbers: a card that multiplies zeros takes less power, and is faster.
void fill_randomly(const Buffer& buffer, DType dtype, std::uint64_t stream) {
  std::vector<float> floats(std::size_t{1} << 18);
  fill_normal(floats, 1.0f, 1, stream, 0);
  std::vector<std::byte> elements(floats.size() * size_of(dtype));
  store_floats(floats, dtype, elements.data());
  buffer.fill(elements.data(), elements.size());
}

struct ProductRate {
  double best = 0, sustained = 0;  // FLOP/s
};

// The rate of square matrix products, over the layouts of training: a layer's forward product,
// and its gradients of the input and of the weight.
ProductRate product_rate(const Measurement& measurement, Device& device, ProductKind kind) {
  const DType dtype = kind == ProductKind::bf16  ? DType::bf16
                      : kind == ProductKind::f16 ? DType::f16
                                                 : DType::f32;
  const std::int64_t extent = dtype == DType::f32 && kind != ProductKind::tf32 ? 4096 : 8192;
  const TensorType type{dtype, {extent, extent}};
  Autotuner tuner({.cache = {}, .hardware = measured_on(device), .seconds_per_search = 0.1});
  const Buffer a(device, type.bytes()), b(device, type.bytes()), c(device, type.bytes());
  fill_randomly(a, dtype, 1);
  fill_randomly(b, dtype, 2);
  ProductRate rate;
  for (const MatMul& product : {MatMul{.trans_b = true}, MatMul{}, MatMul{.trans_a = true}}) {
    const Op op = product;
    const TensorType in[] = {type, type}, out[] = {type};
    const PreparedKernel prepared = device.prepare(op, in, out,
                                                   {.products = Products::tuned,
                                                    .tuner = &tuner,
                                                    .tf32 = kind == ProductKind::tf32,
                                                    .split_bf16 = kind == ProductKind::bf16x6});
    const Buffer workspace(device, std::max<std::size_t>(prepared.workspace, 1));
    const void* const inputs[] = {a.data(), b.data()};
    void* const outputs[] = {c.data()};
    const auto launch = [&] { prepared.kernel->launch({inputs, outputs, workspace.data()}); };
    const auto flops = static_cast<double>(cost(op, in, out).flops);
    rate.best = std::max(rate.best, flops / measurement.seconds(launch));
    rate.sustained = std::max(rate.sustained, flops / measurement.sustained_seconds(launch));
    rate.best = std::max(rate.best, rate.sustained);
  }
  return rate;
}

// Seconds for one more kernel in a captured chain of them; 0 where nothing can be captured.
double captured_launch(const Measurement& measurement, Device& device) {
  const ProbeKernel nothing = device.tools().probe(Probe::nothing, 0);
  const auto seconds_of_chain = [&](std::size_t length) {
    std::vector<DeviceWork> works;
    for (std::size_t i = 0; i < length; ++i)
      works.push_back({.enqueue = [&] { nothing.kernel->launch({}); },
                       .after = i == 0 ? std::vector<std::size_t>{} : std::vector{i - 1}});
    const KernelPtr chain = device.capture(works);
    return chain ? measurement.seconds([&] { chain->launch({}); }) : 0;
  };
  const double difference = seconds_of_chain(long_chain) - seconds_of_chain(short_chain);
  return std::max(0.0, difference / static_cast<double>(long_chain - short_chain));
}

// The least seconds of a sum over all ranks, of many. They agree on when it is enough: a rank that
// stopped alone would leave the others waiting.
double least_seconds_of_sum(Device& device, const TensorType& type, milliseconds duration) {
  const TensorType types[] = {type};
  const PreparedKernel sum = device.prepare(AllReduce{.ranks = device.ranks()}, types, types);
  const Buffer data(device, type.bytes()),
      workspace(device, std::max<std::size_t>(sum.workspace, 1));
  device.clear(data.data(), type.bytes());
  const void* const inputs[] = {data.data()};
  void* const outputs[] = {data.data()};
  const auto sample = [&] {
    device.mark(0);
    sum.kernel->launch({inputs, outputs, workspace.data()});
    device.mark(1);
    device.wait(1);
    return device.seconds_between(0, 1);
  };
  sample();
  const Clock::time_point end = Clock::now() + duration;
  double best = std::numeric_limits<double>::infinity();
  do {
    best = std::min(best, sample());
  } while (!on_any_rank(device.communicator(), Clock::now() > end));
  return best;
}

}  // namespace

LinkCeiling measure_link(Device& device, milliseconds per_measurement) {
  // Long against a message: links of GPUs move hundreds of gigabytes in a second.
  const TensorType large{DType::f32, {std::int64_t{1} << (device.is_gpu() ? 26 : 22)}},
      single{DType::f32, {1}};
  const double message = least_seconds_of_sum(device, single, per_measurement),
               seconds = least_seconds_of_sum(device, large, per_measurement);
  const AllReduce op{.ranks = device.ranks()};
  return {.ranks = device.ranks(),
          .bytes_per_second = static_cast<double>(op.sent_bytes({&large, 1})) /
                              std::max(seconds - message, seconds / 2),
          .message_seconds = message};
}

Ceilings measure_device_ceilings(Device& device, milliseconds per_measurement) {
  const Measurement measurement(device, per_measurement);
  Ceilings ceilings{
      .device = device.name(), .kind = device.target().kind, .hardware = device.hardware()};
  const double multiply_adds = measurement.rate(Probe::multiply_add);
  if (multiply_adds == 0)
    throw UsageError("the {} cannot be measured: it has no kernels for that", device.name());
  ceilings.compute.push_back({.instructions = "multiply-add", .all_cores = multiply_adds});
  double of_f32 = 0;
  for (const ProductKind kind : {ProductKind::f32, ProductKind::bf16x6, ProductKind::tf32,
                                 ProductKind::bf16, ProductKind::f16}) {
    const ProductRate rate = product_rate(measurement, device, kind);
    if (kind == ProductKind::f32) of_f32 = rate.best;
    // A device that has none chooses among the same kernels again.
    if (kind == ProductKind::bf16x6 && rate.best < 1.2 * of_f32) continue;
    ceilings.compute.push_back(
        {.instructions = "product, sustained", .precision = kind, .all_cores = rate.sustained});
    ceilings.compute.push_back(
        {.instructions = "product", .precision = kind, .all_cores = rate.best});
  }

  // A quarter of the cache, which is of two halves that each keep what the other side asks for.
  const std::size_t cache = device.info().cache_bytes;
  if (cache > 0)
    ceilings.bandwidth.push_back(bandwidth_of(measurement, device, "L2", cache, cache / 4));
  constexpr std::size_t least = std::size_t{256} << 20, most = std::size_t{2} << 30;
  const std::size_t beyond =
      std::min(std::clamp(16 * cache, least, most), device.available_memory() / 4);
  ceilings.bandwidth.push_back(bandwidth_of(measurement, device, "memory", 0, beyond));

  ceilings.launch_seconds = 1 / measurement.rate(Probe::nothing);
  ceilings.captured_seconds = captured_launch(measurement, device);
  return ceilings;
}

Ceilings measure_ceilings(Device& device, milliseconds per_measurement) {
  return device.is_gpu() ? measure_device_ceilings(device, per_measurement)
                         : measure_cpu_ceilings(device.threads(), per_measurement);
}

}  // namespace ridge
