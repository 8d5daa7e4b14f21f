#pragma once

// Traces that tests write event by event, in microseconds.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "ridge/trace/read.h"

namespace ridge::trace {

class MadeTrace {
 public:
  static constexpr int host = 100;  // process and main thread

  MadeTrace& slice(const std::string& category, const std::string& name, double begin,
                   double duration, const std::string& args = "{}", int thread = host) {
    return event(fmt::format(
        R"({{"ph":"X","cat":"{}","name":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{}}})",
        category, name, host, thread, begin, duration, args));
  }
  MadeTrace& operation(const std::string& name, double begin, double duration,
                       const std::string& shape = "[]", int thread = host) {
    return slice("cpu_op", name, begin, duration, fmt::format(R"({{"Input Dims":{}}})", shape),
                 thread);
  }
  MadeTrace& annotation(const std::string& name, double begin, double duration) {
    return slice("user_annotation", name, begin, duration);
  }
  MadeTrace& step(int number, double begin, double duration) {
    return annotation(fmt::format("ProfilerStep#{}", number), begin, duration);
  }
  MadeTrace& call(const std::string& name, double begin, double duration, int correlation = 0,
                  int thread = host) {
    return slice("cuda_runtime", name, begin, duration,
                 fmt::format(R"({{"correlation":{}}})", correlation), thread);
  }
  MadeTrace& kernel(const std::string& name, double begin, double duration, int correlation,
                    int stream = 7, const std::string& category = "kernel", int bytes = -1) {
    return event(
        fmt::format(R"({{"ph":"X","cat":"{}","name":"{}","pid":0,"tid":{},"ts":{},"dur":{},)"
                    R"("args":{{"device":0,"stream":{},"correlation":{},"bytes":{}}}}})",
                    category, name, stream, begin, duration, stream, correlation, bytes));
  }
  // A launch at `launched`, and what it put on the card.
  MadeTrace& launched(const std::string& name, double launch, double begin, double duration,
                      int stream = 7, const std::string& category = "kernel", int bytes = -1) {
    ++correlation_;
    return call("cudaLaunchKernel", launch, 2, correlation_)
        .kernel(name, begin, duration, correlation_, stream, category, bytes);
  }
  MadeTrace& event(const std::string& json) {
    events_.push_back(json);
    return *this;
  }

  std::string text(const std::string& before = "", const std::string& after = "") const {
    return fmt::format("{{{}\"traceEvents\":[{}]{}}}", before, fmt::join(events_, ",\n"), after);
  }
  Trace read() const;

 private:
  std::vector<std::string> events_;
  int correlation_ = 1000;
};

// What a file of a name that says nothing would be read as.
inline Trace made_of(const std::string& file, const ReadOptions& options = {}) {
  return read_text(file, "made.json", options);
}

inline Trace MadeTrace::read() const { return made_of(text()); }

// All that a row has: "kernel gemm 0/13 100+20 ...", the kind as a number.
inline std::vector<std::string> rows_of(const Trace& trace) {
  std::vector<std::string> rows;
  const EventColumns& e = trace.events;
  for (std::size_t row = 0; row < e.size(); ++row) {
    const Track& track = trace.tracks[e.track[row]];
    rows.push_back(fmt::format("{} {} {}/{} {}+{} {} {} {}{}", static_cast<int>(e.kind[row]),
                               trace.name(row), track.process, track.thread, e.begin_ns[row],
                               e.duration_ns[row], e.correlation[row], e.bytes[row],
                               trace.texts[e.shape[row]], trace.texts[e.types[row]]));
  }
  return rows;
}

}  // namespace ridge::trace
