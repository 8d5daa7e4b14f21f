#include "ridge/profile/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

#include "ridge/device/gathered.h"
#include "ridge/profile/chrome_events.h"
#include "ridge/profile/event_list.h"

namespace ridge {
namespace {

// What connects the ranks, by the name that PyTorch gives it.
std::string_view backend(const Recording& recording) {
  if (recording.ranks == 1) return "none";
  const bool nccl = std::ranges::any_of(recording.activity_names, [](const std::string& name) {
    return name.find("nccl") != std::string::npos;
  });
  return nccl ? "nccl" : "gloo";
}

std::string distributed_info(const Recording& recording) {
  return fmt::format(
      "\"distributedInfo\": {{\"backend\": \"{}\", \"rank\": {}, \"world_size\": {}}},\n",
      backend(recording), recording.rank, recording.ranks);
}

std::string device_properties(const Recording& recording) {
  const ProcessorLimits& limits = recording.processor;
  if (limits.count == 0) return "";
  return fmt::format(
      R"({{"id": 0, "name": {}, "numSms": {}, "warpSize": {}, "maxThreadsPerMultiprocessor": {}, )"
      R"("regsPerMultiprocessor": {}, "sharedMemPerMultiprocessor": {}}})",
      json_string(recording.device_description), limits.count, limits.warp_size,
      limits.warps * limits.warp_size, limits.registers, limits.shared_memory);
}

// All up to the first event; `more` are fields of a file of one rank.
std::string head_of(const Recording& recording, std::string_view name, std::string_view more) {
  return fmt::format(
      "{{\n\"schemaVersion\": 1,\n\"deviceProperties\": [{}],\n{}"
      "\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": {},\n\"traceName\": {},\n"
      "\"device\": {},\n\"threads\": {},\n\"traceEvents\": [",
      device_properties(recording), more, recording.epoch_ns, json_string(name),
      json_string(recording.device_description), recording.threads);
}

// All behind the last event.
std::string foot_of(const Recording& recording, const TraceSize& size) {
  return fmt::format(
      "\n],\n\"ridge\": {{\"events\": {}, \"events_left_out\": {}, "
      "\"records_dropped\": {}}}\n}}\n",
      size.events, size.left_out, recording.dropped);
}

// The recording on the device's clock where a graph was replayed: its nodes, which nobody launched
// one by one, have no other times.
std::optional<Recording> replayed_times(const Recording& recording) {
  if (recording.replays.empty() || recording.activities.empty()) return std::nullopt;
  return device_time(recording);
}

// Moves the events of one rank to the first, many at a time, a line each. All ranks make one at the
// same time: the giver gives and closes, and all others take until there is nothing left, because
// every rank takes part in each exchange; only the first gets something.
class EventParcels {
 public:
  EventParcels(Communicator& communicator, int giver)
      : communicator_(communicator), giver_(static_cast<std::size_t>(giver)) {}

  void give(std::string_view event) {
    constexpr std::size_t enough = 1 << 20;
    if (!pending_.empty()) pending_ += '\n';
    pending_ += event;
    if (pending_.size() >= enough) hand_over();
  }
  void close() {
    if (!pending_.empty()) hand_over();
    hand_over();
  }
  // Nothing if that was all.
  std::optional<std::string> take() {
    hand_over();
    if (is_last_) return std::nullopt;
    return std::move(taken_);
  }

 private:
  void hand_over() {
    const auto ranks = static_cast<std::size_t>(communicator_.count());
    const auto size = static_cast<std::int64_t>(pending_.size());
    std::vector<std::int64_t> given(ranks, 0), got(ranks, 0);
    const std::int64_t coming = gathered(communicator_, size)[giver_];
    is_last_ = coming == 0;
    if (is_last_) return;
    given[0] = size;
    if (communicator_.rank() == 0) got[giver_] = coming;
    taken_.resize(static_cast<std::size_t>(got[giver_]));
    communicator_.exchange(std::as_bytes(std::span(pending_)), given,
                           std::as_writable_bytes(std::span(taken_)), got);
    pending_.clear();
  }

  Communicator& communicator_;
  std::size_t giver_;
  std::string pending_, taken_;
  bool is_last_ = false;
};

}  // namespace

TraceSize write_chrome_trace(const std::filesystem::path& path, const Recording& recording,
                             const TraceOptions& options) {
  EventList events(path);
  events.allow(options.max_bytes);
  const std::optional<Recording> replayed = replayed_times(recording);
  const Recording& times = replayed ? *replayed : recording;
  events.text(head_of(times, path.filename().string(), distributed_info(times)));
  emit_chrome_events(times, {.process = times.process_id},
                     [&](std::string_view event) { events.event(event); });
  events.text(foot_of(times, events.size()));
  events.commit();
  return events.size();
}

TraceSize write_chrome_trace_of_ranks(const std::filesystem::path& path, const Recording& recording,
                                      std::span<const std::int64_t> ahead_ns,
                                      Communicator& communicator, const TraceOptions& options) {
  const int own = communicator.rank(), count = communicator.count();
  const std::optional<Recording> replayed = replayed_times(recording);
  const Recording& times = replayed ? *replayed : recording;
  const std::vector<std::int64_t> epochs = gathered(communicator, recording.epoch_ns);
  const std::int64_t place = own;
  const auto emit_own = [&](const EmitEvent& emit) {
    emit_chrome_events(times,
                       {.name = fmt::format("rank {}", own),
                        .process = 2 * place + 1,
                        .device = 2 * place + 2,
                        .sorted = place,
                        .ahead_ns = epochs[0] - epochs[static_cast<std::size_t>(own)] +
                                    ahead_ns[static_cast<std::size_t>(own)],
                        .first_flow = static_cast<std::uint64_t>(place) << 40},
                       emit);
  };
  if (own > 0) {
    for (int rank = 1; rank < count; ++rank) {
      EventParcels parcels(communicator, rank);
      if (rank == own) {
        emit_own([&](std::string_view event) { parcels.give(event); });
        parcels.close();
      } else {
        while (parcels.take()) {
        }
      }
    }
    return {};
  }
  // Others wait for this rank to take what they have, whatever happens to the file.
  std::exception_ptr fault;
  std::optional<EventList> events;
  const auto attempt = [&](const auto& action) {
    if (fault) return;
    try {
      action();
    } catch (...) {
      fault = std::current_exception();
    }
  };
  // Each rank has as many bytes as the others, and what those before it have left.
  const auto allow = [&](int ranks) {
    events->allow(options.max_bytes / static_cast<std::uint64_t>(count) *
                  static_cast<std::uint64_t>(ranks));
  };
  attempt([&] {
    events.emplace(path);
    events->text(head_of(times, path.filename().string(), ""));
    allow(1);
    emit_own([&](std::string_view event) { events->event(event); });
  });
  for (int rank = 1; rank < count; ++rank) {
    EventParcels parcels(communicator, rank);
    attempt([&] { allow(rank + 1); });
    while (const auto parcel = parcels.take())
      attempt([&] {
        for (const auto line : std::views::split(*parcel, '\n'))
          events->event({line.begin(), line.end()});
      });
  }
  attempt([&] {
    events->text(foot_of(times, events->size()));
    events->commit();
  });
  if (fault) std::rethrow_exception(fault);
  return events->size();
}

std::string worker_trace_name(std::string_view host, std::int64_t process_id, std::int64_t n) {
  std::string worker;
  for (const char c : host)
    worker += std::isalnum(static_cast<unsigned char>(c)) || c == '-' ? c : '_';
  return fmt::format("{}_{}.{}.pt.trace.json", worker.empty() ? "localhost" : worker, process_id,
                     n);
}

std::string step_trace_name(std::int64_t first_step, std::int64_t last_step) {
  return fmt::format("trace_step_{}_{}.json", first_step, last_step);
}

}  // namespace ridge
