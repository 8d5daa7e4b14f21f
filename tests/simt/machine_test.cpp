// The machine finds faults: each kernel here has one, and some have none. They are compiled as the
// kernels of ridge/gpu/ are.

#include "tests/simt/machine.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "ridge/gpu/device/runtime.h"
#include "tests/simt/buffer.h"
#include "tests/simt/memory.h"
#include "tests/simt/shadow.h"

namespace ridge {
namespace {

using namespace gpu;
using simt::Buffer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int block = 128;

struct Shape {
  unsigned blocks = 1, threads = block;
  std::size_t shared_bytes = 0;
};

// What the machine finds in a launch; nothing if all is well.
template <class... Parameters, class... Arguments>
std::string fault_of(const Shape& shape, void (*kernel)(Parameters...),
                     const Arguments&... arguments) {
  try {
    launch_on(nullptr, false, kernel, dim3(shape.blocks), dim3(shape.threads), shape.shared_bytes,
              arguments...);
  } catch (const simt::Fault& fault) {
    return fault.what();
  }
  return {};
}

constexpr const char* unordered_read = "reads what another thread writes";
constexpr const char* unordered_write = "writes what another thread writes";
constexpr const char* unwritten = "reads what nobody has written";
constexpr const char* out_of_bounds = "out of bounds";

__device__ int thread() { return static_cast<int>(threadIdx.x); }

// y[t] = x[t'] with t' the thread opposite, by way of shared memory.
template <bool has_barrier>
__global__ void reverse(const float* x, float* y) {
  begin_kernel();
  __shared__ float values[block];
  values[thread()] = x[thread()];
  if (has_barrier) __syncthreads();
  y[thread()] = values[block - 1 - thread()];
}

// Which of two accesses comes first, and so which is found to be in no order, is not said.
MATCHER(IsUnordered, "a fault of order") {
  return arg.find("no barrier between them") != arg.npos || arg.find(unwritten) != arg.npos;
}

TEST(SimtBarriers, OneBetweenWriteAndReadIsEnough) {
  std::vector<float> given(block), turned(block);
  for (int i = 0; i < block; ++i) given[static_cast<std::size_t>(i)] = static_cast<float>(i);
  const Buffer<float> x(given), y(block, 0);
  EXPECT_THAT(fault_of({}, reverse<true>, x.data(), y.data()), IsEmpty());
  EXPECT_EQ(y.values(), std::vector<float>(given.rbegin(), given.rend()));
}

TEST(SimtBarriers, AMissingOneBeforeAReadIsFound) {
  const Buffer<float> x(block, 1), y(block, 0);
  EXPECT_THAT(fault_of({}, reverse<false>, x.data(), y.data()), IsUnordered());
}

// Sums pairs in place, again and again.
template <bool has_barrier>
__global__ void fold(const float* x, float* y) {
  begin_kernel();
  __shared__ float values[block];
  float sum = x[thread()];
  for (int i = 0; i < 3; ++i) {
    values[thread()] = sum;
    __syncthreads();
    sum += values[block - 1 - thread()];
    if (has_barrier) __syncthreads();
  }
  y[thread()] = sum;
}

TEST(SimtBarriers, AMissingOneBeforeTheNextWriteIsFound) {
  const Buffer<float> x(block, 1), y(block, 0);
  EXPECT_THAT(fault_of({}, fold<true>, x.data(), y.data()), IsEmpty());
  EXPECT_THAT(fault_of({}, fold<false>, x.data(), y.data()), IsUnordered());
}

__global__ void write_one(int threads, int* y) {
  begin_kernel();
  __shared__ int last;
  if (thread() < threads) last = thread();
  __syncthreads();
  if (thread() == 0) *y = last;
}

TEST(SimtBarriers, TwoWritersOfAWordAreFound) {
  const Buffer<int> y(1, 0);
  EXPECT_THAT(fault_of({}, write_one, 1, y.data()), IsEmpty());
  EXPECT_THAT(fault_of({}, write_one, 2, y.data()), HasSubstr(unordered_write));
}

__global__ void write_neighbors(std::int8_t* y) {
  begin_kernel();
  __shared__ std::int8_t bytes[block];
  bytes[thread()] = 1;
  __syncthreads();
  y[thread()] = bytes[thread()];
}

TEST(SimtBarriers, WritersOfBytesOfOneWordAreNoFault) {
  const Buffer<std::int8_t> y(block, 0);
  EXPECT_THAT(fault_of({}, write_neighbors, y.data()), IsEmpty());
}

// Threads touch the bytes of a word, one of each four the whole, then all the bytes again: with a
// barrier after each of these steps whose bit is set.
template <unsigned barriers>
__global__ void touch_bytes_and_words(std::int8_t* y) {
  begin_kernel();
  __shared__ int words[block / 4];
  auto* const bytes = reinterpret_cast<std::int8_t*>(words);
  bytes[thread()] = 1;
  if (barriers & 1) __syncthreads();
  int* const word = words + thread() / 4;
  int all = 0;
  if (thread() % 4 == 3) all = *word;
  if (barriers & 2) __syncthreads();
  if (thread() % 4 == 1) *word = 0x02020202;
  if (barriers & 4) __syncthreads();
  y[thread()] = static_cast<std::int8_t>(bytes[thread()] + (all == 0x01010101 ? 1 : 0));
}

TEST(SimtBarriers, MissingOnesBetweenBytesAndTheirWordAreFound) {
  const Buffer<std::int8_t> y(block, 0);
  EXPECT_THAT(fault_of({}, touch_bytes_and_words<7>, y.data()), IsEmpty());
  const std::vector<std::int8_t> values = y.values();
  EXPECT_EQ(values[2], 2);
  EXPECT_EQ(values[3], 3) << "which has read its word";
  EXPECT_THAT(fault_of({}, touch_bytes_and_words<6>, y.data()), IsUnordered());
  EXPECT_THAT(fault_of({}, touch_bytes_and_words<5>, y.data()), IsUnordered());
  EXPECT_THAT(fault_of({}, touch_bytes_and_words<3>, y.data()), IsUnordered());
}

// Operands may begin and end within a word.
TEST(SimtShadow, TellsTheBytesOfAWordApart) {
  const simt::Cells cells(16);
  const simt::Shadow& all = cells.shadow();
  const simt::Shadow operand = all.from(2);
  operand.fill(5, {.write = {.at = {.block = simt::by_host}}, .read = {}});
  const simt::Judge judge;
  const auto fault_of_read = [&](const simt::Shadow& shadow, std::size_t begin, std::size_t count) {
    const char* const fault =
        judge.judge(shadow, begin, count, false, simt::Access::read, {.block = simt::first_block});
    return std::string(fault ? fault : "");
  };
  EXPECT_THAT(fault_of_read(operand, 0, 5), IsEmpty());
  EXPECT_THAT(fault_of_read(all, 2, 5), IsEmpty());
  EXPECT_THAT(fault_of_read(all, 4, 3), IsEmpty());
  for (const std::size_t outside : {0, 1, 7, 8})
    EXPECT_THAT(fault_of_read(all, outside, 1), HasSubstr(unwritten)) << outside;
  EXPECT_THAT(fault_of_read(all, 4, 4), HasSubstr(unwritten));
}

// Lanes `distance` apart exchange by way of shared memory.
template <bool has_barrier>
__global__ void exchange_in_warp(int distance, float* y) {
  begin_kernel();
  __shared__ float values[block];
  values[thread()] = static_cast<float>(thread());
  if (has_barrier) sync_warp();
  y[thread()] = values[thread() ^ distance];
}

TEST(SimtBarriers, OneOfTheWarpOrdersItsLanesOnly) {
  const Buffer<float> y(block, 0);
  EXPECT_THAT(fault_of({}, exchange_in_warp<true>, 1, y.data()), IsEmpty());
  EXPECT_THAT(fault_of({}, exchange_in_warp<true>, warp_width / 2, y.data()), IsEmpty());
  EXPECT_THAT(fault_of({}, exchange_in_warp<false>, 1, y.data()), IsUnordered());
  EXPECT_THAT(fault_of({}, exchange_in_warp<true>, warp_width, y.data()), IsUnordered());
}

// Kernels that are right only where a warp has 64 lanes.
TEST(SimtBarriers, AWarpOf64ThatIsTakenForGrantedIsFound) {
  const Buffer<float> y(block, 0);
  const std::string fault = fault_of({}, exchange_in_warp<true>, 32, y.data());
  if (warp_width == 64)
    EXPECT_THAT(fault, IsEmpty());
  else
    EXPECT_THAT(fault, IsUnordered());
}

__global__ void sum_of_warp(float* y) {
  begin_kernel();
  const float sum = reduce_warp<Sum>(1.0f);
  if (thread() == 0) *y = sum;
}

// Kernels that are right only where a warp has 32.
TEST(SimtLanes, AWarpOf32ThatIsTakenForGrantedIsFound) {
  const Buffer<float> y(1, 0);
  const std::string fault = fault_of({.threads = 32}, sum_of_warp, y.data());
  if (warp_width == 32)
    EXPECT_THAT(fault, IsEmpty());
  else
    EXPECT_THAT(fault, HasSubstr("asks lane 32 for its value, of which there is none"));
  EXPECT_THAT(fault_of({.threads = 64}, sum_of_warp, y.data()), IsEmpty());
  EXPECT_EQ(y.values()[0], static_cast<float>(warp_width));
}

__global__ void ask_lane(int lane, float* y) {
  begin_kernel();
  y[thread()] = shuffle(static_cast<float>(thread()), lane);
}

TEST(SimtLanes, AShuffleBeyondTheWidthIsFound) {
  const Buffer<float> y(block, 0);
  EXPECT_THAT(fault_of({}, ask_lane, warp_width - 1, y.data()), IsEmpty());
  EXPECT_EQ(y.values()[block - 1], static_cast<float>(block - 1));
  EXPECT_THAT(fault_of({}, ask_lane, warp_width, y.data()), HasSubstr("of which there is none"));
  EXPECT_THAT(fault_of({}, ask_lane, -1, y.data()), HasSubstr("of which there is none"));
}

__global__ void sum_after_return(int left, float* y) {
  begin_kernel();
  if (thread() >= left) return;
  y[thread()] = reduce_warp<Sum>(1.0f);
}

TEST(SimtLanes, OneThatHasReturnedAndIsAskedIsFound) {
  const Buffer<float> y(block, 0);
  EXPECT_THAT(fault_of({}, sum_after_return, warp_width, y.data()), IsEmpty());
  EXPECT_THAT(fault_of({}, sum_after_return, warp_width - 1, y.data()),
              HasSubstr("which has returned"));
}

__global__ void ask_differently(float* y) {
  begin_kernel();
  if (thread() % 2 == 0)
    y[thread()] = shuffle(1.0f, 0);
  else
    y[thread()] = static_cast<float>(ballot(true));
}

TEST(SimtLanes, ThoseThatWaitForDifferentThingsAreFound) {
  const Buffer<float> y(block, 0);
  EXPECT_THAT(fault_of({}, ask_differently, y.data()), HasSubstr("wait for different things"));
}

__global__ void count_votes(std::uint64_t* y) {
  begin_kernel();
  const std::uint64_t votes = ballot(thread() % 3 == 0);
  if (thread() == 0) *y = votes;
}

TEST(SimtLanes, ABallotHasABitForEach) {
  const Buffer<std::uint64_t> y(1, 0);
  EXPECT_THAT(fault_of({}, count_votes, y.data()), IsEmpty());
  std::uint64_t expected = 0;
  for (int i = 0; i < warp_width; i += 3) expected |= std::uint64_t{1} << i;
  EXPECT_EQ(y.values()[0], expected);
}

__global__ void diverge_at_barrier(int lanes, float* y) {
  begin_kernel();
  if (thread() < lanes)
    __syncthreads();
  else
    y[thread()] = 1;
  __syncthreads();
}

TEST(SimtBarriers, OneInDivergentCodeIsFound) {
  const Buffer<float> y(block, 0);
  EXPECT_THAT(fault_of({}, diverge_at_barrier, 0, y.data()), IsEmpty());
  EXPECT_THAT(fault_of({}, diverge_at_barrier, 5, y.data()),
              HasSubstr("threads wait at different barriers: 5 threads from 0 on at"));
}

__global__ void wait_apart(float* y) {
  begin_kernel();
  if (thread() == 0)
    __syncthreads();
  else
    y[thread()] = shuffle(1.0f, 1);
}

TEST(SimtBarriers, ThreadsThatWaitForeverAreFound) {
  const Buffer<float> y(block, 0);
  EXPECT_THAT(fault_of({}, wait_apart, y.data()), HasSubstr("threads wait forever"));
}

__global__ void return_before_barrier(int left, float* y) {
  begin_kernel();
  __shared__ float values[block];
  if (thread() >= left) return;
  values[thread()] = 1;
  __syncthreads();
  y[thread()] = values[left - 1 - thread()];
}

TEST(SimtBarriers, WhoeverHasReturnedKeepsNobodyWaiting) {
  const Buffer<float> y(block, 0);
  EXPECT_THAT(fault_of({}, return_before_barrier, 7, y.data()), IsEmpty());
  EXPECT_EQ(y.values()[6], 1);
}

__global__ void copy_kernel(int n, const float* x, float* y) {
  begin_kernel();
  const int i = static_cast<int>(blockIdx.x) * block + thread();
  if (i < n) y[i] = x[i];
}

TEST(SimtMemory, AnIndexBeyondTheEndIsFound) {
  const Buffer<float> x(150, 1), y(150, 0), longer(151, 0);
  EXPECT_THAT(fault_of({.blocks = 2}, copy_kernel, 150, x.data(), y.data()), IsEmpty());
  EXPECT_EQ(y.values(), x.values());
  EXPECT_THAT(fault_of({.blocks = 2}, copy_kernel, 151, x.data(), longer.data()),
              HasSubstr("reads 4 bytes out of bounds"));
  EXPECT_THAT(fault_of({.blocks = 2}, copy_kernel, 151, longer.data(), y.data()),
              HasSubstr("writes 4 bytes out of bounds"));
  EXPECT_THAT(fault_of({.blocks = 2}, copy_kernel, 150, x.data() - 1, y.data()),
              HasSubstr(out_of_bounds));
}

TEST(SimtMemory, WhatIsNoOperandOfACallIsOutOfItsBounds) {
  const Buffer<float> x(block, 1), y(block, 0);
  const auto fault_with = [&](bool writes_y, std::size_t bytes) {
    const simt::OperandsOnly held(
        {{x.data(), bytes, false, true, "x"}, {y.data(), y.bytes(), writes_y, true, "y"}});
    return fault_of({}, copy_kernel, block, x.data(), y.data());
  };
  EXPECT_THAT(fault_with(true, x.bytes()), IsEmpty());
  EXPECT_THAT(fault_with(false, x.bytes()), HasSubstr("writes 4 bytes out of bounds"));
  EXPECT_THAT(fault_with(true, x.bytes() - 4), HasSubstr("at byte 508 of the 508 of x"));
}

TEST(SimtMemory, WhatNobodyHasWrittenIsFound) {
  const Buffer<float> x(block, 1), y(block, 0);
  const simt::OperandsOnly held(
      {{x.data(), x.bytes(), true, false, "a workspace"}, {y.data(), y.bytes(), true, true, "y"}});
  EXPECT_THAT(fault_of({}, copy_kernel, block, x.data(), y.data()), HasSubstr(unwritten));
  EXPECT_THAT(fault_of({}, copy_kernel, block, y.data(), x.data()), IsEmpty());
  EXPECT_THAT(fault_of({}, copy_kernel, block, x.data(), y.data()), IsEmpty());
}

__global__ void write_dynamic(int n) {
  begin_kernel();
  dynamic_shared<float>()[thread() + n] = 1;
}

TEST(SimtMemory, TheEndOfDynamicSharedMemoryIsKnown) {
  constexpr std::size_t bytes = block * sizeof(float);
  EXPECT_THAT(fault_of({.shared_bytes = bytes}, write_dynamic, 0), IsEmpty());
  EXPECT_THAT(fault_of({.shared_bytes = bytes}, write_dynamic, 1),
              HasSubstr("byte 512 of the 512 of dynamic shared memory"));
}

__global__ void write_static(int n, float* y) {
  begin_kernel();
  __shared__ float values[block];
  values[thread() + n] = 1;
  y[thread()] = values[thread() + n];
}

TEST(SimtMemory, TheEndOfAnArrayIsKnown) {
  const Buffer<float> y(block, 0);
  EXPECT_THAT(fault_of({}, write_static, 0, y.data()), IsEmpty());
  EXPECT_THAT(fault_of({}, write_static, 1, y.data()),
              HasSubstr("takes element 128 of an array that has fewer"));
}

// The second block finds what the first has left.
__global__ void read_leftover(float* y) {
  begin_kernel();
  __shared__ float values[block];
  if (blockIdx.x == 0) values[thread()] = 1;
  __syncthreads();
  if (blockIdx.x == 1) y[thread()] = values[thread()];
}

TEST(SimtMemory, SharedMemoryHoldsNothingAtFirst) {
  const Buffer<float> y(block, 0);
  EXPECT_THAT(fault_of({.blocks = 1}, read_leftover, y.data()), IsEmpty());
  EXPECT_THAT(fault_of({.blocks = 2}, read_leftover, y.data()), HasSubstr(unwritten));
}

__global__ void read_pack(const float* x, float* y) {
  begin_kernel();
  float values[4];
  load_pack(x + 4 * thread(), values);
  y[thread()] = values[0] + values[3];
}

TEST(SimtMemory, AMisalignedPackIsFound) {
  const Buffer<float> x(4 * block + 4, 1), y(block, 0);
  EXPECT_THAT(fault_of({}, read_pack, x.data(), y.data()), IsEmpty());
  EXPECT_THAT(fault_of({}, read_pack, x.data() + 2, y.data()),
              HasSubstr("touches 16 misaligned bytes"));
}

__global__ void touch_early(float* y) {
  if (thread() == 0) *y = 1;
  begin_kernel();
}

TEST(SimtMemory, WhatIsTouchedBeforeTheKernelBeforeIsDoneIsFound) {
  const Buffer<float> y(1, 0);
  const std::string fault = fault_of({}, touch_early, y.data());
  if (simt::waits_for_launches)
    EXPECT_THAT(fault, HasSubstr("before begin_kernel()"));
  else
    EXPECT_THAT(fault, IsEmpty());
}

// Each block leaves a number, and the last to arrive adds them up.
template <bool fence_before, bool fence_after>
__global__ void add_in_last_block(float* parts, unsigned* arrived, float* sum) {
  begin_kernel();
  __shared__ bool last;
  if (thread() == 0) {
    parts[blockIdx.x] = 1;
    if (fence_before) __threadfence();
    last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
    if (fence_after) __threadfence();
  }
  __syncthreads();
  if (!last || thread() != 0) return;
  float all = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) all += parts[b];
  *sum = all;
}

TEST(SimtBlocks, AtomicArrivalWithFencesOrdersThem) {
  const Buffer<float> parts(5, 0), sum(1, 0);
  const Buffer<unsigned> arrived(1, 0);
  const auto fault = [&](auto kernel) {
    return fault_of({.blocks = 5}, kernel, parts.data(), arrived.data(), sum.data());
  };
  EXPECT_THAT(fault(add_in_last_block<true, true>), IsEmpty());
  EXPECT_EQ(sum.values()[0], 5);
  EXPECT_THAT(fault(add_in_last_block<false, true>), HasSubstr(unordered_read));
  *arrived.data() = 0;
  EXPECT_THAT(fault(add_in_last_block<true, false>), HasSubstr(unordered_read));
}

__global__ void add_without_atomics(int* sum) {
  begin_kernel();
  if (thread() == 0) *sum += 1;
}
__global__ void add_by_atomics(int* sum) {
  begin_kernel();
  atomicAdd(sum, 1);
}

TEST(SimtBlocks, ThoseThatAddToOneNumberMustDoSoAtomically) {
  const Buffer<int> sum(1, 0);
  EXPECT_THAT(fault_of({.blocks = 1}, add_without_atomics, sum.data()), IsEmpty());
  EXPECT_THAT(fault_of({.blocks = 3}, add_by_atomics, sum.data()), IsEmpty());
  EXPECT_EQ(sum.values()[0], 1 + 3 * block);
  EXPECT_THAT(fault_of({.blocks = 2}, add_without_atomics, sum.data()), HasSubstr(unordered_read));
}

__global__ void wait_for_later_block(int* flag) {
  begin_kernel();
  if (thread() != 0) return;
  if (blockIdx.x == 0)
    while (*static_cast<volatile int*>(flag) == 0) {
    }
  else
    atomicAdd(flag, 1);
}

TEST(SimtBlocks, OneThatWaitsForALaterOneIsFound) {
  const Buffer<int> flag(1, 0);
  EXPECT_THAT(fault_of({.blocks = 2}, wait_for_later_block, flag.data()),
              HasSubstr("waits for what nobody writes"));
}

__global__ void read_beside_atomics(int* y) {
  begin_kernel();
  __shared__ int sum;
  if (thread() == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, 1);
  if (thread() == 0) *y = sum;
}

TEST(SimtBarriers, AReadBesideAtomicChangesIsFound) {
  const Buffer<int> y(1, 0);
  for (int order = 0; order < 4; ++order)
    EXPECT_THAT(fault_of({}, read_beside_atomics, y.data()), IsUnordered());
}

TEST(SimtLaunches, WhatABlockCannotHaveIsRefused) {
  const Buffer<float> y(2048, 0);
  EXPECT_THAT(fault_of({.threads = 1025}, copy_kernel, 1, y.data(), y.data()),
              HasSubstr("more than 1024 threads"));
  EXPECT_THAT(fault_of({.blocks = 0}, copy_kernel, 1, y.data(), y.data()),
              HasSubstr("without blocks"));
  EXPECT_THAT(fault_of({.shared_bytes = simt::usual_shared_bytes + 16}, write_dynamic, 0),
              HasSubstr("that its kernel is granted"));
  EXPECT_THROW(allow_shared_memory(write_dynamic, simt::most_shared_bytes + 16), simt::Fault);
}

TEST(SimtLaunches, OneAfterAFaultRuns) {
  const Buffer<float> x(block, 2), y(block, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(fault_of({}, fold<false>, x.data(), y.data()), IsUnordered());
    EXPECT_THAT(fault_of({}, fold<true>, x.data(), y.data()), IsEmpty());
    EXPECT_EQ(y.values(), std::vector<float>(block, 16));
  }
}

}  // namespace
}  // namespace ridge
