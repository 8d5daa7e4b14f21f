#include "ridge/trace/align.h"

#include <algorithm>
#include <optional>

namespace ridge::trace {
namespace {

using Symbols = std::span<const std::uint32_t>;
using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;
using Place = std::ptrdiff_t;

// After so many edits the way that has come farthest is taken, and the search begins anew there.
constexpr Place most_edits = 128;

// One search from the begin of both sequences. A diagonal k holds the places with k = (place in a)
// - (place in b); its entry is how far in a the ways on it have come, or -1 if there is none.
class Search {
 public:
  Search(Symbols a, Symbols b)
      : a_(a),
        b_(b),
        size_a_(std::ssize(a)),
        size_b_(std::ssize(b)),
        row_(2 * most_edits + 3, -1) {}

  // Adds pairs to `pairs`, with the places where these sequences begin; returns how far in a and b
  // it has come.
  std::pair<std::size_t, std::size_t> run(Pairs& pairs, std::size_t begin_a, std::size_t begin_b);

 private:
  struct Step {
    Place x;     // where in a it arrives
    Place from;  // the diagonal that it comes from
  };

  Place& far(Place k) { return row_[static_cast<std::size_t>(k + most_edits + 1)]; }
  std::optional<Step> step_to(Place k);
  bool extend(Place edits);

  Symbols a_, b_;
  Place size_a_, size_b_;
  std::vector<Place> row_;
  std::vector<std::vector<Place>> rows_;  // row_ before each number of edits
};

// The edit by which a way comes farthest on a diagonal: over a symbol of a, or over one of b.
std::optional<Search::Step> Search::step_to(Place k) {
  std::optional<Step> best;
  if (const Place x = far(k - 1); x >= 0 && x < size_a_) best = Step{x + 1, k - 1};
  if (const Place x = far(k + 1); x >= 0 && x - k <= size_b_ && (!best || x > best->x))
    best = Step{x, k + 1};
  return best;
}

// Takes one edit more on each diagonal; true if the ends of both sequences are reached.
bool Search::extend(Place edits) {
  rows_.push_back(row_);
  for (Place k = -edits; k <= edits; k += 2) {
    const std::optional<Step> step = edits == 0 ? Step{0, 0} : step_to(k);
    far(k) = -1;
    if (!step) continue;
    Place x = step->x;
    while (x < size_a_ && x - k < size_b_ &&
           a_[static_cast<std::size_t>(x)] == b_[static_cast<std::size_t>(x - k)])
      ++x;
    far(k) = x;
    if (x == size_a_ && x - k == size_b_) return true;
  }
  return false;
}

std::pair<std::size_t, std::size_t> Search::run(Pairs& pairs, std::size_t begin_a,
                                                std::size_t begin_b) {
  Place edits = 0;
  while (!extend(edits) && edits < most_edits) ++edits;
  Place k = edits % 2;  // of the way that has come farthest in both
  for (Place other = -edits; other <= edits; other += 2)
    if (far(other) >= 0 && (far(k) < 0 || 2 * far(other) - other > 2 * far(k) - k)) k = other;
  const Place end_a = far(k), end_b = far(k) - k;
  const std::size_t first = pairs.size();
  for (Place x = end_a; edits >= 0; --edits) {
    row_ = std::move(rows_[static_cast<std::size_t>(edits)]);
    const Step step = edits == 0 ? Step{0, 0} : *step_to(k);
    for (; x > step.x; --x)
      pairs.emplace_back(begin_a + static_cast<std::size_t>(x - 1),
                         begin_b + static_cast<std::size_t>(x - k - 1));
    if (edits == 0) break;
    k = step.from;
    x = far(k);
  }
  std::reverse(pairs.begin() + static_cast<std::ptrdiff_t>(first), pairs.end());
  return {static_cast<std::size_t>(end_a), static_cast<std::size_t>(end_b)};
}

Pairs aligned_shared(Symbols a, Symbols b) {
  std::size_t same_end = 0;
  while (same_end < std::min(a.size(), b.size()) &&
         a[a.size() - 1 - same_end] == b[b.size() - 1 - same_end])
    ++same_end;
  a = a.first(a.size() - same_end);
  b = b.first(b.size() - same_end);
  Pairs pairs;
  std::size_t at_a = 0, at_b = 0;
  const auto both_left = [&] { return at_a < a.size() && at_b < b.size(); };
  while (both_left()) {
    for (; both_left() && a[at_a] == b[at_b]; ++at_a, ++at_b) pairs.emplace_back(at_a, at_b);
    if (!both_left()) break;
    const auto [more_a, more_b] = Search(a.subspan(at_a), b.subspan(at_b)).run(pairs, at_a, at_b);
    at_a += more_a;
    at_b += more_b;
  }
  for (std::size_t i = 0; i < same_end; ++i) pairs.emplace_back(a.size() + i, b.size() + i);
  return pairs;
}

// Places of the symbols that the other sequence has too: no others can be paired.
std::vector<std::size_t> shared_places(Symbols of, const std::vector<bool>& other) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < of.size(); ++i)
    if (of[i] < other.size() && other[of[i]]) places.push_back(i);
  return places;
}

std::vector<bool> set_of(Symbols symbols) {
  std::vector<bool> set(symbols.empty() ? 0 : std::size_t{*std::ranges::max_element(symbols)} + 1);
  for (const std::uint32_t symbol : symbols) set[symbol] = true;
  return set;
}

std::vector<std::uint32_t> at_places(Symbols symbols, const std::vector<std::size_t>& places) {
  std::vector<std::uint32_t> chosen;
  chosen.reserve(places.size());
  for (const std::size_t place : places) chosen.push_back(symbols[place]);
  return chosen;
}

}  // namespace

Pairs aligned(Symbols a, Symbols b) {
  const std::vector<std::size_t> places_a = shared_places(a, set_of(b)),
                                 places_b = shared_places(b, set_of(a));
  Pairs pairs = aligned_shared(at_places(a, places_a), at_places(b, places_b));
  for (auto& [at_a, at_b] : pairs) {
    at_a = places_a[at_a];
    at_b = places_b[at_b];
  }
  return pairs;
}

}  // namespace ridge::trace
