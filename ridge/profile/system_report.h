#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/device/activity.h"
#include "ridge/profile/recording.h"
#include "ridge/profile/system_samples.h"

namespace ridge {

// A counter over the time that it was sampled.
struct SystemRow {
  SystemSeries series;
  double mean = 0, min = 0, max = 0;
  std::int64_t max_at_ns = 0;
};

// Something beside the program that made it slower, or its times another's.
struct SystemFinding {
  std::string rule;    // that found it: "other-load"
  std::string what;    // a sentence: what was seen, and when
  std::string remedy;  // a sentence
};

struct SystemReport {
  std::vector<SystemRow> rows;  // of the series that were read, in their order; then of cards
  std::vector<SystemFinding> findings;
};

// What a sampler read of a card, as series of the group power, named "GPU .." or "GPU 1 ..".
SystemSamples samples_of_card(std::span<const CardState> states, const std::string& card = "GPU");

std::vector<SystemRow> system_rows(const SystemSamples& samples);
std::vector<SystemFinding> system_findings(const SystemSamples& samples);
SystemReport report_system(const SystemSamples& samples, std::span<const SystemSamples> cards);

// "step 7", or how long after the first sample.
std::string when_text(const SystemSamples& samples, std::int64_t time_ns);
std::string value_text(SystemUnit unit, double value);  // "98.1 %", "1.25 GiB/s"

// Tables and findings for people, and JSON ("schema": "ridge-system/1") with the course of each
// counter in at most `most_bins` equal stretches of time.
std::string system_text(const SystemSamples& samples, const SystemReport& report);
std::string system_json(const SystemSamples& samples, std::span<const SystemSamples> cards,
                        const SystemReport& report, std::size_t most_bins = 400);

// The same of a recording and its card; none if the machine was not sampled.
std::optional<std::string> system_text(const Recording& recording);
std::optional<std::string> system_json(const Recording& recording);

}  // namespace ridge
