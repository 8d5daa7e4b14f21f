#include "tests/simt/shadow.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ridge::simt {

void BlockOrder::add(Blocks& to, const Blocks& more) {
  if (to.size() < more.size()) to.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i)
    if (more[i]) to[i] = true;
}

void BlockOrder::begin_block(std::uint32_t block) {
  block_ = block;
  is_fenced_ = true;
  seen_.clear();
  unfenced_.clear();
}

void BlockOrder::fence() {
  is_fenced_ = true;
  add(seen_, unfenced_);
  unfenced_.clear();
}

void BlockOrder::meet(std::uintptr_t address, bool releases) {
  auto place = std::ranges::find(released_, address, &Released::address);
  if (place == released_.end()) {
    if (!releases) return;
    place = released_.insert(place, {address, {}});
  }
  add(unfenced_, place->blocks);
  if (!releases || !is_fenced_) return;
  Blocks own = seen_;
  own.resize(std::max<std::size_t>(own.size(), block_ - first_ + 1));
  own[block_ - first_] = true;
  add(place->blocks, own);
}

bool BlockOrder::has_seen(std::uint32_t other) const {
  if (other < first_) return true;
  const std::size_t i = other - first_;
  return i < seen_.size() && seen_[i];
}

bool Judge::is_before(const Touch& touch, const Moment& now) const {
  if (touch.at.block != now.block) return order.has_seen(touch.at.block);
  if (touch.at.interval != now.interval) return true;
  if (touch.kind == Touch::of_block || touch.kind == Touch::atomics) return false;
  if (touch.kind != Touch::of_warp && touch.at.thread == now.thread) return true;
  return warp_of(touch.at) == warp_of(now) && touch.at.step != now.step;
}

// A shift: this is asked at every access.
int Judge::warp_of(const Moment& moment) const {
  return moment.thread >> std::countr_zero(static_cast<unsigned>(warp_width));
}

void Judge::note_read(Touch& read, const Moment& now) const {
  const bool same_time = read.at.block == now.block && read.at.interval == now.interval;
  if (!same_time || (read.kind == Touch::plain && read.at.thread == now.thread)) {
    read = {now, Touch::plain};
    return;
  }
  if (read.kind == Touch::of_block) return;
  if (warp_of(read.at) != warp_of(now))
    read.kind = Touch::of_block;
  else
    read = {now, read.at.step == now.step ? Touch::of_warp : Touch::plain};
}

namespace {

// Nobody has written it; in shared memory, not since the block began.
bool is_unwritten(const Cell& cell, bool is_shared, const Moment& now) {
  return cell.write.at.block == 0 || (is_shared && cell.write.at.block != now.block);
}

bool is_split(const Cell& word) { return word.write.kind == Touch::split; }

bool is_atomic(const Touch& touch) {
  return touch.kind == Touch::atomic || touch.kind == Touch::atomics;
}

}  // namespace

const char* Judge::judge_read(Cell& cell, bool is_shared, Access access, const Moment& now) const {
  if (is_unwritten(cell, is_shared, now)) return "reads what nobody has written";
  const bool in_order =
      is_before(cell.write, now) || (access == Access::volatile_read && is_atomic(cell.write));
  note_read(cell.read, now);
  return in_order ? nullptr : "reads what another thread writes, with no barrier between them";
}

const char* Judge::judge_write(Cell& cell, bool is_shared, Access access, const Moment& now) const {
  if (access == Access::atomic && is_unwritten(cell, is_shared, now))
    return "changes what nobody has written";
  const auto follows = [&](const Touch& touch) {
    if (touch.at.block == 0 || (is_shared && touch.at.block != now.block)) return true;
    return is_before(touch, now);
  };
  const bool both_atomic = access == Access::atomic && is_atomic(cell.write);
  const bool after_write = both_atomic || follows(cell.write), after_read = follows(cell.read);
  const Moment& last = cell.write.at;
  const bool several = both_atomic && last.block == now.block && last.interval == now.interval &&
                       (last.thread != now.thread || cell.write.kind == Touch::atomics);
  cell.write = {now, access != Access::atomic ? Touch::plain
                     : several                ? Touch::atomics
                                              : Touch::atomic};
  if (!after_write) return "writes what another thread writes, with no barrier between them";
  if (!after_read) return "writes what another thread reads, with no barrier between them";
  return nullptr;
}

const char* Judge::judge_cells(Cell* cells, std::size_t count, bool is_shared, Access access,
                               const Moment& now) const {
  const bool reads = access == Access::read || access == Access::volatile_read;
  for (std::size_t i = 0; i < count;) {
    const Cell before = cells[i];
    const char* const wrong = reads ? judge_read(cells[i], is_shared, access, now)
                                    : judge_write(cells[i], is_shared, access, now);
    if (wrong) return wrong;
    // What was the same is the same again: most cells are touched with their neighbors.
    const Cell after = cells[i];
    for (++i; i < count && std::memcmp(&cells[i], &before, sizeof before) == 0; ++i)
      cells[i] = after;
  }
  return nullptr;
}

const char* Judge::judge(const Shadow& shadow, std::size_t begin, std::size_t count, bool is_shared,
                         Access access, const Moment& now) const {
  constexpr std::size_t word = Shadow::word;
  const std::size_t end = shadow.first + begin + count;
  for (std::size_t i = shadow.first + begin; i < end;) {
    Cell* const cell = &shadow.words[i / word];
    const std::size_t next = std::min(end, (i / word + 1) * word);
    const bool is_whole = next - i == word;
    std::size_t words = 0;  // whole ones from here on
    if (is_whole)
      while (i + (words + 1) * word <= end && !is_split(cell[words])) ++words;
    if (words > 0) {
      if (const char* wrong = judge_cells(cell, words, is_shared, access, now)) return wrong;
      i += words * word;
      continue;
    }
    Cell* const bytes = shadow.split(i / word);
    const char* const wrong = judge_cells(bytes + i % word, next - i, is_shared, access, now);
    if (wrong) return wrong;
    if (is_whole && std::memcmp(bytes, bytes + 1, (word - 1) * sizeof *bytes) == 0)
      *cell = *bytes;  // they are one again
    i = next;
  }
  return nullptr;
}

Cell* Shadow::split(std::size_t number) const {
  Cell* const first = bytes + number * word;
  if (!is_split(words[number])) std::fill_n(first, word, words[number]);
  words[number].write.kind = Touch::split;
  return first;
}

void Shadow::fill(std::size_t count, const Cell& cell) const {
  for (std::size_t i = first, end = first + count; i < end;) {
    const std::size_t next = std::min(end, (i / word + 1) * word);
    if (next - i == word)
      words[i / word] = cell;
    else
      std::fill_n(split(i / word) + i % word, next - i, cell);
    i = next;
  }
}

}  // namespace ridge::simt
