#pragma once

// The database that Nsight Systems exports: `nsys export --type sqlite report.nsys-rep`. NVIDIA
// documents the tables as the "SQLite Schema Reference" of its User Guide; a table is there only if
// the report has such events, and columns differ between versions.

#include "ridge/trace/database.h"
#include "ridge/trace/trace.h"

namespace ridge::trace {

// Adds the events of such a database: kernels, copies, fills and whole graphs of the cards, calls
// of CUDA, waits for a card, and ranges of NVTX, those of PyTorch's emit_nvtx() as operators. Of
// several processes, tracks and correlations stay apart. `file_bytes` are its size. FormatError if
// it is damaged, or has none of these tables.
void read_nsys(const Database& database, std::uint64_t file_bytes, Trace& trace);

}  // namespace ridge::trace
