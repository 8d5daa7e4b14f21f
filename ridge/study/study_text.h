#pragma once

// A study for people and for programs: its variants, its laws, and what they answer.

#include <span>
#include <string>

#include "ridge/study/study_result.h"

namespace ridge {

std::string study_text(const StudyResult& result);  // for a terminal
// The same as Markdown, with pictures by the names of their files.
std::string study_markdown(const StudyResult& result, std::span<const std::string> pictures);
// With every round of every variant. Times are in seconds, sizes in bytes.
std::string study_json(const StudyResult& result);

}  // namespace ridge
