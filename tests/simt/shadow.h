#pragma once

// What is known of each byte of memory that kernels may touch: who wrote it and who read it last,
// and so whether an access is in order after those before it.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ridge::simt {

// A thread, and how far it has come. Blocks are numbered through all launches. Barriers of the
// block cut its time into intervals, those of the warp an interval into steps.
struct Moment {
  std::uint32_t block = 0, interval = 0, step = 0;
  std::uint16_t thread = 0;
};

// Who touched a byte last.
struct Touch {
  enum Kind : std::uint16_t {
    plain,
    atomic,
    atomics,   // of several threads of the block
    of_warp,   // several threads of the warp have read it
    of_block,  // threads of several warps have
    split,     // of a word: what is known of it stands with its bytes
  };
  Moment at;
  std::uint16_t kind = plain;
};

struct Cell {
  Touch write, read;  // of block 0: nobody has
};

// The cells of an allocation, from one of its bytes on. Most bytes are touched with those of the
// same word, so that words of four bytes have a cell each, and bytes cells of their own only once
// some of a word were touched alone.
struct Shadow {
  static constexpr std::size_t word = 4;
  Cell *words = nullptr, *bytes = nullptr;  // of the allocation
  std::size_t first = 0;

  Shadow from(std::size_t offset) const { return {words, bytes, first + offset}; }
  // The cells of a word's bytes, which have cells of their own from now on.
  Cell* split(std::size_t number) const;
  // Makes the first `count` bytes known as that.
  void fill(std::size_t count, const Cell& cell) const;
};

// A volatile read is in order after an atomic write, whenever that was.
enum class Access : std::uint8_t { read, volatile_read, write, atomic };

// Moments of blocks of the host: before any kernel.
inline constexpr std::uint32_t by_host = 1, first_block = 2;

// The order between the blocks of one launch: there is none but by atomic accesses with a fence on
// both sides of them. They run one after the other, so that what a block has seen is a set of
// earlier ones.
class BlockOrder {
 public:
  void begin_launch(std::uint32_t first) { first_ = first, released_.clear(); }
  void begin_block(std::uint32_t block);
  // The block stored to memory of the device: a fence before it orders no more.
  void stored() { is_fenced_ = false; }
  void fence();
  void meet(std::uintptr_t address, bool releases);

  // Whether all that another block did, before it let go, is before what this one does now.
  bool has_seen(std::uint32_t other) const;

 private:
  using Blocks = std::vector<bool>;
  struct Released {
    std::uintptr_t address;
    Blocks blocks;
  };
  static void add(Blocks& to, const Blocks& more);

  std::uint32_t first_ = first_block, block_ = 0;  // of the launch; the present one
  bool is_fenced_ = true;
  Blocks seen_, unfenced_;  // unfenced: met, and seen after the next fence
  std::vector<Released> released_;
};

// Judges accesses. Of several blocks that read a byte only the last is remembered, and a block that
// has let go once counts as ordered in all that it does: some faults between blocks are not found,
// but none is made up.
class Judge {
 public:
  BlockOrder order;
  int warp_width = 32;

  // What is wrong with an access to bytes [begin, begin + count) of some memory; nothing if it is
  // in order. The access is noted. Shared memory holds nothing at the beginning of a block.
  const char* judge(const Shadow& shadow, std::size_t begin, std::size_t count, bool is_shared,
                    Access access, const Moment& now) const;

 private:
  const char* judge_cells(Cell* cells, std::size_t count, bool is_shared, Access access,
                          const Moment& now) const;
  int warp_of(const Moment& moment) const;
  bool is_before(const Touch& touch, const Moment& now) const;
  const char* judge_read(Cell& cell, bool is_shared, Access access, const Moment& now) const;
  const char* judge_write(Cell& cell, bool is_shared, Access access, const Moment& now) const;
  void note_read(Touch& read, const Moment& now) const;
};

}  // namespace ridge::simt
