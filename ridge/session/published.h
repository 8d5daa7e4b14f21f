#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "ridge/session/record.h"

namespace ridge {

// Declared for published.cpp, which reads it: published.tsv.
extern const std::string_view published_text;

// What the workshop's pages report of a run with the same options, on other hardware.
struct PublishedRun {
  double samples_per_second = 0, peak_mb = 0;
  std::string hardware, source;
};

// Nothing if they report none of such a run.
std::optional<PublishedRun> published_run(const RunOptions& options);
// A sentence that holds a run against it.
std::string comparison_text(const PublishedRun& published, const Record& record,
                            const Summary& summary);
nlohmann::ordered_json json_of(const PublishedRun& published);

}  // namespace ridge
