#include <fmt/format.h>

#include <concepts>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "ridge/base/file.h"
#include "ridge/base/text_table.h"
#include "ridge/trace/export.h"
#include "ridge/trace/export_values.h"
#include "ridge/trace/report.h"

namespace ridge::trace {
namespace {

// A table as a file: texts in quotes, times in microseconds to the nanosecond.
class CsvFile {
 public:
  CsvFile(const std::filesystem::path& path, std::string_view header) : file_(path) {
    file_.write(header);
    file_.write("\n");
  }

  template <class First, class... Values>
  void row(const First& first, const Values&... values) {
    line_.clear();
    add(first);
    ((line_ += ',', add(values)), ...);
    line_ += '\n';
    file_.write(line_);
  }
  void flush() { file_.flush(); }
  void commit() { file_.commit(); }

 private:
  void add(std::string_view text) { line_ += csv_quoted(text); }
  void add(double us) { fmt::format_to(std::back_inserter(line_), "{:.3f}", us); }
  void add(std::integral auto number) { fmt::format_to(std::back_inserter(line_), "{}", number); }
  void add(Integer number) {
    if (number) add(*number);
  }

  AtomicFile file_;
  std::string line_;
};

void add_kernels(const Report& report, CsvFile& out) {
  for (const KernelSum& sum : report.kernels)
    out.row(sum.name, name_of(sum.work), sum.count, sum.us, sum.min_us, sum.max_us);
}

void add_operators(const Report& report, CsvFile& out) {
  for (const OperatorSum& sum : report.operators)
    out.row(sum.name, sum.shape, sum.types, sum.count, sum.host_us, sum.self_host_us, sum.device_us,
            sum.kernels, static_cast<std::uint64_t>(sum.flops),
            static_cast<std::uint64_t>(sum.bytes), sum.floor_us);
}

void add_steps(const Report& report, CsvFile& out) {
  for (const auto& [step, use] : report.steps)
    out.row(step, use.span, use.busy, use.compute, use.communication, use.exposed_communication,
            use.copy, use.idle, use.kernels);
}

void add_idle(const Report& report, CsvFile& out) {
  for (const IdleStretch& stretch : report.idle.stretches)
    out.row(stretch.time.begin_ns, stretch.time.end_ns, idle_cause_name(stretch.cause),
            id_of(stretch.next), id_of(stretch.blocking), known(stretch.step));
}

void add_events(const Trace& trace, CsvFile& out) {
  const EventColumns& events = trace.events;
  for (Row row = 0; row < events.size(); ++row) {
    const Track& track = trace.tracks[events.track[row]];
    out.row(row, name_of(events.kind[row]), trace.name(row), track.process, track.thread,
            events.begin_ns[row], events.duration_ns[row], known(events.correlation[row]),
            known(events.external[row]), known(events.bytes[row]), trace.texts[events.shape[row]],
            trace.texts[events.types[row]]);
  }
}

}  // namespace

void export_csv(const Trace& trace, const std::filesystem::path& directory) {
  const Report report = report_of(trace);
  make_directories(directory);
  CsvFile kernels(directory / "kernels.csv", "name,class,count,us,min_us,max_us");
  CsvFile operators(
      directory / "operators.csv",
      "name,shape,types,count,host_us,self_host_us,device_us,kernels,flops,bytes,floor_us");
  CsvFile steps(directory / "steps.csv",
                "step,span_us,busy_us,compute_us,communication_us,exposed_communication_us,"
                "copy_us,idle_us,kernels");
  CsvFile idle(directory / "idle.csv",
               "begin_ns,end_ns,cause,next_event_id,blocking_event_id,step");
  CsvFile events(directory / "events.csv",
                 "id,kind,name,process,thread,begin_ns,duration_ns,correlation,external_id,bytes,"
                 "shape,types");
  add_kernels(report, kernels);
  add_operators(report, operators);
  add_steps(report, steps);
  add_idle(report, idle);
  add_events(trace, events);
  CsvFile* const files[] = {&kernels, &operators, &steps, &idle, &events};
  for (CsvFile* file : files) file->flush();
  for (CsvFile* file : files) file->commit();
}

}  // namespace ridge::trace
