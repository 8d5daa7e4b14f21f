#pragma once

// A trace, and what is derived of it, for people's own questions. docs/use/traces.md has the tables
// and their columns.

#include <filesystem>

#include "ridge/trace/trace.h"

namespace ridge::trace {

inline constexpr const char* export_schema = "ridge-trace-export/1";

// Writes a database of SQLite. The file appears complete or not at all, in place of one that is
// there. IoError, here and below, if it cannot be written.
void export_sqlite(const Trace& trace, const std::filesystem::path& file);

// Writes kernels.csv, operators.csv, steps.csv, idle.csv and events.csv into a directory, which is
// made. Each appears complete or not at all, and none before all are written.
void export_csv(const Trace& trace, const std::filesystem::path& directory);

// Writes a file for Perfetto's viewer, https://ui.perfetto.dev: the trace's threads, streams and
// counters, with a flow from each launch to its work, and on tracks of their own the critical path,
// why the card was idle, and what would help. Times count from the trace's own zero, or from its
// first time if that is before.
void export_perfetto(const Trace& trace, const std::filesystem::path& file);

// As the tables name it: "kernel", "device_annotation".
const char* name_of(EventKind kind);

}  // namespace ridge::trace
