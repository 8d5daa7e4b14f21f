#pragma once

#include <string>
#include <vector>

#include "ridge/study/study_result.h"

namespace ridge {

struct StudyPicture {
  std::string file;  // "step-time-by-batch-size.svg"
  std::string svg;
};

// A picture for each quantity and each option that varies: what was measured, with its spread over
// the rounds, and the law through it; one colour for each setting of the others.
std::vector<StudyPicture> study_pictures(const StudyResult& result);

}  // namespace ridge
