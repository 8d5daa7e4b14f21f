#pragma once

// The tables of a study, and what a reader has to know of them. Columns that say nothing are left
// out.

#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/text_table.h"
#include "ridge/study/study_laws.h"
#include "ridge/study/study_result.h"
#include "ridge/study/study_scaling.h"

namespace ridge {

struct StudyTable {
  std::vector<TextColumn> columns;
  std::vector<TextRow> rows;  // with a cell for each column
};

StudyTable variants_table(const StudyResult& result);  // what was measured
StudyTable plans_table(const StudyResult& result);     // what is known without running anything
// How many times as much of everything the next variant along each axis has.
StudyTable factors_table(const StudyResult& result);
inline constexpr std::string_view factors_note =
    "Growth from one variant to the next: how many times as much of each";
// The workshop's tables of several GPUs.
StudyTable scaling_table(const std::vector<ScalingPoint>& points);
inline constexpr std::string_view scaling_note =
    "Scaling: samples a second of several ranks over so many times those of one; weak, where each "
    "has the batch of the one, and strong, where they share it";
StudyTable laws_table(const std::vector<StudyLaw>& laws);
inline constexpr std::string_view laws_note =
    ", with the intervals of their coefficients (95 %) where there are points enough";

// What a reader has to know of the figures, in sentences.
std::vector<std::string> notes_of(const StudyResult& result);

// The parameters that the workshop claims of a variant's size; empty if it has none.
std::string_view claim_of(const StudyVariant& variant);

}  // namespace ridge
