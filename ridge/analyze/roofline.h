#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/analyze/ceilings.h"

namespace ridge {

// One operator on a roofline (Williams, Waterman, Patterson, 2009): how many FLOPs it does per byte
// and per second.
struct RooflinePoint {
  std::string name;
  std::int64_t calls = 0;
  double seconds = 0;  // of all calls, as are the next two
  std::int64_t flops = 0, bytes = 0;
  double share = 0;  // of the step's time

  double intensity() const;  // 0 if it does no FLOPs or moves no bytes
  double flops_per_second() const;
  double bytes_per_second() const;
};

// The operators of a profile, most time first, from the text of operators.json, which
// operator_table_json() writes; FormatError, with `source` in the message, for another text.
struct ProfiledOperators {
  std::vector<RooflinePoint> points;
  // The run's device, hardware and threads, as far as the file says; else empty, or 0.
  std::string device, hardware;
  int threads = 0;
};
ProfiledOperators roofline_points_from_json(std::string_view text, const std::string& source);

// For the terminal: logarithmic axes, one letter a point, a table of the letters below. Points that
// do no FLOPs have no place on the chart, but a line in the table.
std::string roofline_text(const std::vector<RooflinePoint>& points, const Roof& roof,
                          std::size_t width = 78, std::size_t height = 22);

// The same as a picture that stands alone, light or dark as its viewer is.
std::string roofline_svg(const std::vector<RooflinePoint>& points, const Roof& roof,
                         std::string_view title);

// The part of the chart that shows all points and ridges: powers of ten on both axes.
struct RooflineRange {
  double min_intensity = 0, max_intensity = 0;  // FLOP/byte
  double min_rate = 0, max_rate = 0;            // FLOP/s
};
RooflineRange roofline_range(const std::vector<RooflinePoint>& points, const Roof& roof);

}  // namespace ridge
