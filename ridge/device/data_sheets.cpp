#include "ridge/device/data_sheets.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "ridge/base/error.h"

namespace ridge {
namespace {

// Words of letters and digits, in lower case: "NVIDIA L4-SXM" has three.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter))
      words.back() += static_cast<char>(std::tolower(letter));
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

DataSheet sheet_of(const std::string& line) {
  std::istringstream fields(line);
  const auto text = [&] {
    std::string field;
    if (!std::getline(fields, field, '\t') || field.empty())
      throw FormatError("data_sheets.tsv: a field is missing in '{}'", line);
    return field;
  };
  const auto number = [&] { return std::stod(text()); };
  DataSheet sheet;
  sheet.name = text();
  sheet.cores = static_cast<int>(number());
  for (double* const rate :
       {&sheet.f32, &sheet.tf32, &sheet.bf16, &sheet.f16, &sheet.f8, &sheet.s8})
    *rate = number() * 1e12;
  sheet.bytes_per_second = number() * 1e9;
  sheet.source = text();
  return sheet;
}

double promised(const DataSheet& sheet, ProductKind kind) {
  switch (kind) {
    case ProductKind::f32:
      return sheet.f32;
    case ProductKind::tf32:
      return sheet.tf32;
    case ProductKind::bf16x6:
      return sheet.bf16 / 6;
    case ProductKind::bf16:
      return sheet.bf16;
    case ProductKind::f16:
      return sheet.f16;
    case ProductKind::f8e4m3:
    case ProductKind::f8e5m2:
      return sheet.f8;
    case ProductKind::s8:
      return sheet.s8;
  }
  return 0;
}

}  // namespace

double DataSheet::flops(ProductKind kind, int threads) const {
  const double rate = promised(*this, kind);
  const double share = cores > 0 ? static_cast<double>(std::clamp(threads, 1, cores)) / cores : 1.0;
  return share * (rate > 0 ? rate : f32);
}

const std::vector<DataSheet>& data_sheets() {
  static const std::vector<DataSheet> sheets = [] {
    std::vector<DataSheet> all;
    std::istringstream lines{std::string(data_sheets_text)};
    for (std::string line; std::getline(lines, line);)
      if (!line.empty() && line.front() != '#') all.push_back(sheet_of(line));
    return all;
  }();
  return sheets;
}

const DataSheet* data_sheet_of(std::string_view hardware) {
  const std::vector<std::string> has = words_of(hardware);
  const auto found = std::ranges::find_if(data_sheets(), [&](const DataSheet& sheet) {
    return std::ranges::all_of(words_of(sheet.name), [&](const std::string& word) {
      return std::ranges::find(has, word) != has.end();
    });
  });
  return found == data_sheets().end() ? nullptr : &*found;
}

}  // namespace ridge
