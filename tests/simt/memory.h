#pragma once

// The memory that kernels may touch, and what is known of it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/simt/machine.h"
#include "tests/simt/shadow.h"

namespace ridge::simt {

// Part of the address space.
struct Region {
  std::uintptr_t begin = 0, end = 0;
  Shadow shadow = {};  // without cells: nobody writes it, and all of it is written
  bool is_shared = false, is_device = false, is_writable = false;
  std::string name = {};

  bool has(std::uintptr_t address, std::size_t bytes) const {
    return address >= begin && address < end && bytes <= end - address;
  }
};

// The cells of so many bytes, zeroed; only the pages that are touched are there.
class Cells {
 public:
  explicit Cells(std::size_t bytes);
  ~Cells();
  Cells(const Cells&) = delete;
  Cells& operator=(const Cells&) = delete;
  const Shadow& shadow() const { return shadow_; }

 private:
  Shadow shadow_;
  std::size_t size_;  // of the mapping
};

class Memory {
 public:
  Memory();

  std::byte* allocate(std::size_t bytes);
  void deallocate(void* memory);
  void note_written(const void* memory, std::size_t bytes);
  void keep(const void* memory);
  void allow_operands_only(const std::vector<Operand>& operands);
  void allow_all();

  // These are for the launch that follows.
  void set_parameters(const void* parameters, std::size_t bytes);
  void set_dynamic_shared(std::size_t bytes);

  // The region that holds all these bytes; null if none does.
  const Region* find(std::uintptr_t address, std::size_t bytes, bool writes);
  // Where an address lies that is in no region that may be touched so.
  std::string describe(std::uintptr_t address) const;

 private:
  struct Block {
    Block(std::unique_ptr<std::byte[]> memory, std::size_t count)
        : bytes(std::move(memory)), size(count), cells(count) {}

    std::unique_ptr<std::byte[]> bytes;
    std::size_t size;
    Cells cells;
    bool is_kept = false;
  };
  // Error where it is none of the device's.
  Block& block_of(std::uintptr_t address) const;
  Shadow shadow_of(std::uintptr_t address) const;
  void add_device_region(std::uintptr_t begin, std::size_t bytes, const Shadow& shadow,
                         bool is_writable, const char* name);

  std::map<std::uintptr_t, std::unique_ptr<Block>> blocks_;  // by where their memory begins
  Region dynamic_, shared_, parameters_, constant_;
  std::unique_ptr<Cells> dynamic_cells_, shared_cells_;
  bool operands_only_ = false;
  std::vector<Region> device_;
  std::size_t last_ = 0;  // the one in device_ that was found last
};

}  // namespace ridge::simt
