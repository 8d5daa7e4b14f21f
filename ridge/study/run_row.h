#pragma once

// What is kept of a run, and the part of it that lists show: one table has the columns of a store,
// of its filters, and of JSON and CSV.

#include <compare>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ridge/study/uuid.h"

namespace ridge {

// The place of a run in a study.
struct StudyTurn {
  std::int64_t variant = 0, round = 1;
  auto operator<=>(const StudyTurn&) const = default;
};

// All that a store keeps of a run.
struct RunDocument {
  Uuid uuid{};
  std::string study;                   // that made the run; empty if none did
  std::optional<StudyTurn> turn = {};  // in the study of that name in the same store
  std::vector<std::string> tags;
  // JSON objects. A record is what a run writes (session/record.h, "ridge-record-1"). The context
  // is what was seen around it (study/fingerprint.h): "machine", "program", "conditions",
  // "ceilings", "operators", "kernels_per_step", "input_shape"; any of them may be missing.
  std::string record;
  std::string context = "{}";
  // Of a run that was profiled, what the page of its profile is made of (report/report_page.h); not
  // read with the rest: see Store::profile().
  std::string profile = {};
};

// The row of a run. Texts are UTF-8 without zero bytes, and empty where nothing is known; so are
// numbers. What a number is not known for, or is no finite one, is empty too.
struct RunRow {
  std::int64_t id = 0;       // within one store
  std::int64_t created = 0;  // seconds since 1970, UTC
  Uuid uuid{};

  std::string workload, mode, version, dtype, device;
  std::optional<std::int64_t> batch_size, seq_len, image_size;
  std::optional<double> median_seconds;  // of a step
  std::optional<double> samples_per_second, tokens_per_second;
  std::optional<std::int64_t> peak_bytes, kernels, flops;  // the last two of a step
  std::optional<double> final_loss;
  std::string outcome, study;

  // The machine, and a digest of all that is known of it; the program.
  std::string machine, cpu, gpu, gpu_uuid, driver, libraries;
  std::int64_t cores = 0;  // that the run used
  std::string ridge_version, commit, binary, compiler;

  std::vector<std::string> tags;  // in alphabetical order
};

// The name of the card or, of a run without one, "AMD EPYC 9654, 8" with the cores that it used.
std::string hardware_of(const RunRow& row);
// The first digits of a commit, with the + of a working tree that had changed.
std::string short_commit(std::string_view commit);

struct RunColumn {
  enum class Table : std::uint8_t { runs, machines, programs };
  // The alternatives tell what kind of value it has; a date is an integer, Date below.
  using Field = std::variant<std::string RunRow::*, std::int64_t RunRow::*,
                             std::optional<std::int64_t> RunRow::*, std::optional<double> RunRow::*,
                             Uuid RunRow::*>;
  std::string_view name;   // "batch_size"
  std::string_view alias;  // another name in filters; empty if there is none
  Table table = Table::runs;
  std::string_view sql;  // its name in that table
  Field field;

  bool is_text() const { return std::holds_alternative<std::string RunRow::*>(field); }
  bool is_date() const { return name == "created"; }
};

// In the order of JSON and CSV.
std::span<const RunColumn> run_columns();
// By name or alias, with hyphens or underscores; null if there is none.
const RunColumn* find_run_column(std::string_view name);

struct DocumentRow {
  RunRow row;                            // without id, uuid, study and tags
  std::string options, record, context;  // JSON of one line each; the options are the record's
};

// Reads a document's row. What is not there stays empty. FormatError, without a file's name, for a
// record or a context that is no JSON object, is nested too deeply, has another schema or no time.
DocumentRow row_of(const RunDocument& document);

// JSON in one line of ASCII, which any terminal shows as it is.
std::string one_line(const nlohmann::ordered_json& json);
// A JSON object; FormatError, about `what`, for any other text and for one nested too deeply.
nlohmann::ordered_json json_object(std::string_view text, std::string_view what);

// Text as a store keeps it: what is not UTF-8, and zero bytes, become U+FFFD.
std::string stored_text(std::string_view text);

}  // namespace ridge
