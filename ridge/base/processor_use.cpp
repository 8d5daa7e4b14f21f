#include "ridge/base/processor_use.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <string>

#include "ridge/base/system.h"

namespace ridge {
namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

ProcessorUse ProcessorUse::now() {
  ProcessorUse use;
  use.wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  use.own = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  // "cpu  user nice system idle iowait irq softirq steal", in ticks: proc(5). What is stolen by
  // other guests of the machine is busy too.
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, soft = 0, steal = 0;
  if (file >> name >> user >> nice >> system >> idle >> waiting >> irq >> soft >> steal)
    use.busy =
        (user + nice + system + irq + soft + steal) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return use;
}

ProcessSeconds ProcessSeconds::of_this_process(double seconds) {
  ProcessSeconds mine{.process = ::getpid(), .seconds = seconds};
  const std::string host = host_name();
  std::copy_n(host.begin(), std::min(host.size(), mine.host.size()), mine.host.begin());
  return mine;
}

double seconds_on_host(std::span<const ProcessSeconds> all, const ProcessSeconds& mine) {
  double seconds = 0;
  std::set<std::int64_t> counted;
  for (const ProcessSeconds& one : all)
    if (one.host == mine.host && counted.insert(one.process).second) seconds += one.seconds;
  return seconds;
}

std::optional<double> busy_processors_of_others(const ProcessorUse& begin,
                                                const ProcessorUse& end) {
  // Each processor's time is counted in ticks, of which those of both ends may be off.
  constexpr double ticks = 10;
  const double wall = end.wall - begin.wall;
  if (!begin.busy || !end.busy || wall * static_cast<double>(::sysconf(_SC_CLK_TCK)) < ticks)
    return std::nullopt;
  return std::max(0.0, ((*end.busy - *begin.busy) - (end.own - begin.own)) / wall);
}

}  // namespace ridge
