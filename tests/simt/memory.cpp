#include "tests/simt/memory.h"

#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "tests/simt/language.h"

// The linker gives these: where the program and its data begin.
extern "C" const char __executable_start[], __data_start[];

namespace ridge::gpu {

thread_local uint4 dynamic_memory[simt::most_shared_bytes / sizeof(uint4)];

}  // namespace ridge::gpu

namespace ridge::simt {
namespace {

std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

// Where the program's own thread_local variables are, the __shared__ ones of its kernels among
// them.
Region thread_locals() {
  Region found{.is_shared = true, .is_writable = true, .name = "shared memory"};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        auto& region = *static_cast<Region*>(to);
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_TLS) {
            region.begin = address_of(info->dlpi_tls_data);
            region.end = region.begin + info->dlpi_phdr[i].p_memsz;
          }
        return 1;  // the first is the program itself
      },
      &found);
  return found;
}

}  // namespace

// Cells of words, then those of bytes.
Cells::Cells(std::size_t bytes) {
  const std::size_t words = bytes / Shadow::word + 1;
  size_ = words * (1 + Shadow::word) * sizeof(Cell);
  void* const memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  shadow_.words = static_cast<Cell*>(memory);
  shadow_.bytes = shadow_.words + words;
}

Cells::~Cells() { munmap(shadow_.words, size_); }

Memory::Memory()
    : dynamic_{.begin = address_of(gpu::dynamic_memory),
               .end = address_of(gpu::dynamic_memory),
               .is_shared = true,
               .is_writable = true,
               .name = "dynamic shared memory"},
      shared_(thread_locals()),
      constant_{.begin = address_of(__executable_start), .end = address_of(__data_start)} {
  dynamic_cells_ = std::make_unique<Cells>(most_shared_bytes);
  shared_cells_ = std::make_unique<Cells>(shared_.end - shared_.begin);
  dynamic_.shadow = dynamic_cells_->shadow();
  shared_.shadow = shared_cells_->shadow();
}

std::byte* Memory::allocate(std::size_t bytes) {
  // Where it begins all kernels' packs are aligned; where it ends nothing is left over.
  constexpr std::size_t alignment = 256;
  auto memory = std::make_unique<std::byte[]>(bytes + alignment);
  const std::uintptr_t begin = (address_of(memory.get()) + alignment - 1) / alignment * alignment;
  blocks_[begin] = std::make_unique<Block>(std::move(memory), bytes);
  if (!operands_only_) allow_all();
  return reinterpret_cast<std::byte*>(begin);
}

void Memory::deallocate(void* memory) {
  blocks_.erase(address_of(memory));
  if (!operands_only_) allow_all();
}

Memory::Block& Memory::block_of(std::uintptr_t address) const {
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin() ||
      address - std::prev(after)->first >= std::max<std::size_t>(1, std::prev(after)->second->size))
    throw Error("{:#x} is no memory of the device", address);
  return *std::prev(after)->second;
}

Shadow Memory::shadow_of(std::uintptr_t address) const {
  const auto begin = std::prev(blocks_.upper_bound(address))->first;
  return block_of(address).cells.shadow().from(address - begin);
}

void Memory::note_written(const void* memory, std::size_t bytes) {
  if (bytes == 0) return;
  shadow_of(address_of(memory)).fill(bytes, {.write = {.at = {.block = by_host}}, .read = {}});
}

void Memory::keep(const void* memory) { block_of(address_of(memory)).is_kept = true; }

void Memory::allow_all() {
  operands_only_ = false;
  last_ = 0;
  device_.clear();
  for (const auto& [begin, block] : blocks_)
    add_device_region(begin, block->size, block->cells.shadow(), true, "memory");
}

void Memory::allow_operands_only(const std::vector<Operand>& operands) {
  allow_all();
  operands_only_ = true;
  device_.clear();
  for (const auto& [begin, block] : blocks_)
    if (block->is_kept)
      add_device_region(begin, block->size, block->cells.shadow(), true, "a table");
  for (const Operand& operand : operands) {
    if (operand.bytes == 0) continue;
    const std::uintptr_t begin = address_of(operand.data);
    Shadow shadow = shadow_of(begin);
    if (!operand.is_written) shadow.fill(operand.bytes, {});
    // What is only read is in order, and most accesses are to it.
    if (operand.is_written && !operand.is_result) shadow = {};
    add_device_region(begin, operand.bytes, shadow, operand.is_result, operand.name);
  }
}

void Memory::add_device_region(std::uintptr_t begin, std::size_t bytes, const Shadow& shadow,
                               bool is_writable, const char* name) {
  device_.push_back({.begin = begin,
                     .end = begin + bytes,
                     .shadow = shadow,
                     .is_device = true,
                     .is_writable = is_writable,
                     .name = name});
}

void Memory::set_parameters(const void* parameters, std::size_t bytes) {
  parameters_.begin = address_of(parameters);
  parameters_.end = parameters_.begin + bytes;
}

void Memory::set_dynamic_shared(std::size_t bytes) { dynamic_.end = dynamic_.begin + bytes; }

const Region* Memory::find(std::uintptr_t address, std::size_t bytes, bool writes) {
  if (last_ < device_.size()) {
    const Region& last = device_[last_];
    if (last.has(address, bytes) && (!writes || last.is_writable)) return &last;
  }
  if (dynamic_.has(address, bytes)) return &dynamic_;
  if (address - dynamic_.begin < most_shared_bytes) return nullptr;  // beyond what was asked for
  if (shared_.has(address, bytes)) return &shared_;
  for (last_ = 0; last_ < device_.size(); ++last_) {
    const Region& region = device_[last_];
    if (region.has(address, bytes) && (!writes || region.is_writable)) return &region;
  }
  if (writes) return nullptr;
  if (parameters_.has(address, bytes)) return &parameters_;
  return constant_.has(address, bytes) ? &constant_ : nullptr;
}

std::string Memory::describe(std::uintptr_t address) const {
  if (address - dynamic_.begin < most_shared_bytes)
    return fmt::format("byte {} of the {} of dynamic shared memory", address - dynamic_.begin,
                       dynamic_.end - dynamic_.begin);
  if (parameters_.has(address, 1)) return "a parameter";
  const Region* nearest = nullptr;
  std::uintptr_t distance = 0;
  for (const Region& region : device_) {
    const std::uintptr_t far = address < region.begin ? region.begin - address
                               : address < region.end ? 0
                                                      : address - region.end + 1;
    if (!nearest || far < distance) nearest = &region, distance = far;
  }
  if (!nearest) return "memory that is not the device's";
  return fmt::format("byte {} of the {} of {}",
                     static_cast<std::ptrdiff_t>(address - nearest->begin),
                     nearest->end - nearest->begin, nearest->name);
}

}  // namespace ridge::simt
