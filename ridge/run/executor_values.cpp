// What an executor's values hold: written by the host before a run, read after it.

#include <algorithm>
#include <array>
#include <cstring>

#include "ridge/base/error.h"
#include "ridge/base/part.h"
#include "ridge/base/random.h"
#include "ridge/cpu/device.h"
#include "ridge/run/executor.h"

namespace ridge {
namespace {

// While it lives, a tracer takes what is enqueued, such as copies, to be on behalf of a node,
// though no part of its runs.
class OnBehalf {
 public:
  template <class NodeOf>
  OnBehalf(Device& device, const NodeOf& node_of) : tracer_(device.tools().tracer()) {
    if (tracer_ && !tracer_->active()) tracer_ = nullptr;
    if (tracer_) tracer_->enter(node_of(), Activity::no_run);
  }
  ~OnBehalf() {
    if (tracer_) tracer_->leave();
  }
  OnBehalf(const OnBehalf&) = delete;
  OnBehalf& operator=(const OnBehalf&) = delete;

 private:
  Tracer* tracer_;
};

}  // namespace

void Executor::initialize(std::uint64_t seed) {
  ThreadPool pool(available_processors());  // the host's, whatever the device
  std::vector<float> host;
  for (ValueId id = 0; id < graph_.value_count(); ++id) {
    const ValueInfo& info = graph_.info(id);
    if (!graph_.outlives_runs(id) || !info.parts.empty() || info.role == Role::input) continue;
    if (info.copy_of != no_value) continue;  // written with what it repeats
    if (info.init.kind == Init::Kind::none) continue;
    if (info.init.kind == Init::Kind::values) {
      write_values(graph_.value(id), *info.init.values);
      continue;
    }
    if (info.type.dtype != DType::f32)
      throw UsageError("{} is {}, but only f32 values are initialized", info.name,
                       name_of(info.type.dtype));
    host.assign(static_cast<std::size_t>(info.type.numel()), info.init.value);
    if (info.init.kind == Init::Kind::normal) {
      const std::uint64_t stream = stream_of(info.name);
      parallel_for(pool, info.type.numel(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
        const auto first = static_cast<std::size_t>(begin);
        fill_normal(std::span(host).subspan(first, static_cast<std::size_t>(end - begin)),
                    info.init.value, seed, stream, first);
      });
    }
    write(graph_.value(id), std::span<const float>(host));
  }
}

void Executor::write_values(Value value, std::span<const float> values) {
  if (value.dtype() == DType::f32) return write(value, values);
  if (value.dtype() != DType::i32)
    throw UsageError("{} is {}, but only f32 and i32 values are initialized",
                     graph_.info(value.id).name, name_of(value.dtype()));
  const std::vector<std::int32_t> integers(values.begin(), values.end());
  write(value, std::span<const std::int32_t>(integers));
}

void Executor::write(Value value, std::span<const std::byte> data) {
  write(std::array{Feed{value, data}});
}

void Executor::write(std::span<const Feed> feeds) {
  struct Fed {
    std::byte* memory;
    std::span<const std::byte> data;
    std::byte* end;  // of what is its own, where another may begin
  };
  std::vector<Fed> pieces;
  for (const auto& [value, data] : feeds) {
    const ValueInfo& info = graph_.info(value.id);
    if (const auto whole = graph_.shared_out(value.id); whole && data.size() == info.type.bytes()) {
      const OwnPart own = own_part(value.id, *whole);
      if (own.bytes > 0) device_.upload(own.memory, data.data() + own.begin, own.bytes);
      continue;
    }
    auto* const memory = static_cast<std::byte*>(address(value.id));
    if (!memory || data.size() != info.type.bytes())
      throw UsageError("{} bytes cannot be written to {}, a {}", data.size(), info.name,
                       info.type.to_string());
    if (const auto halves = halves_of(value.id)) {
      write_halves(*halves, data);
      continue;
    }
    const bool padded = info.persistent && info.whole == no_value;
    pieces.push_back({memory, data, memory + (padded ? allocated_bytes(info.type) : data.size())});
  }
  std::ranges::sort(pieces, {}, &Fed::memory);
  const OnBehalf owner(device_, [&] { return first_reader(feeds); });
  std::vector<std::byte> joined;
  for (std::size_t i = 0, next = 0; i < pieces.size(); i = next) {
    for (next = i + 1; next < pieces.size() && pieces[next].memory == pieces[next - 1].end;) ++next;
    std::span<const std::byte> data = pieces[i].data;
    if (next > i + 1) {
      joined.clear();
      for (std::size_t j = i; j < next; ++j) {
        joined.resize(static_cast<std::size_t>(pieces[j].memory - pieces[i].memory));
        joined.insert(joined.end(), pieces[j].data.begin(), pieces[j].data.end());
      }
      data = joined;
    }
    device_.upload(pieces[i].memory, data.data(), data.size());
  }
  for (const auto& [value, data] : feeds) {
    write_copies(value.id, data);
    if (graph_.info(value.id).role != Role::input) wants_packing_ = true;
  }
}

NodeId Executor::first_reader(std::span<const Feed> feeds) const {
  for (NodeId n = 0; n < graph_.nodes().size(); ++n)
    for (const Feed& feed : feeds)
      if (std::ranges::count(graph_.nodes()[n].inputs, feed.value.id) > 0) return n;
  return no_node;
}

std::optional<Executor::Halves> Executor::halves_of(ValueId value) const {
  const ValueId storage = lifetimes_.storage[value];
  const TensorType& whole = graph_.info(storage).type;
  if (whole.dtype != DType::split_f32 || graph_.info(value).copy_of == storage) return std::nullopt;
  auto* const upper = static_cast<std::uint16_t*>(memory_[storage]);
  const std::size_t first = lifetimes_.offset[value] / sizeof(float);
  return Halves{upper + first, upper + whole.numel() + first};
}

void Executor::write_halves(const Halves& halves, std::span<const std::byte> data) {
  std::vector<float> floats(data.size() / sizeof(float));
  std::memcpy(floats.data(), data.data(), data.size());
  std::vector<std::uint16_t> upper(floats.size()), lower(floats.size());
  split_floats(floats, upper.data(), lower.data());
  device_.upload(halves.upper, upper.data(), data.size() / 2);
  device_.upload(halves.lower, lower.data(), data.size() / 2);
}

// What was written may be part of what is copied, or the other way round.
void Executor::write_copies(ValueId written, std::span<const std::byte> data) {
  const std::size_t begin = lifetimes_.offset[written], end = begin + data.size();
  for (const ValueId copy : copies_) {
    const ValueId original = graph_.info(copy).copy_of;
    if (lifetimes_.storage[original] != lifetimes_.storage[written]) continue;
    const std::size_t start = lifetimes_.offset[original];
    const std::size_t first = std::max(begin, start);
    const std::size_t last = std::min(end, start + graph_.info(original).type.bytes());
    if (first >= last) continue;
    std::vector<float> floats((last - first) / sizeof(float));
    std::memcpy(floats.data(), data.data() + (first - begin), last - first);
    const DType dtype = graph_.info(copy).type.dtype;
    std::vector<std::byte> rounded(floats.size() * size_of(dtype));
    store_floats(floats, dtype, rounded.data());
    const std::size_t before = (first - start) / sizeof(float) * size_of(dtype);
    device_.upload(static_cast<std::byte*>(address(copy)) + before, rounded.data(), rounded.size());
  }
}

Executor::OwnPart Executor::own_part(ValueId value, ValueId whole) const {
  const ValueInfo &all = graph_.info(whole), &asked = graph_.info(value);
  const std::size_t size = size_of(all.type.dtype);
  const std::size_t start = value == whole ? 0 : asked.offset;
  const std::size_t own = static_cast<std::size_t>(all.part.first) * size;
  const std::size_t first = std::max(start, own);
  const std::size_t last =
      std::min(start + asked.type.bytes(), own + static_cast<std::size_t>(all.part.count) * size);
  if (first >= last) return {};
  auto* const memory = static_cast<std::byte*>(address(all.shard));
  return {memory + (first - own), first - start, last - first};
}

std::optional<Executor::OwnBytes> Executor::own_bytes(Value value) const {
  const std::optional<ValueId> whole = graph_.shared_out(value.id);
  if (!whole) return std::nullopt;
  const OwnPart own = own_part(value.id, *whole);
  return OwnBytes{own.begin, own.bytes};
}

void Executor::read_own(Value value, std::span<std::byte> data) {
  const std::optional<ValueId> whole = graph_.shared_out(value.id);
  const OwnPart own = whole ? own_part(value.id, *whole) : OwnPart{};
  if (!own.memory || data.size() != own.bytes)
    throw UsageError("{} bytes cannot be read from this rank's part of {}, which has {}",
                     data.size(), graph_.info(value.id).name, own.bytes);
  device_.synchronize();
  device_.download(data.data(), own.memory, own.bytes);
}

void Executor::read_shared(ValueId value, ValueId whole, std::span<std::byte> data) {
  const ValueInfo& all = graph_.info(whole);
  const auto* const own = static_cast<const std::byte*>(address(all.shard));
  if (!own) throw UsageError("{} is shared out, and this rank's part has no memory now", all.name);
  std::vector<std::byte> gathered(all.type.bytes());
  const auto size = static_cast<std::int64_t>(size_of(all.type.dtype));
  device_.synchronize();
  device_.download(gathered.data() + all.part.first * size, own,
                   static_cast<std::size_t>(all.part.count * size));
  if (Communicator* const communicator = device_.communicator()) {
    std::vector<std::int64_t> bytes;
    for (int rank = 0; rank < communicator->count(); ++rank)
      bytes.push_back(part_of(all.type.numel(), rank, communicator->count()).count * size);
    communicator->all_gather_parts(gathered, bytes);
  }
  const std::size_t start = value == whole ? 0 : graph_.info(value).offset;
  std::memcpy(data.data(), gathered.data() + start, data.size());
}

void Executor::read(Value value, std::span<std::byte> data) {
  if (const auto whole = graph_.shared_out(value.id); whole && data.size() == value.type().bytes())
    return read_shared(value.id, *whole, data);
  const void* memory = address(value.id);
  if (!memory || data.size() != value.type().bytes())
    throw UsageError("{} bytes cannot be read from {}, a {}", data.size(),
                     graph_.info(value.id).name, value.type().to_string());
  device_.synchronize();
  const auto halves = halves_of(value.id);
  if (!halves) return device_.download(data.data(), memory, data.size());
  std::vector<std::uint16_t> upper(data.size() / sizeof(float)), lower(upper.size());
  device_.download(upper.data(), halves->upper, data.size() / 2);
  device_.download(lower.data(), halves->lower, data.size() / 2);
  std::vector<float> floats(upper.size());
  join_floats(upper.data(), lower.data(), floats);
  std::memcpy(data.data(), floats.data(), data.size());
}

float Executor::read_scalar(Value value) {
  float scalar = 0;
  read(value, std::span(&scalar, 1));
  return scalar;
}

std::vector<float> Executor::read_floats(Value value) {
  std::vector<float> floats(static_cast<std::size_t>(value.type().numel()));
  std::vector<std::byte> bytes(value.type().bytes());
  read(value, std::span(bytes));
  const bool split = value.dtype() == DType::split_f32;  // which is read joined
  load_floats(bytes.data(), split ? DType::f32 : value.dtype(), floats);
  return floats;
}

void Executor::fill_zero(Value value) {
  const std::size_t bytes = value.type().bytes();
  if (const auto whole = graph_.shared_out(value.id)) {
    if (const OwnPart own = own_part(value.id, *whole); own.bytes > 0)
      device_.clear(own.memory, own.bytes);
  } else if (const auto halves = halves_of(value.id)) {
    device_.clear(halves->upper, bytes / 2);
    device_.clear(halves->lower, bytes / 2);
  } else {
    device_.clear(address(value.id), bytes);
  }
  wants_packing_ = true;
}

void Executor::read_later(Value value, void* host) {
  const OnBehalf owner(device_, [&] { return graph_.info(value.id).producer; });
  device_.download_later(host, address(value.id), value.type().bytes());
}

}  // namespace ridge
