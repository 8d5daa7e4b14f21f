#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "ridge/device/communicator.h"
#include "ridge/profile/recording.h"

namespace ridge {

struct TraceOptions {
  // No viewer opens a file of a gigabyte. What happens after the bound is reached is left out.
  std::uint64_t max_bytes = std::uint64_t{256} << 20;
};

struct TraceSize {
  std::uint64_t events = 0;    // in the file
  std::uint64_t left_out = 0;  // for max_bytes
  std::uint64_t bytes = 0;     // before compression
};

// Writes a recording as Chrome trace JSON in the dialect of PyTorch's profiler, atomically, in
// memory that does not grow with the recording; compressed by gzip if the path ends in ".gz":
// - "ProfilerStep#N" and the phases as user_annotation;
// - modules as python_function: "nn.Module: Attention_0" going forward, "layers.0.attention
//   (backward)" coming back;
// - every node as cpu_op, named after PyTorch's operator where there is an equal one (see aten.h),
//   with its shapes, FLOPs and bytes; what differentiates a node is within
//   "autograd::engine::evaluate_function: <Name>Backward0", tied to it by a fwdbwd flow;
// - allocations as "[memory]" instants and as a counter;
// - what a device did by itself as kernel, gpu_memcpy and gpu_memset on its streams, the calls that
//   asked for it as cuda_runtime and cuda_driver, tied together by ac2g flows, each with the node
//   on whose behalf it was; and the state of the card as counters. Nodes are then where they were
//   launched; those of a captured graph, which nobody launches, are on a track of their own, on the
//   device's clock.
// If something was left out, "ridge" in the file says how much. IoError as by AtomicFile.
TraceSize write_chrome_trace(const std::filesystem::path& path, const Recording& recording,
                             const TraceOptions& options = {});

// Writes the recordings of all ranks of a run as one such file, on the first rank's machine: tracks
// "rank 0", "rank 1" .. below each other, on the first one's clock, which those of the others are
// ahead of by so much (RanksReport). All ranks call it; it returns the size on the first.
TraceSize write_chrome_trace_of_ranks(const std::filesystem::path& path, const Recording& recording,
                                      std::span<const std::int64_t> ahead_ns,
                                      Communicator& communicator, const TraceOptions& options = {});

// The name by which TensorBoard's profiler plugin finds a trace: "<host>_<pid>.<n>.pt.trace.json";
// what a host's name may not have there is replaced.
std::string worker_trace_name(std::string_view host, std::int64_t process_id, std::int64_t n);
std::string step_trace_name(std::int64_t first_step, std::int64_t last_step);

}  // namespace ridge
