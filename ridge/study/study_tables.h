#pragma once

// The tables of a study, and what a reader has to know of them. Columns that say nothing are left
// out.

#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/text_table.h"
#include "ridge/study/study_laws.h"
#include "ridge/study/study_result.h"

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
StudyTable laws_table(const std::vector<StudyLaw>& laws);
inline constexpr std::string_view laws_note =
    ", with the intervals of their coefficients (95 %) where there are points enough";

// What a reader has to know of the figures, in sentences.
std::vector<std::string> notes_of(const StudyResult& result);

// The parameters that the workshop claims of a variant's size; empty if it has none.
std::string_view claim_of(const StudyVariant& variant);

}  // namespace ridge
