#pragma once

// The report of a study, or of any runs of a store: for a reader in a hurry a summary, then how it
// was measured, the results with their intervals, findings with what they rest on, and the commands
// that make every figure again.

#include <string>
#include <vector>

#include "ridge/report/runs/document.h"
#include "ridge/study/store.h"
#include "ridge/study/study_result.h"

namespace ridge {

struct RunsReport {
  ReportDocument document;
  std::string json;  // the same for programs, with a line end
};

// `command` are the words that make the report again: "ridge report --study batches". Error if
// nothing was measured.
RunsReport report_runs(Store& store, StudyResult result, const std::vector<std::string>& command);

}  // namespace ridge
