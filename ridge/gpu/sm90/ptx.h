#pragma once

// The instructions of sm90 that CUDA C++ has no names for: mbarriers, the bulk copy engine (TMA),
// register reallocation, named barriers. One function each; the matrix products are in wgmma.h.
// Shared memory is named by its 32-bit address in the shared window.

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "ridge/base/dtype.h"
#include "ridge/gpu/device/runtime.h"

namespace ridge::gpu::ptx {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// One lane of a converged warp.
__device__ inline bool elect_one() {
  std::uint32_t elected = 0;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.b32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(elected));
  return elected != 0;
}

// mbarriers: a phase completes when `arrivals` threads have arrived and all expected bytes landed.

__device__ inline void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals));
}

// Makes initialized barriers visible to the copy engine.
__device__ inline void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

__device__ inline void barrier_arrive_expect(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

// Returns once the phase of this parity is complete. A new barrier's phase of parity 1 counts as
// complete, so producers start with parity 1 and consumers with parity 0.
__device__ inline void barrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "wait:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra wait;\n"
      "finished:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Clusters of blocks.

__device__ inline int cluster_rank() {
  std::uint32_t rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// All threads of all blocks of the cluster; what any wrote before it is seen by all after it.
__device__ inline void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
}

// Arrives at the barrier in the same place of another block of the cluster. Only for handing back
// memory that was read: a release of writes at the cluster's scope would cost a fence of the GPU.
__device__ inline void barrier_arrive_at(std::uint64_t* barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

// A float of the shared memory of the cluster's block `rank`, where this block's is at `address`.
__device__ inline float load_of_block(std::uint32_t address, int rank) {
  float x = 0;
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [remote];\n"
      "}\n"
      : "=f"(x)
      : "r"(address), "r"(rank)
      : "memory");
  return x;
}

__device__ inline float4 load4_of_block(std::uint32_t address, int rank) {
  float4 x{};
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n"
      "}\n"
      : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
      : "r"(address), "r"(rank)
      : "memory");
  return x;
}

// Named barriers 1..15 (0 is __syncthreads): `threads` counts those that sync and those that
// arrive.
__device__ inline void named_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ inline void named_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

template <int Registers>
__device__ inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <int Registers>
__device__ inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Ordinary stores to shared memory before it are seen by wgmma and the copy engine after it.
__device__ inline void fence_shared_for_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The bulk copy engine. Coordinates count elements, innermost dimension first.

__device__ inline void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ inline void load_box(void* shared, const CUtensorMap* map, std::uint64_t* barrier,
                                int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

__device__ inline void load_box(void* shared, const CUtensorMap* map, std::uint64_t* barrier,
                                int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1)
      : "memory");
}

// Loads windows of images (sm90/tensor_map.h): `across` and `down` into each, from the first on,
// whose corner is at (column, row) of an image.
__device__ inline void load_windows(void* shared, const CUtensorMap* map, std::uint64_t* barrier,
                                    int channel, int column, int row, int image,
                                    std::uint16_t across, std::uint16_t down) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(channel), "r"(column), "r"(row), "r"(image),
      "h"(across), "h"(down)
      : "memory");
}

__device__ inline void load_box(void* shared, const CUtensorMap* map, std::uint64_t* barrier,
                                int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

// Into the L2 cache only.
__device__ inline void prefetch_box(const CUtensorMap* map, int c0, int c1) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map),
               "r"(c0), "r"(c1)
               : "memory");
}

__device__ inline void prefetch_box(const CUtensorMap* map, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map),
               "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}

// Into the same place of each block of the cluster whose bit is set, with the bytes counted by each
// one's barrier.
__device__ inline void load_box_to(std::uint16_t blocks, void* shared, const CUtensorMap* map,
                                   std::uint64_t* barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "h"(blocks)
      : "memory");
}

__device__ inline void load_box_to(std::uint16_t blocks, void* shared, const CUtensorMap* map,
                                   std::uint64_t* barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "h"(blocks)
      : "memory");
}

__device__ inline void store_box(const CUtensorMap* map, const void* shared, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(shared_address(shared)), "r"(c0), "r"(c1)
      : "memory");
}

__device__ inline void store_box(const CUtensorMap* map, const void* shared, int c0, int c1,
                                 int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
          map),
      "r"(shared_address(shared)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

__device__ inline void store_box(const CUtensorMap* map, const void* shared, int c0, int c1, int c2,
                                 int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::
          "l"(map),
      "r"(shared_address(shared)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// The same for what passes through once: it leaves the L2 cache first, before what is read again.

__device__ inline std::uint64_t streaming_policy() {
  std::uint64_t policy = 0;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
  return policy;
}

__device__ inline void stream_in_box(void* shared, const CUtensorMap* map, std::uint64_t* barrier,
                                     int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "l"(streaming_policy())
      : "memory");
}

__device__ inline void stream_out_box(const CUtensorMap* map, const void* shared, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint "
      "[%0, {%2, %3}], [%1], %4;" ::"l"(map),
      "r"(shared_address(shared)), "r"(c0), "r"(c1), "l"(streaming_policy())
      : "memory");
}

// A contiguous copy of a multiple of 16 bytes.
__device__ inline void load_bytes(void* shared, const void* global, std::uint32_t bytes,
                                  std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

__device__ inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// At most Pending of this thread's committed stores still read shared memory.
template <int Pending>
__device__ inline void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

// At most Pending of this thread's committed stores are still under way.
template <int Pending>
__device__ inline void store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

// Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ inline void store_matrices(std::uint32_t address, std::uint32_t a, std::uint32_t b,
                                      std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// Four consecutive floats in global memory += a, b, c, d.
__device__ inline void reduce_add(float* global, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(global), "f"(a),
               "f"(b), "f"(c), "f"(d)
               : "memory");
}

__device__ inline float exp2(float x) {
  float y = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline std::uint32_t load_word(std::uint32_t address) {
  std::uint32_t x = 0;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}

__device__ inline void store_word(std::uint32_t address, std::uint32_t x) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

// 16 bytes of shared memory.
__device__ inline uint4 load_chunk(std::uint32_t address) {
  uint4 x{};
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(address)
               : "memory");
  return x;
}

__device__ inline void store_chunk(std::uint32_t address, uint4 x) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}

// The products of two pairs of T, summed.
template <class T>
__device__ inline float dot(std::uint32_t a, std::uint32_t b) {
  const float low = half_of_word<T>(a, 0) * half_of_word<T>(b, 0);
  return fmaf(half_of_word<T>(a, 1), half_of_word<T>(b, 1), low);
}

// Two floats as T, `low` in the low half.
template <class T>
__device__ inline std::uint32_t pack(float low, float high) {
  std::uint32_t packed = 0;
  if constexpr (std::is_same_v<T, BFloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

}  // namespace ridge::gpu::ptx
