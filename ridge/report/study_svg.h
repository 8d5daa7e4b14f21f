#pragma once

#include <string>
#include <vector>

#include "ridge/study/study_result.h"

namespace ridge {

struct StudyPicture {
  std::string file;   // "time-of-a-step-by-batch-size.svg"
  std::string title;  // "Time of a step by batch-size, ms"
  std::string svg;
};

// A picture for each quantity and each option that varies: what was measured, with its spread over
// the rounds, and the law through it; one colour for each setting of the others.
std::vector<StudyPicture> study_pictures(const StudyResult& result);

}  // namespace ridge
