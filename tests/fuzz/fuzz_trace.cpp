// The readers of traces on any bytes: a trace is read and reported, and checked, or refused.

#include <cstdint>
#include <cstring>
#include <string_view>

#include "ridge/base/error.h"
#include "ridge/trace/check/check.h"
#include "ridge/trace/critical_path.h"
#include "ridge/trace/report.h"
#include "ridge/trace/timeline.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  // The first two bytes say how large the pieces are that the text is cut into.
  const std::size_t piece_bytes = 64 + data[0] + std::size_t{data[1]} * 16;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const ridge::trace::ReadOptions options{.threads = 1, .piece_bytes = piece_bytes, .progress = {}};
  try {
    ridge::trace::trace_check_json(ridge::trace::check_trace(text, "fuzz", options));
  } catch (const ridge::FormatError&) {
  }
  try {
    const ridge::trace::Trace trace = ridge::trace::read_text(text, "fuzz", options);
    const ridge::trace::RunReport run =
        ridge::trace::report_ranks({ridge::trace::report_of(trace)});
    ridge::trace::report_text(run, 3);
    ridge::trace::report_json(run);
    const ridge::trace::HostNesting nesting(trace);
    const ridge::trace::Work work = ridge::trace::work_of(trace, nesting);
    const ridge::trace::CriticalPath path = ridge::trace::critical_path(trace, work, nesting);
    ridge::trace::timeline_of(trace, work, 10, &path);
  } catch (const ridge::FormatError&) {
  }
  return 0;
}
