#include "ridge/trace/check/repair.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "ridge/base/utf8.h"

namespace ridge::trace {
namespace {

constexpr std::string_view digits = "0123456789";

// Whether 64 bits hold an integer, with or without a sign.
bool fits(std::string_view integer) {
  const char *begin = integer.data(), *end = begin + integer.size();
  std::int64_t with_sign = 0;
  std::uint64_t without = 0;
  return std::from_chars(begin, end, with_sign).ec == std::errc() ||
         std::from_chars(begin, end, without).ec == std::errc();
}

class Repair {
 public:
  Repair(std::string_view text, TraceFile& file) : rest_(text), file_(file) {}

  std::string run() {
    while (!rest_.empty()) {
      if (rest_.front() == '"')
        copy_string();
      else
        copy_token();
    }
    for (std::size_t at = 0;
         (at += find_invalid_utf8(std::string_view(out_).substr(at))) < out_.size();) {
      file_.invalid_utf8 = true;
      out_[at] = '?';
    }
    return std::move(out_);
  }

 private:
  void copy(std::size_t bytes) {
    out_ += rest_.substr(0, bytes);
    rest_.remove_prefix(std::min(bytes, rest_.size()));
  }

  void copy_string() {
    copy(1);
    while (!rest_.empty() && rest_.front() != '"') {
      if (rest_.front() == '\\') {
        copy(2);
        continue;
      }
      const bool control = static_cast<unsigned char>(rest_.front()) < 0x20;
      file_.control_characters |= control;
      copy(1);
      if (control) out_.back() = ' ';
    }
    copy(1);
  }

  void copy_token() {
    for (const std::string_view word : {"NaN", "Infinity"}) {
      if (!rest_.starts_with(word)) continue;
      file_.numbers_beyond_json = true;
      out_ += '0';
      return rest_.remove_prefix(word.size());
    }
    const std::size_t begin = rest_.front() == '-';
    const std::size_t end = std::min(rest_.find_first_not_of(digits, begin), rest_.size());
    if (end == begin) return copy(1);
    // The digits of a fraction or an exponent are copied with what stands before them.
    const std::string_view integer = rest_.substr(0, end);
    copy(end);
    if (!rest_.empty() && std::string_view(".eE").find(rest_.front()) != std::string_view::npos)
      copy(std::min(rest_.find_first_not_of("0123456789.eE+-"), rest_.size()));
    else if (!fits(integer))
      out_ += ".0";
  }

  std::string_view rest_;
  TraceFile& file_;
  std::string out_;
};

}  // namespace

std::string repaired(std::string_view text, TraceFile& file) { return Repair(text, file).run(); }

}  // namespace ridge::trace
