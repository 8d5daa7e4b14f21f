#include "ridge/analyze/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/profile/operator_table.h"

namespace ridge {
namespace {

void sort_by_time(std::vector<RooflinePoint>& points) {
  std::ranges::stable_sort(points, std::greater{}, &RooflinePoint::seconds);
}

char letter(std::size_t index) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return index < letters.size() ? letters[index] : '*';
}

// A grid of characters over logarithmic axes, row 0 at the top.
class Chart {
 public:
  Chart(const RooflineRange& range, std::size_t width, std::size_t height)
      : range_(range), width_(width), rows_(height, std::string(width, ' ')) {}

  double intensity_at(std::size_t column) const {
    const double part = (static_cast<double>(column) + 0.5) / static_cast<double>(width_);
    return range_.min_intensity * std::pow(range_.max_intensity / range_.min_intensity, part);
  }
  std::size_t column_of(double intensity) const {
    return cell(std::log(intensity / range_.min_intensity) /
                    std::log(range_.max_intensity / range_.min_intensity),
                width_);
  }
  std::size_t row_of(double rate) const {
    const double part =
        std::log(rate / range_.min_rate) / std::log(range_.max_rate / range_.min_rate);
    return rows_.size() - 1 - cell(part, rows_.size());
  }
  void draw_line(std::size_t column, double rate, char mark) {
    if (rate >= range_.min_rate && rate <= range_.max_rate) rows_[row_of(rate)][column] = mark;
  }
  // Beside another point, or over it where there is no room.
  void draw_point(double intensity, double rate, char mark) {
    std::string& row = rows_[row_of(rate)];
    std::size_t column = column_of(intensity);
    for (std::size_t beside = 0; beside < 3 && column + beside < width_; ++beside)
      if (!std::isalpha(static_cast<unsigned char>(row[column + beside]))) {
        column += beside;
        break;
      }
    row[column] = mark;
  }

  std::string text() const {
    std::string text;
    for (std::size_t r = 0; r < rows_.size(); ++r) text += label_of_row(r) + " |" + rows_[r] + "\n";
    text += std::string(label_width, ' ') + " +" + std::string(width_, '-') + "\n";
    std::string ticks(label_width + 2 + width_ + 8, ' ');
    for (double x = range_.min_intensity; x <= range_.max_intensity * 1.001; x *= 10) {
      const std::string label = fmt::format("{:g}", x);
      ticks.replace(label_width + 2 + column_of(x), label.size(), label);
    }
    ticks.erase(ticks.find_last_not_of(' ') + 1);
    return text + ticks + "  FLOP/byte\n";
  }

 private:
  static constexpr std::size_t label_width = 12;

  static std::size_t cell(double part, std::size_t cells) {
    const double position = std::clamp(part, 0.0, 1.0) * static_cast<double>(cells);
    return std::min(static_cast<std::size_t>(position), cells - 1);
  }
  std::string label_of_row(std::size_t row) const {
    for (double rate = range_.min_rate; rate <= range_.max_rate * 1.001; rate *= 10)
      if (row_of(rate) == row)
        return fmt::format("{:>{}}", format_si(rate) + "FLOP/s", label_width);
    return std::string(label_width, ' ');
  }

  RooflineRange range_;
  std::size_t width_;
  std::vector<std::string> rows_;
};

// Those above f32's, slowest first.
std::vector<Roof::Peak> faster_peaks(const Roof& roof) {
  std::vector<Roof::Peak> peaks = roof.peaks;
  std::erase_if(peaks,
                [&](const Roof::Peak& peak) { return peak.flops <= roof.flops(ProductKind::f32); });
  std::ranges::stable_sort(peaks, {}, &Roof::Peak::flops);
  return peaks;
}
char mark_of(const Roof::Peak& peak) { return peak.precision == ProductKind::tf32 ? '~' : '='; }

std::string legend_of_roof(const Roof& roof) {
  std::string text = fmt::format("  - f32 peak {}FLOP/s", format_si(roof.flops(ProductKind::f32)));
  for (const Roof::Peak& peak : faster_peaks(roof))
    text += fmt::format(", {} {} peak {}FLOP/s", mark_of(peak), name_of(peak.precision),
                        format_si(peak.flops));
  text += "\n  ";
  for (const Roof::Level& level : roof.levels)
    text +=
        fmt::format("{} {} {:.1f} GB/s{}", &level == &roof.levels.back() ? '/' : '.', level.name,
                    level.bytes_per_second / 1e9, &level == &roof.levels.back() ? "\n" : ", ");
  return text;
}

// What all operators together reach of what the data sheet promises; empty if that is not known.
std::string shares_of_vendor(const std::vector<RooflinePoint>& points, const VendorPeaks& vendor) {
  double seconds = 0, flops = 0, bytes = 0;
  for (const RooflinePoint& p : points)
    seconds += p.seconds, flops += static_cast<double>(p.flops),
        bytes += static_cast<double>(p.bytes);
  std::string text;
  const auto add = [&](std::string_view what, double rate, const std::optional<double>& peak) {
    if (peak && seconds > 0)
      text += fmt::format("{}{:.1f} % of the vendor's {}", text.empty() ? "" : ", ",
                          100 * rate / *peak, what);
  };
  add("peak", flops / seconds, vendor.flops_per_second);
  add("bandwidth", bytes / seconds, vendor.bytes_per_second);
  return text.empty() ? "" : fmt::format("All operators together: {}\n", text);
}

std::string table_of_points(const std::vector<RooflinePoint>& points) {
  const TextColumn columns[] = {{"", true}, {"Operator", true, 40}, {"Share"},
                                {"Calls"},  {"FLOP/byte"},          {"GFLOP/s"},
                                {"GB/s"}};
  std::vector<TextRow> rows;
  std::size_t drawn = 0;
  for (const RooflinePoint& p : points) {
    const bool on_chart = p.intensity() > 0;
    rows.push_back({on_chart ? std::string(1, letter(drawn)) : "", p.name,
                    fmt::format("{:.1f} %", 100 * p.share), std::to_string(p.calls),
                    on_chart ? fmt::format("{:.2f}", p.intensity()) : "",
                    on_chart ? fmt::format("{:.2f}", p.flops_per_second() / 1e9) : "",
                    fmt::format("{:.2f}", p.bytes_per_second() / 1e9)});
    drawn += on_chart;
  }
  return text_table(columns, rows);
}

}  // namespace

double RooflinePoint::intensity() const {
  return over(static_cast<double>(flops), static_cast<double>(bytes));
}
double RooflinePoint::flops_per_second() const { return over(static_cast<double>(flops), seconds); }
double RooflinePoint::bytes_per_second() const { return over(static_cast<double>(bytes), seconds); }

ProfiledOperators roofline_points_from_json(std::string_view text, const std::string& source) {
  ProfiledOperators profile;
  std::vector<RooflinePoint>& points = profile.points;
  try {
    const nlohmann::json table = nlohmann::json::parse(text);
    profile.device = table.value("device", "");
    profile.hardware = table.value("hardware", "");
    profile.threads = std::max(table.value("threads", 0), 0);
    for (const nlohmann::json& row : table.at("rows")) {
      const nlohmann::json& total = row.at("total");
      points.push_back({.name = row.at("name"),
                        .calls = total.at("calls"),
                        .seconds = total.at("time_ns").get<double>() * 1e-9,
                        .flops = total.at("flops"),
                        .bytes = total.at("bytes_read").get<std::int64_t>() +
                                 total.at("bytes_written").get<std::int64_t>(),
                        .share = total.at("share")});
    }
  } catch (const nlohmann::json::exception& error) {
    throw FormatError("{} is no operator table of ridge: {}", source, error.what());
  }
  sort_by_time(points);
  return profile;
}

RooflineRange roofline_range(const std::vector<RooflinePoint>& points, const Roof& roof) {
  const double peak = std::max(roof.fastest_flops(), roof.vendor.flops_per_second.value_or(0));
  double low_x = 0.1, high_x = 4 * peak / roof.memory().bytes_per_second;
  double low_y = peak / 100, high_y = peak;
  for (const RooflinePoint& point : points) {
    if (point.intensity() <= 0 || point.seconds <= 0) continue;
    low_x = std::min(low_x, point.intensity()), high_x = std::max(high_x, point.intensity());
    low_y = std::min(low_y, point.flops_per_second());
    high_y = std::max(high_y, point.flops_per_second());
  }
  const auto down = [](double value) { return std::pow(10, std::floor(std::log10(value))); };
  const auto up = [](double value) { return std::pow(10, std::ceil(std::log10(value))); };
  return {down(low_x), up(high_x), down(low_y), up(high_y)};
}

std::string roofline_text(const std::vector<RooflinePoint>& points, const Roof& roof,
                          std::size_t width, std::size_t height) {
  constexpr std::size_t margin = 14;
  Chart chart(roofline_range(points, roof), std::max(width, margin + 20) - margin,
              std::max<std::size_t>(height, 8));
  const std::size_t columns = std::max(width, margin + 20) - margin;
  const double top = roof.fastest_flops(), f32 = roof.flops(ProductKind::f32);
  const std::vector<Roof::Peak> faster = faster_peaks(roof);
  for (std::size_t c = 0; c < columns; ++c) {
    const double x = chart.intensity_at(c);
    for (const Roof::Level& level : roof.levels) {
      const double rate = x * level.bytes_per_second;
      if (rate < top) chart.draw_line(c, rate, &level == &roof.levels.back() ? '/' : '.');
    }
    const double reach = x * roof.levels.front().bytes_per_second;
    for (const Roof::Peak& peak : faster)
      if (reach >= peak.flops) chart.draw_line(c, peak.flops, mark_of(peak));
    if (reach >= f32) chart.draw_line(c, f32, '-');
  }
  std::size_t drawn = 0;
  for (const RooflinePoint& point : points)
    if (point.intensity() > 0)
      chart.draw_point(point.intensity(), point.flops_per_second(), letter(drawn++));
  return chart.text() + legend_of_roof(roof) + "\n" + table_of_points(points) +
         shares_of_vendor(points, roof.vendor) +
         (roof.doubts.empty() ? ""
                              : fmt::format("Note: of the measured ceilings: {}\n", roof.doubts));
}

}  // namespace ridge
