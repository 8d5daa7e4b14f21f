#pragma once

// A machine that runs GPU kernels on a processor of the host, one thread of a kernel after the
// other, and finds what is wrong with them: what they read or write beyond memory that is theirs,
// or with no barrier between it and what other threads do, what they read before anybody has
// written it, what lanes ask of lanes that do not answer, and barriers that not all threads reach.
//
// Kernels are compiled with -fsanitize=thread, which calls a function before each access to memory;
// those functions are this machine's (hooks.cpp). The thread sanitizer itself is not linked.

#include <cstddef>
#include <cstdint>
#include <set>
#include <source_location>
#include <string_view>
#include <vector>

#include "ridge/base/error.h"

namespace ridge::simt {

// The width of a warp in the machine that this program is built for.
#if RIDGE_SIMT_WARP == 64
inline constexpr int warp_width = 64;
#else
inline constexpr int warp_width = 32;
#endif

// The most shared memory that a block can have, and what it has without being granted more.
inline constexpr std::size_t most_shared_bytes = warp_width == 64 ? 65536 : 232448;
inline constexpr std::size_t usual_shared_bytes = warp_width == 64 ? 65536 : 49152;

// A kernel did what it must not.
class Fault : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

// Whether kernels wait for those before them in begin_kernel(): in HIP they begin after them.
inline constexpr bool waits_for_launches = warp_width == 32;

using Site = std::source_location;

struct Extent {
  unsigned x = 1, y = 1, z = 1;
  std::size_t count() const { return std::size_t{x} * y * z; }
};

// A launch: `call` does the work of one thread, given `parameters`, which threads may read.
struct Grid {
  const void* kernel = nullptr;
  Extent blocks, threads;
  std::size_t shared_bytes = 0;
  void (*call)(const void* parameters) = nullptr;
  const void* parameters = nullptr;
  std::size_t parameter_bytes = 0;
};

// Runs all of it; Fault.
void run(const Grid& grid);

// Grants a kernel's blocks more shared memory than all have.
void allow_shared_memory(const void* kernel, std::size_t bytes);

// Functions that a kernel's thread calls.

enum class Exchange : std::uint8_t { shuffle, shuffle_xor, ballot, barrier, work };
std::string_view name_of(Exchange what);

void sync_block(const Site& site);
// Waits for the other lanes of the warp that have not returned: the result is the value that lane
// `operand` gives, or for shuffle_xor the lane that differs by it; of a ballot, a bit for each
// lane.
std::uint64_t exchange(Exchange what, std::uint64_t value, int operand, const Site& site);
// Waits likewise, for all lanes of the warp: then `work` is done once, on what each lane gives.
void work_together(void (*work)(void* const* of_lanes), void* of_lane, const Site& site);
void fence();
// Lets the thread touch memory: launches may overlap, and the one before is done only now.
void wait_for_launches_before();
// Adds; the value before.
int add_atomically(int* place, int more);
unsigned add_atomically(unsigned* place, unsigned more);
// Adds one, or sets to 0 what is `last` or more; the value before.
unsigned count_atomically(unsigned* place, unsigned last);
// Copies bytes, the last `zeros` of which are 0 instead.
void copy(void* to, const void* from, std::size_t bytes, std::size_t zeros);

// Memory of the device. Kernels may touch it all, unless a call says which parts are its operands.

std::byte* allocate(std::size_t bytes);
void deallocate(void* memory);
// The host has written it.
void note_written(const void* memory, std::size_t bytes);

struct Operand {
  const void* data;
  std::size_t bytes;
  bool is_result = false;   // and may be written
  bool is_written = false;  // before the kernels of the call
  const char* name = "";
};

// While it lives, kernels may touch of all memory only the operands, and what was `kept` out.
class OperandsOnly {
 public:
  explicit OperandsOnly(const std::vector<Operand>& operands);
  ~OperandsOnly();
  OperandsOnly(const OperandsOnly&) = delete;
  OperandsOnly& operator=(const OperandsOnly&) = delete;
};
// Memory that kernels keep from one call to the next.
void keep(const void* memory);

// Counts of the launches and accesses so far.
struct Counts {
  std::set<const void*> kernels;
  std::uint64_t launches = 0, blocks = 0, threads = 0, accesses = 0;
};
const Counts& counts();

}  // namespace ridge::simt
