#include "tests/simt/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "tests/simt/fiber.h"
#include "tests/simt/hooks.h"
#include "tests/simt/memory.h"

// The indices that kernels read of themselves. language.h, which is not included here, has them as
// constants.
extern ridge::simt::Extent simt_thread_index, simt_block_index, simt_block_extent, simt_grid_extent;
ridge::simt::Extent simt_thread_index, simt_block_index, simt_block_extent, simt_grid_extent;

namespace ridge::simt {

std::string_view name_of(Exchange what) {
  switch (what) {
    case Exchange::shuffle:
      return "a shuffle";
    case Exchange::shuffle_xor:
      return "a shuffle by xor";
    case Exchange::ballot:
      return "a ballot";
    case Exchange::barrier:
      return "a barrier of the warp";
    case Exchange::work:
      return "work of the whole warp";
  }
  return "";
}

namespace {

constexpr int most_threads = 1024;
// In a block, beyond which a kernel is taken to wait forever.
constexpr std::uint64_t most_accesses = std::uint64_t{1} << 30;
// At what may change, with no other thread running in between.
constexpr int most_looks = 100'000;

enum class State : std::uint8_t { ready, in_exchange, at_barrier, done };

void run_threads();

// Fibers, which are large, lie apart: a barrier looks at all threads.
struct Thread {
  Fiber* fiber = nullptr;
  State state = State::done;
  bool may_touch_memory = false;
  Extent index{};
  int number = 0;  // in the block
  // What it waits for.
  Exchange exchange = Exchange::barrier;
  std::uint64_t value = 0;  // that it gives, and then that it gets
  int operand = 0;
  void (*work)(void* const* of_lanes) = nullptr;
  Site site;

  bool waits_elsewhere(const Site& other) const {
    if (site.line() != other.line()) return true;
    return site.file_name() != other.file_name() &&
           std::string_view(site.file_name()) != other.file_name();
  }
};

std::string place_of(const Site& site) {
  const std::string_view path = site.file_name();
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), site.line());
}

// Whether accesses are those of a kernel. The machine's own are not, and yet may be told of: it
// shares functions of the standard library with code that tells.
bool listens = false;

struct Aside {
  Aside() { listens = false; }
  ~Aside() { listens = true; }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;
};

class Machine {
 public:
  Memory memory;
  Judge judge;
  Counts counts;
  std::map<const void*, std::size_t> shared_bytes;  // granted to kernels
  Thread* running = nullptr;

  Machine() {
    judge.warp_width = warp_width;
    threads_.reserve(most_threads);
  }

  void run(const Grid& grid);
  [[noreturn]] void run_threads();
  void arrive_at_barrier(const Site& site);
  std::uint64_t exchange(Exchange what, std::uint64_t value, int operand, const Site& site);
  void touch(std::uintptr_t address, std::size_t bytes, Access access);
  [[noreturn]] void fail(const std::string& what);

 private:
  struct Warp {
    int live = 0, waiting = 0;
    std::uint32_t step = 0;
  };

  void check_geometry(const Grid& grid) const;
  void run_block(const Grid& grid);
  void begin_block(const Grid& grid);
  void pass_on(Fiber& from);
  void finish_thread(Thread& thread);
  void settle(Warp& warp, int first);
  void do_work_of_warp(const Warp& warp, int first);
  void settle_barrier();
  std::uint64_t result_of(const Thread& thread, int first) const;
  const Thread& lane_of(const Thread& asking, int first, int lane) const;
  std::string where_they_wait() const;
  [[noreturn]] void give_up();
  Moment now() const;
  Warp& warp_of(const Thread& thread) {
    return warps_[static_cast<std::size_t>(thread.number / warp_width)];
  }

  Fiber home_;
  std::vector<Thread> threads_;  // as many as any block had
  std::vector<std::unique_ptr<Fiber>> fibers_;
  int count_ = 0;  // of the present block
  std::vector<Warp> warps_;
  std::deque<Thread*> ready_;
  int live_ = 0, at_barrier_ = 0;
  std::uint32_t block_ = first_block - 1, interval_ = 0;
  std::uint64_t accesses_ = 0;
  int looks_ = 0;
  // No order of threads is promised, and launches take turns, but not in pairs: an operator's
  // launches may be two.
  bool is_reversed_ = false;
  std::optional<std::string> failure_;
  const Grid* grid_ = nullptr;
};

void Machine::check_geometry(const Grid& grid) const {
  if (grid.blocks.count() == 0 || grid.threads.count() == 0)
    throw Fault("a launch without blocks or threads");
  if (grid.threads.count() > most_threads) throw Fault("a block of more than 1024 threads");
  const auto granted = shared_bytes.find(grid.kernel);
  const std::size_t most = granted == shared_bytes.end()
                               ? usual_shared_bytes
                               : std::max(usual_shared_bytes, granted->second);
  if (grid.shared_bytes > most)
    throw Fault("a launch with {} bytes of shared memory, of {} that its kernel is granted",
                grid.shared_bytes, most);
}

void Machine::run(const Grid& grid) {
  check_geometry(grid);
  grid_ = &grid;
  count_ = static_cast<int>(grid.threads.count());
  while (fibers_.size() < static_cast<std::size_t>(count_)) {
    fibers_.push_back(std::make_unique<Fiber>(simt::run_threads));
    threads_.emplace_back().fiber = fibers_.back().get();
  }
  memory.set_parameters(grid.parameters, grid.parameter_bytes);
  memory.set_dynamic_shared(grid.shared_bytes);
  simt_block_extent = grid.threads;
  simt_grid_extent = grid.blocks;
  judge.order.begin_launch(block_ + 1);
  is_reversed_ = std::popcount(counts.launches) % 2 == 1;
  for (unsigned z = 0; z < grid.blocks.z; ++z)
    for (unsigned y = 0; y < grid.blocks.y; ++y)
      for (unsigned x = 0; x < grid.blocks.x; ++x) {
        simt_block_index = {x, y, z};
        run_block(grid);
      }
  grid_ = nullptr;
  counts.kernels.insert(grid.kernel);
  counts.launches += 1;
  counts.blocks += grid.blocks.count();
  counts.threads += grid.blocks.count() * grid.threads.count();
}

void Machine::begin_block(const Grid& grid) {
  judge.order.begin_block(++block_);
  interval_ = 0;
  accesses_ = 0;
  at_barrier_ = 0;
  live_ = count_;
  warps_.assign(static_cast<std::size_t>((count_ + warp_width - 1) / warp_width), {});
  ready_.clear();
  for (int i = 0; i < count_; ++i) {
    Thread& thread = threads_[static_cast<std::size_t>(i)];
    const auto n = static_cast<unsigned>(i);
    thread.index = {n % grid.threads.x, n / grid.threads.x % grid.threads.y,
                    n / (grid.threads.x * grid.threads.y)};
    thread.number = i;
    thread.state = State::ready;
    thread.may_touch_memory = !waits_for_launches;
    ++warp_of(thread).live;
    ready_.push_back(&thread);
  }
  if (is_reversed_) std::ranges::reverse(ready_);
}

void Machine::run_block(const Grid& grid) {
  begin_block(grid);
  pass_on(home_);
  if (failure_) give_up();
  counts.accesses += accesses_;
  if (live_ == 0) return;
  failure_ = "threads wait forever: " + where_they_wait();
  give_up();
}

// Lets the next thread that can go on do so, or nobody. Returns when it is the caller's turn.
void Machine::pass_on(Fiber& from) {
  if (failure_ || ready_.empty()) {
    running = nullptr;
    return Fiber::pass(from, home_);
  }
  looks_ = 0;
  running = ready_.front();
  ready_.pop_front();
  simt_thread_index = running->index;
  if (running->fiber != &from) Fiber::pass(from, *running->fiber);
}

// All that the threads of one place in a block do, block after block.
void Machine::run_threads() {
  for (;;) {
    Thread& self = *running;
    listens = true;
    grid_->call(grid_->parameters);
    listens = false;
    finish_thread(self);
    pass_on(*self.fiber);
  }
}

// Whoever has returned keeps nobody waiting.
void Machine::finish_thread(Thread& thread) {
  thread.state = State::done;
  --live_;
  Warp& warp = warp_of(thread);
  --warp.live;
  settle(warp, thread.number / warp_width * warp_width);
  settle_barrier();
}

void Machine::arrive_at_barrier(const Site& site) {
  Thread& self = *running;
  self.site = site;
  self.state = State::at_barrier;
  ++at_barrier_;
  settle_barrier();
  pass_on(*self.fiber);
}

void Machine::settle_barrier() {
  if (at_barrier_ == 0 || at_barrier_ != live_) return;
  at_barrier_ = 0;
  const Site* site = nullptr;
  for (int i = 0; i < count_; ++i) {
    Thread& thread = threads_[static_cast<std::size_t>(i)];
    if (thread.state != State::at_barrier) continue;
    if (site && thread.waits_elsewhere(*site))
      failure_ = "threads wait at different barriers: " + where_they_wait();
    site = &thread.site;
  }
  for (int i = 0; i < count_; ++i) {
    Thread& thread = threads_[static_cast<std::size_t>(is_reversed_ ? count_ - 1 - i : i)];
    if (thread.state != State::at_barrier) continue;
    thread.state = State::ready;
    ready_.push_back(&thread);
  }
  ++interval_;
}

std::uint64_t Machine::exchange(Exchange what, std::uint64_t value, int operand, const Site& site) {
  Thread& self = *running;
  self.exchange = what;
  self.value = value;
  self.operand = operand;
  self.site = site;
  self.state = State::in_exchange;
  Warp& warp = warp_of(self);
  ++warp.waiting;
  settle(warp, self.number / warp_width * warp_width);
  pass_on(*self.fiber);
  return self.value;
}

// Ends an exchange that all lanes take part in.
void Machine::settle(Warp& warp, int first) {
  if (warp.waiting == 0 || warp.waiting != warp.live) return;
  warp.waiting = 0;
  const int end = std::min(first + warp_width, count_);
  std::uint64_t results[warp_width] = {};
  const Thread* other = nullptr;
  for (int i = first; i < end; ++i) {
    const Thread& thread = threads_[static_cast<std::size_t>(i)];
    if (thread.state == State::done) continue;
    if (other && other->exchange != thread.exchange)
      failure_ = "lanes of a warp wait for different things: " + where_they_wait();
    other = &thread;
    if (!failure_) results[i - first] = result_of(thread, first);
  }
  if (other->exchange == Exchange::work && !failure_) do_work_of_warp(warp, first);
  if (other->exchange == Exchange::barrier) ++warp.step;
  for (int i = first; i < end; ++i) {
    Thread& thread = threads_[static_cast<std::size_t>(i)];
    if (thread.state == State::done) continue;
    thread.value = results[i - first];
    thread.state = State::ready;
    ready_.push_back(&thread);
  }
}

// All lanes wait for the same work, and none has returned.
void Machine::do_work_of_warp(const Warp& warp, int first) {
  void* of_lanes[warp_width] = {};
  const Thread& some = threads_[static_cast<std::size_t>(first)];
  for (int i = 0; i < std::min(warp_width, count_ - first); ++i) {
    const Thread& thread = threads_[static_cast<std::size_t>(first + i)];
    of_lanes[i] = reinterpret_cast<void*>(thread.value);
    if (thread.work != some.work || thread.waits_elsewhere(some.site))
      failure_ = "lanes of a warp wait for different work: " + where_they_wait();
  }
  if (warp.live != warp_width)
    failure_ = fmt::format("{} of {} lanes take part in {}", warp.live, warp_width,
                           name_of(Exchange::work));
  if (!failure_) some.work(of_lanes);
}

std::uint64_t Machine::result_of(const Thread& thread, int first) const {
  switch (thread.exchange) {
    case Exchange::barrier:
    case Exchange::work:
      return 0;
    case Exchange::shuffle:
      return lane_of(thread, first, thread.operand).value;
    case Exchange::shuffle_xor:
      return lane_of(thread, first, (thread.number - first) ^ thread.operand).value;
    case Exchange::ballot:
      break;
  }
  std::uint64_t bits = 0;
  for (int i = first; i < std::min(first + warp_width, count_); ++i) {
    const Thread& lane = threads_[static_cast<std::size_t>(i)];
    if (lane.state != State::done && lane.value != 0) bits |= std::uint64_t{1} << (i - first);
  }
  return bits;
}

// The lane that another asks for its value; the one that asks if there is none, which is a failure.
const Thread& Machine::lane_of(const Thread& asking, int first, int lane) const {
  auto& failure = const_cast<Machine*>(this)->failure_;
  const bool is_lane = lane >= 0 && lane < warp_width && first + lane < count_;
  const Thread* const asked = is_lane ? &threads_[static_cast<std::size_t>(first + lane)] : nullptr;
  if (asked && asked->state != State::done) return *asked;
  failure =
      fmt::format("thread {} asks lane {} for its value, {}, at {}", asking.number, lane,
                  is_lane ? "which has returned" : "of which there is none", place_of(asking.site));
  return asking;
}

std::string Machine::where_they_wait() const {
  std::map<std::string, std::vector<int>> waiting;
  for (int i = 0; i < count_; ++i) {
    const Thread& thread = threads_[static_cast<std::size_t>(i)];
    if (thread.state == State::at_barrier)
      waiting["a barrier at " + place_of(thread.site)].push_back(i);
    if (thread.state == State::in_exchange)
      waiting[fmt::format("{} at {}", name_of(thread.exchange), place_of(thread.site))].push_back(
          i);
  }
  std::string text;
  for (const auto& [what, who] : waiting)
    text += fmt::format("{}{} threads from {} on at {}", text.empty() ? "" : ", ", who.size(),
                        who.front(), what);
  return text;
}

// Ends the running thread, which does not go on.
void Machine::fail(const std::string& what) {
  if (!running) throw Fault("{}", what);
  failure_ = fmt::format("thread {} of block ({}, {}, {}) of {} threads {}", running->number,
                         simt_block_index.x, simt_block_index.y, simt_block_index.z, count_, what);
  pass_on(*running->fiber);
  std::abort();  // it is never resumed
}

void Machine::give_up() {
  for (const auto& fiber : fibers_) fiber->abandon();
  ready_.clear();
  running = nullptr;
  grid_ = nullptr;
  throw Fault("{}", *std::exchange(failure_, std::nullopt));
}

Moment Machine::now() const {
  const auto warp = static_cast<std::size_t>(running->number / warp_width);
  return {block_, interval_, warps_[warp].step, static_cast<std::uint16_t>(running->number)};
}

void Machine::touch(std::uintptr_t address, std::size_t bytes, Access access) {
  if (running->fiber->has_on_stack(address)) return;
  if (++accesses_ > most_accesses) fail("goes on and on");
  if (access == Access::volatile_read && ++looks_ > most_looks)
    fail("waits for what nobody writes while it does");
  const bool writes = access == Access::write || access == Access::atomic;
  const Region* const region = memory.find(address, bytes, writes);
  if (!region)
    fail(fmt::format("{} {} bytes out of bounds, at {}", writes ? "writes" : "reads", bytes,
                     memory.describe(address)));
  if (region->is_device && !running->may_touch_memory) fail("touches memory before begin_kernel()");
  if (!region->shadow.words) return;
  if (region->is_device) {
    if (access == Access::write) judge.order.stored();
    if (access == Access::atomic) judge.order.meet(address, true);
    if (access == Access::volatile_read) judge.order.meet(address, false);
  }
  const char* const wrong =
      judge.judge(region->shadow, address - region->begin, bytes, region->is_shared, access, now());
  if (wrong)
    fail(fmt::format("{}: byte {} of the {} of {}", wrong, address - region->begin,
                     region->end - region->begin, region->name));
}

// Made by the first who needs it, and there until the process ends.
Machine* the_machine = nullptr;
Machine& machine() {
  if (!the_machine) the_machine = new Machine;
  return *the_machine;
}

void run_threads() { machine().run_threads(); }

}  // namespace

void run(const Grid& grid) { machine().run(grid); }
void allow_shared_memory(const void* kernel, std::size_t bytes) {
  if (bytes > most_shared_bytes)
    throw Fault("{} bytes of shared memory, more than a block can have", bytes);
  machine().shared_bytes[kernel] = bytes;
}

void sync_block(const Site& site) {
  const Aside aside;
  machine().arrive_at_barrier(site);
}
std::uint64_t exchange(Exchange what, std::uint64_t value, int operand, const Site& site) {
  const Aside aside;
  return machine().exchange(what, value, operand, site);
}
void work_together(void (*work)(void* const* of_lanes), void* of_lane, const Site& site) {
  const Aside aside;
  machine().running->work = work;
  machine().exchange(Exchange::work, reinterpret_cast<std::uint64_t>(of_lane), 0, site);
}
void fence() {
  const Aside aside;
  machine().judge.order.fence();
}
void wait_for_launches_before() { machine().running->may_touch_memory = true; }

void touch(const void* place, std::size_t bytes, std::size_t alignment, Access access) {
  if (!listens) return;
  const Aside aside;
  const auto address = reinterpret_cast<std::uintptr_t>(place);
  if ((address & (alignment - 1)) != 0)  // a power of 2: this is asked at every access
    the_machine->fail(fmt::format("touches {} misaligned bytes", bytes));
  the_machine->touch(address, bytes, access);
}
void fail_at_index(std::uintptr_t index) {
  if (!listens) std::abort();  // of the host
  const Aside aside;
  the_machine->fail(fmt::format("takes element {} of an array that has fewer",
                                static_cast<std::intptr_t>(index)));
}

int add_atomically(int* place, int more) {
  touch(place, sizeof *place, sizeof *place, Access::atomic);
  const int before = *place;
  *place = before + more;
  return before;
}
unsigned add_atomically(unsigned* place, unsigned more) {
  touch(place, sizeof *place, sizeof *place, Access::atomic);
  const unsigned before = *place;
  *place = before + more;
  return before;
}
unsigned count_atomically(unsigned* place, unsigned last) {
  touch(place, sizeof *place, sizeof *place, Access::atomic);
  const unsigned before = *place;
  *place = before >= last ? 0 : before + 1;
  return before;
}
void copy(void* to, const void* from, std::size_t bytes, std::size_t zeros) {
  if (zeros < bytes) touch(from, bytes - zeros, bytes, Access::read);
  touch(to, bytes, bytes, Access::write);
  std::memcpy(to, from, bytes - zeros);
  std::memset(static_cast<std::byte*>(to) + (bytes - zeros), 0, zeros);
}

std::byte* allocate(std::size_t bytes) { return machine().memory.allocate(bytes); }
void deallocate(void* memory) { machine().memory.deallocate(memory); }
void note_written(const void* memory, std::size_t bytes) {
  machine().memory.note_written(memory, bytes);
}
void keep(const void* memory) { machine().memory.keep(memory); }
OperandsOnly::OperandsOnly(const std::vector<Operand>& operands) {
  machine().memory.allow_operands_only(operands);
}
OperandsOnly::~OperandsOnly() { machine().memory.allow_all(); }
const Counts& counts() { return machine().counts; }

}  // namespace ridge::simt
