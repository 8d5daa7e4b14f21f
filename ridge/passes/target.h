#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "ridge/plan/lifetimes.h"

namespace ridge {

enum class DeviceKind : std::uint8_t { cpu, gpu };
// By the name of a device as files keep it (Device::name()): "cpu", "cuda".
constexpr DeviceKind device_kind_named(std::string_view name) {
  return name == "cpu" ? DeviceKind::cpu : DeviceKind::gpu;
}

// Which layers a device computes in integers: those whose numbers of channels, before and behind,
// are multiples of this one, and of convolutions in groups those that have a channel in each, or
// all.
struct Int8Rules {
  std::int64_t channel_multiple = 1;
  bool groups = true;
};

// Which bottlenecks of residual networks a device computes in one kernel: those whose windows are
// of so many channels, and are expanded to at most so many. None by default.
struct BottleneckRules {
  std::int64_t channels = 0;
  std::int64_t most_expanded = 0;
};

// What rewriting, planning and scheduling ask of the device that a graph will run on. A kind of
// device is asked for, never a name.
struct Target {
  DeviceKind kind = DeviceKind::cpu;
  std::string description = "device";  // for people: "cpu, AMD EPYC"
  // Whether it multiplies operands of 8 bits, or of f16, by hardware of its own; others may imitate
  // it.
  bool multiplies_float8 = false;
  bool multiplies_float16 = true;
  Int8Rules int8 = {};
  // Columns of the widest head whose attention it computes without storing scores.
  std::int64_t widest_head = std::numeric_limits<std::int64_t>::max();
  BottleneckRules bottleneck = {};
  // Elements of the largest weight of squeeze and excitation that one kernel should compute.
  std::int64_t most_squeeze_weights = 1 << 17;
  // Filling weights up to rows of whole 16 bytes, and taking their gradients apart, costs the same
  // however many rows they multiply: from so many on the products gain more.
  std::int64_t least_aligned_rows = 1;
  // The least bytes of gradients by which one of several kernels updates parameters.
  std::size_t least_update_bytes = std::size_t{1} << 20;
  // Bytes of gradients that go to other ranks together, where none fills a message by itself; or
  // more where that still leaves `buckets` of them, up to most_bucket_bytes.
  std::size_t bucket_bytes = std::size_t{4} << 20, most_bucket_bytes = bucket_bytes;
  std::size_t buckets = 1;
  std::size_t alignment = tensor_alignment;  // of values in an arena, in bytes
  Lingering lingering = {};  // of values in an arena, where kernels run at the same time
  // A kernel of more FLOPs or bytes than these fills the device: a second one at the same time
  // would only disturb it.
  double filling_flops = 0;
  double filling_bytes = 0;

  bool is_gpu() const { return kind == DeviceKind::gpu; }
};

}  // namespace ridge
