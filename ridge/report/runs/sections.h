#pragma once

// The sections of a report of runs.

#include <string>
#include <vector>

#include "ridge/report/runs/document.h"
#include "ridge/report/runs/facts.h"

namespace ridge {

// Three to six sentences with the figures that matter most.
std::vector<std::string> summary_of(const ReportFacts& facts);

// What can be said, and what it rests on.
std::vector<ReportFinding> findings_of(const ReportFacts& facts);

ReportSection method_section(const ReportFacts& facts);
ReportSection results_section(const ReportFacts& facts);
ReportSection findings_section(const ReportFacts& facts);
ReportSection commands_section(const ReportFacts& facts, const std::vector<std::string>& command);

// How it was measured and what differs between machines, in sentences.
std::vector<std::string> method_of(const ReportFacts& facts);

// "12.34 ms", "24.1 samples/s", "124.5 MB", "0.76 (0.70 to 0.81)".
std::string milliseconds_text(double seconds);
std::string rate_text(double samples_per_second);
std::string megabytes_text(std::int64_t bytes);
std::string ratio_text(const Ratio& ratio);
// "3", "4.2": to three digits.
std::string short_number(double value);

}  // namespace ridge
