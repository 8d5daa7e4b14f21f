#include "ridge/trace/trace.h"

namespace ridge::trace {
namespace {

template <class T>
void append_to(std::vector<T>& column, const std::vector<T>& rows) {
  column.insert(column.end(), rows.begin(), rows.end());
}

// Calls f(column of a, the same column of b) for each column.
template <class A, class B, class F>
void each_column(A& a, B& b, const F& f) {
  f(a.kind, b.kind);
  f(a.name, b.name);
  f(a.track, b.track);
  f(a.begin_ns, b.begin_ns);
  f(a.duration_ns, b.duration_ns);
  f(a.correlation, b.correlation);
  f(a.external, b.external);
  f(a.bytes, b.bytes);
  f(a.shape, b.shape);
  f(a.types, b.types);
  f(a.values, b.values);
}

}  // namespace

TextPool::Id TextPool::add(std::string_view text) {
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  const auto id = static_cast<Id>(texts_.size());
  ids_.emplace(texts_.emplace_back(text), id);
  return id;
}

void EventColumns::append(const EventColumns& rows) {
  each_column(*this, rows, [](auto& column, const auto& more) { append_to(column, more); });
}

}  // namespace ridge::trace
