#include "ridge/session/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ridge/base/error.h"

namespace ridge {
namespace {

// Whether options have these values: "batch-size=8 seq-len=128".
bool has_values(const RunOptions& options, const std::string& values) {
  RunOptions with = options;
  const std::vector<OptionInfo> fields = options_of(with);
  std::istringstream words(values);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const auto field = std::ranges::find(fields, word.substr(0, equals), &OptionInfo::name);
    if (field == fields.end() || equals == std::string::npos)
      throw FormatError("published.tsv: '{}' is no option with its value", word);
    set_from_text(*field, word.substr(equals + 1));
  }
  return with == options;
}

}  // namespace

std::optional<PublishedRun> published_run(const RunOptions& options) {
  std::istringstream lines{std::string(published_text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream fields(line);
    std::string values, rate, peak;
    PublishedRun run;
    for (std::string* const field : {&values, &rate, &peak, &run.hardware, &run.source})
      if (!std::getline(fields, *field, '\t'))
        throw FormatError("published.tsv: a field is missing in '{}'", line);
    if (!has_values(options, values)) continue;
    run.samples_per_second = std::stod(rate);
    run.peak_mb = std::stod(peak);
    return run;
  }
  return std::nullopt;
}

std::string comparison_text(const PublishedRun& published, const Record& record,
                            const Summary& summary) {
  return fmt::format(
      "The workshop reports {:.1f} samples/sec and {:.1f} MB of this shape, with PyTorch on {} "
      "({}). "
      "This run reaches {:.3g} times its rate with {:.3g} times its memory, in {} on {}.",
      published.samples_per_second, published.peak_mb, published.hardware, published.source,
      summary.samples_per_second / published.samples_per_second,
      static_cast<double>(record.peak_tensor_bytes) / 1e6 / published.peak_mb, record.options.dtype,
      record.system.device == "cpu" ? record.system.cpu : record.system.device);
}

nlohmann::ordered_json json_of(const PublishedRun& published) {
  return {{"samples_per_second", published.samples_per_second},
          {"peak_memory_mb", published.peak_mb},
          {"hardware", published.hardware},
          {"source", published.source}};
}

}  // namespace ridge
