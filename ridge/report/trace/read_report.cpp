#include "ridge/report/trace/read_report.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "ridge/trace/host_nesting.h"

namespace ridge {

TraceReport read_report(std::span<const std::string> names, bool draws,
                        const trace::ReadingProgress& progress) {
  const std::vector<trace::NamedTrace> files = trace::named_traces(names);
  std::vector<trace::Report> reports;
  std::optional<DrawnTimeline> drawn;  // of the first rank
  std::optional<std::int64_t> drawn_rank;
  std::vector<std::string> left_out = trace::read_each(files, progress, [&](trace::Trace&& trace) {
    const trace::HostNesting nesting(trace);
    const trace::Work work = trace::work_of(trace, nesting);
    reports.push_back(trace::report_of(trace, work, nesting));
    if (!draws || (drawn && reports.back().rank >= drawn_rank)) return;
    drawn.emplace(trace, work, nesting);
    drawn_rank = reports.back().rank;
  });
  TraceReport report{trace::report_ranks(std::move(reports)), std::move(drawn)};
  report.run.left_out = std::move(left_out);
  return report;
}

}  // namespace ridge
