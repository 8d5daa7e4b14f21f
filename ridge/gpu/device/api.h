#pragma once

// The calls that the device layer makes of a vendor's runtime: CUDA's and HIP's, which differ by a
// prefix, are named here once, in small letters. Every call returns a status, which the compiler
// insists is looked at: by check() of gpu/device/context.h, or, where nobody can be told of an
// error any more, by ignore(). Where the two runtimes really differ there is a file for each,
// *_cuda.cpp and *_hip.cpp.
//
// A build with __HIP_PLATFORM_AMD__ or __HIP_PLATFORM_NVIDIA__ defined calls HIP, which on the
// second platform is CUDA by HIP's names; any other build calls CUDA.

#if defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime_api.h>
#elif defined(__HIP_PLATFORM_NVIDIA__)
#include "ridge/gpu/device/hip_on_nvidia.h"
#else
#include <cuda_runtime_api.h>
#endif

#include <cstddef>

#if defined(__HIP_PLATFORM_AMD__) || defined(__HIP_PLATFORM_NVIDIA__)
#define RIDGE_RUNTIME(name) hip##name
#else
#define RIDGE_RUNTIME(name) cuda##name
#endif

namespace ridge::gpu::api {

using Status = RIDGE_RUNTIME(Error_t);
using Stream = RIDGE_RUNTIME(Stream_t);
using Event = RIDGE_RUNTIME(Event_t);
using Graph = RIDGE_RUNTIME(Graph_t);
using GraphNode = RIDGE_RUNTIME(GraphNode_t);
using GraphExec = RIDGE_RUNTIME(GraphExec_t);

inline constexpr Status success = RIDGE_RUNTIME(Success), not_ready = RIDGE_RUNTIME(ErrorNotReady),
                        memory_allocation = RIDGE_RUNTIME(ErrorMemoryAllocation);
inline constexpr auto host_to_device = RIDGE_RUNTIME(MemcpyHostToDevice),
                      device_to_host = RIDGE_RUNTIME(MemcpyDeviceToHost),
                      device_to_device = RIDGE_RUNTIME(MemcpyDeviceToDevice);

inline void ignore(Status) {}

// Errors.
[[nodiscard]] inline Status get_last_error() { return RIDGE_RUNTIME(GetLastError)(); }
[[nodiscard]] inline Status peek_at_last_error() { return RIDGE_RUNTIME(PeekAtLastError)(); }
inline const char* get_error_name(Status s) { return RIDGE_RUNTIME(GetErrorName)(s); }
inline const char* get_error_string(Status s) { return RIDGE_RUNTIME(GetErrorString)(s); }

// Cards.
[[nodiscard]] inline Status get_device_count(int* count) {
  return RIDGE_RUNTIME(GetDeviceCount)(count);
}
[[nodiscard]] inline Status driver_get_version(int* version) {
  return RIDGE_RUNTIME(DriverGetVersion)(version);
}
[[nodiscard]] inline Status runtime_get_version(int* version) {
  return RIDGE_RUNTIME(RuntimeGetVersion)(version);
}

// Memory of the card, and memory of the host that the card reads and writes by itself.
[[nodiscard]] inline Status malloc(void** memory, std::size_t bytes) {
  return RIDGE_RUNTIME(Malloc)(memory, bytes);
}
[[nodiscard]] inline Status free(void* memory) { return RIDGE_RUNTIME(Free)(memory); }
[[nodiscard]] inline Status mem_get_info(std::size_t* free_bytes, std::size_t* total_bytes) {
  return RIDGE_RUNTIME(MemGetInfo)(free_bytes, total_bytes);
}
#if defined(__HIP_PLATFORM_AMD__) || defined(__HIP_PLATFORM_NVIDIA__)
[[nodiscard]] inline Status malloc_host(void** memory, std::size_t bytes) {
  return hipHostMalloc(memory, bytes, hipHostMallocDefault);
}
[[nodiscard]] inline Status free_host(void* memory) { return hipHostFree(memory); }
#else
[[nodiscard]] inline Status malloc_host(void** memory, std::size_t bytes) {
  return cudaMallocHost(memory, bytes);
}
[[nodiscard]] inline Status free_host(void* memory) { return cudaFreeHost(memory); }
#endif
[[nodiscard]] inline Status memcpy_async(void* to, const void* from, std::size_t bytes,
                                         RIDGE_RUNTIME(MemcpyKind) kind, Stream stream) {
  return RIDGE_RUNTIME(MemcpyAsync)(to, from, bytes, kind, stream);
}
[[nodiscard]] inline Status memset_async(void* memory, int byte, std::size_t bytes, Stream stream) {
  return RIDGE_RUNTIME(MemsetAsync)(memory, byte, bytes, stream);
}

// Streams. They do not wait for the default stream.
[[nodiscard]] inline Status device_get_stream_priority_range(int* lowest, int* highest) {
  return RIDGE_RUNTIME(DeviceGetStreamPriorityRange)(lowest, highest);
}
[[nodiscard]] inline Status stream_create_with_priority(Stream* stream, int priority) {
  return RIDGE_RUNTIME(StreamCreateWithPriority)(stream, RIDGE_RUNTIME(StreamNonBlocking),
                                                 priority);
}
[[nodiscard]] inline Status stream_destroy(Stream stream) {
  return RIDGE_RUNTIME(StreamDestroy)(stream);
}
[[nodiscard]] inline Status stream_synchronize(Stream stream) {
  return RIDGE_RUNTIME(StreamSynchronize)(stream);
}

// Events, with times or, for those that are only waited for, without.
[[nodiscard]] inline Status event_create(Event* event) { return RIDGE_RUNTIME(EventCreate)(event); }
[[nodiscard]] inline Status event_create_without_time(Event* event) {
  return RIDGE_RUNTIME(EventCreateWithFlags)(event, RIDGE_RUNTIME(EventDisableTiming));
}
[[nodiscard]] inline Status event_destroy(Event event) {
  return RIDGE_RUNTIME(EventDestroy)(event);
}
[[nodiscard]] inline Status event_record(Event event, Stream stream) {
  return RIDGE_RUNTIME(EventRecord)(event, stream);
}
[[nodiscard]] inline Status event_query(Event event) { return RIDGE_RUNTIME(EventQuery)(event); }
[[nodiscard]] inline Status event_synchronize(Event event) {
  return RIDGE_RUNTIME(EventSynchronize)(event);
}
[[nodiscard]] inline Status event_elapsed_time(float* milliseconds, Event from, Event to) {
  return RIDGE_RUNTIME(EventElapsedTime)(milliseconds, from, to);
}

// Graphs. What puts nodes into one is in gpu/device/graph_cuda.cpp and graph_hip.cpp.
[[nodiscard]] inline Status graph_create(Graph* graph) {
  return RIDGE_RUNTIME(GraphCreate)(graph, 0);
}
[[nodiscard]] inline Status graph_destroy(Graph graph) {
  return RIDGE_RUNTIME(GraphDestroy)(graph);
}
[[nodiscard]] inline Status graph_instantiate(GraphExec* exec, Graph graph) {
  return RIDGE_RUNTIME(GraphInstantiateWithFlags)(exec, graph, 0);
}
[[nodiscard]] inline Status graph_launch(GraphExec exec, Stream stream) {
  return RIDGE_RUNTIME(GraphLaunch)(exec, stream);
}
[[nodiscard]] inline Status graph_exec_destroy(GraphExec exec) {
  return RIDGE_RUNTIME(GraphExecDestroy)(exec);
}

}  // namespace ridge::gpu::api

#undef RIDGE_RUNTIME
