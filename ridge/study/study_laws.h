#pragma once

// How what a study measured follows from what it varied, and what that says.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/statistics.h"
#include "ridge/study/law.h"
#include "ridge/study/study_result.h"

namespace ridge {

enum class StudyQuantity : std::uint8_t {
  step_time,    // milliseconds
  peak_memory,  // MB, 10^6 bytes
  throughput,   // samples/s
};
std::string_view name_of(StudyQuantity quantity);  // "Time of a step"
std::string_view unit_of(StudyQuantity quantity);  // "ms"

struct StudyPoint {
  std::size_t variant = 0;
  double x = 0, y = 0;
  std::optional<Interval> spread;  // of y over the rounds
};

// Samples/s by the batch x: most x / (x + half), the batch over a time of the step that is linear.
struct Saturation {
  double most = 0;  // what larger and larger batches approach
  double half = 0;  // the batch that reaches half of it
  // Whether the part of a step that the batch does not change is told from none.
  bool is_clear = true;
};

// One quantity against one numeric option, all others held equal; or against the parameters, over
// the sizes.
struct StudyLaw {
  StudyQuantity quantity = StudyQuantity::step_time;
  std::string axis;   // "batch-size", "parameters"
  std::string where;  // what the others are: "version v1"; empty if nothing else varies
  std::vector<StudyPoint> points;  // by x
  // Fitted to all rounds. No growth over sizes, which differ in more than their parameters.
  std::optional<Law> growth, power;
  std::optional<Saturation> saturation;  // of throughput by the batch, in place of a growth

  // By the first that there is of saturation, growth and power; nothing without any.
  std::optional<double> at(double x) const;
  std::optional<double> error() const;  // of the points' y, the root mean square, relative
  std::string text() const;             // "10 + 2 x", "500 x / (x + 5)"
};
// Of two or more points each, in the order of axes and variants.
std::vector<StudyLaw> laws_of(const StudyResult& result);

// The batch with which samples/s reach 90 % of what they approach; none without a clear saturation.
std::optional<double> saturating_batch(const StudyLaw& throughput);

// "11.2 + 3.4 x (10.9 to 11.5, 3.1 to 3.7)" and "x^0.93 (0.90 to 0.96)"; empty without such a law.
std::string growth_text(const StudyLaw& law);
std::string power_text(const StudyLaw& law);

// A question of the workshop or of anyone who varies a size, and what the study says to it. A line
// of the text that begins with "- " is an item of a list.
struct StudyAnswer {
  std::string heading, question, text;
};
std::vector<StudyAnswer> answers_of(const StudyResult& result, const std::vector<StudyLaw>& laws);

}  // namespace ridge
