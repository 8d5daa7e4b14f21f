#include "ridge/cli/second_start.h"

#include <nlohmann/json.hpp>

#include "ridge/base/child_process.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/scratch_directory.h"

namespace ridge {

std::optional<double> compile_seconds_of_new_process(const RunOptions& options) {
  constexpr std::size_t max_record_bytes = std::size_t{1} << 24;
  try {
    const ScratchDirectory directory("ridge-start");
    const std::filesystem::path config = directory.path() / "options.json",
                                record = directory.path() / "record.json";
    RunOptions once = options;
    once.num_steps = 1;
    once.warmup_steps = 0;
    write_text_file(config, to_json(once));
    ChildProcess child({.words = {this_program, "bench", "--config", config.string(),
                                  "--export-json", record.string()},
                        .environment = {{"RIDGE_STORE", ""}}});
    if (!child.wait().ok()) return std::nullopt;
    const auto json = nlohmann::json::parse(read_text_file(record, max_record_bytes));
    return json.at("performance_summary").at("compile_seconds").get<double>();
  } catch (const Error&) {
    return std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace ridge
