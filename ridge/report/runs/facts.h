#pragma once

// All that a report of runs says, before it is said.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridge/analyze/compare.h"
#include "ridge/study/store.h"
#include "ridge/study/study_comparisons.h"
#include "ridge/study/study_laws.h"
#include "ridge/study/study_result.h"

namespace ridge {

// The newest run of a variant, from which its options and its curve are taken.
struct NewestRun {
  std::int64_t id = 0;
  nlohmann::ordered_json record;
  std::optional<ComparedRun> compared;  // none of a record that lacks what a comparison needs
  std::vector<double> losses;           // of each step; what is no number is NaN
  double first_step = 1;
};

// What all runs on one machine, or by one program, have alike.
struct RunPlace {
  RunRow row;  // of one of them
  std::int64_t runs = 0;
};

// A quantity of the surroundings over the runs that tell it: "load_average".
struct SeenRange {
  double least = 0, largest = 0;
  std::int64_t runs = 0;
};

struct ReportFacts {
  StudyResult result;
  std::vector<StudyLaw> laws;
  std::vector<StudyAnswer> answers;
  std::vector<std::optional<NewestRun>> newest;  // by variant; none that measured nothing
  std::vector<StudyComparison> comparisons;
  std::vector<RunPlace> machines, programs;  // in the order of their first runs
  std::int64_t runs = 0;                     // with a step time
  std::int64_t first = 0, last = 0;          // when they were made; seconds since 1970, UTC
  std::vector<std::string> workloads;        // each once
  SeenRange load, busy_cores;                // before the run; of others while it went
  bool training = false;                     // whether any run trained

  std::string name_of_variant(std::size_t v) const {
    return name_of(result.definition.variants[v]);
  }
  // By number: those with a step time, in the order of the study.
  std::vector<std::size_t> measured() const;
};

// Error, with what to do, if nothing was measured.
ReportFacts facts_of(Store& store, StudyResult result);

}  // namespace ridge
