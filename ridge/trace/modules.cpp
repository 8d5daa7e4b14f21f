#include "ridge/trace/modules.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "ridge/trace/times.h"

namespace ridge::trace {
namespace {

constexpr std::string_view prefix = "nn.Module: ";

struct Module {
  ModuleUse use;
  std::vector<std::size_t> within;  // in the order of their first calls
};

// All modules by number; the first stands for what is in none.
class ModuleTree {
 public:
  explicit ModuleTree(const Trace& trace) : trace_(trace), modules_(1) {}

  // Goes through the calls of modules on one thread and the launches there, both in order.
  void add(const std::vector<Row>& calls, const std::vector<const DeviceWork*>& launches) {
    const EventColumns& events = trace_.events;
    std::vector<std::pair<std::size_t, std::int64_t>> open;  // modules, and when their calls end
    std::size_t next = 0;
    const auto close_before = [&](std::int64_t time) {
      while (!open.empty() && open.back().second <= time) open.pop_back();
    };
    const auto launch_before = [&](std::int64_t time) {
      for (; next < launches.size() && events.begin_ns[launches[next]->call] < time; ++next) {
        close_before(events.begin_ns[launches[next]->call]);
        for (const auto& [module, _] : open) {
          modules_[module].use.device_us += us(events.duration_ns[launches[next]->row]);
          ++modules_[module].use.kernels;
        }
      }
    };
    for (const Row call : calls) {
      launch_before(events.begin_ns[call]);
      close_before(events.begin_ns[call]);
      const std::size_t module =
          module_of(open.empty() ? 0 : open.back().first, events.name[call], open.size());
      ++modules_[module].use.calls;
      modules_[module].use.host_us += us(events.duration_ns[call]);
      open.emplace_back(module, events.end_ns(call));
    }
    launch_before(std::numeric_limits<std::int64_t>::max());
  }

  std::vector<ModuleUse> uses() const {
    std::vector<ModuleUse> all;
    std::vector<std::size_t> left(modules_[0].within.rbegin(), modules_[0].within.rend());
    while (!left.empty()) {
      const Module& module = modules_[left.back()];
      left.pop_back();
      all.push_back(module.use);
      left.insert(left.end(), module.within.rbegin(), module.within.rend());
    }
    return all;
  }

 private:
  std::size_t module_of(std::size_t around, TextPool::Id name, std::size_t depth) {
    const auto [at, added] = numbers_.try_emplace({around, name}, modules_.size());
    if (added) {
      modules_.emplace_back().use = {.name = trace_.texts[name].substr(prefix.size()),
                                     .depth = depth};
      modules_[around].within.push_back(at->second);
    }
    return at->second;
  }

  const Trace& trace_;
  std::vector<Module> modules_;
  std::map<std::pair<std::size_t, TextPool::Id>, std::size_t> numbers_;
};

}  // namespace

std::vector<ModuleUse> module_uses(const Trace& trace, const Work& work) {
  const EventColumns& events = trace.events;
  std::vector<std::vector<Row>> calls(trace.tracks.size());
  for (Row row = 0; row < events.size(); ++row)
    if (events.kind[row] == EventKind::python && trace.name(row).starts_with(prefix))
      calls[events.track[row]].push_back(row);
  std::vector<std::vector<const DeviceWork*>> launches(trace.tracks.size());
  for (const DeviceWork& one : work.device)
    if (one.call != no_row) launches[events.track[one.call]].push_back(&one);
  ModuleTree tree(trace);
  for (std::size_t track = 0; track < calls.size(); ++track) {
    if (calls[track].empty()) continue;
    sort_outer_first(events, calls[track]);
    std::ranges::stable_sort(launches[track], {},
                             [&](const DeviceWork* one) { return events.begin_ns[one->call]; });
    tree.add(calls[track], launches[track]);
  }
  return tree.uses();
}

}  // namespace ridge::trace
