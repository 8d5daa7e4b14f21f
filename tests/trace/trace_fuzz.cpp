// Damages traces in many ways and has each checked, read, reported, and compared with the one
// before it: trace_fuzz COUNT [SEED] FILE... Built with a sanitizer, it finds what reads beyond a
// buffer. Prints how many inputs were read and how many were refused; anything else than a
// FormatError ends it.

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/gzip.h"
#include "ridge/trace/check/check.h"
#include "ridge/trace/diff.h"
#include "ridge/trace/report.h"

namespace {

using namespace ridge;
using Random = std::mt19937_64;

std::string file_text(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (is_gzip(std::as_bytes(std::span(text))))
    text = gunzip(std::as_bytes(std::span(text)), std::size_t{1} << 30, path);
  return text;
}

// A stretch of events of a trace that is short enough to be read often; now and then all of a small
// trace, which alone is JSON.
std::string excerpt(const std::string& text, Random& random) {
  constexpr std::size_t small = 1 << 16;
  const std::size_t bytes = 200 + random() % 3000;
  if (text.size() <= bytes || (text.size() <= small && random() % 4 == 0)) return text;
  std::size_t begin = text.find("{\"ph\"", random() % (text.size() - bytes));
  if (begin == std::string::npos) begin = text.size() - bytes;
  return "{\"traceEvents\":[" + text.substr(begin, bytes);
}

void damage(std::string& text, Random& random) {
  static const std::string parts[] = {"{",
                                      "}",
                                      "[",
                                      "]",
                                      "\"",
                                      ",",
                                      ":",
                                      "\\",
                                      "},{",
                                      "]}",
                                      "null",
                                      "-",
                                      "1e308",
                                      "0.1",
                                      "\xFF",
                                      "\x01",
                                      "\"ph\":\"X\"",
                                      "\\u0000",
                                      "\"args\":{",
                                      "99999999999999999999",
                                      "\"dur\":",
                                      "[[[["};
  if (text.empty()) return;
  const std::size_t at = random() % text.size();
  switch (random() % 6) {
    case 0:
      text[at] = static_cast<char>(random());
      break;
    case 1:
      text.erase(at, 1 + random() % 20);
      break;
    case 2:
      text.insert(at, parts[random() % std::size(parts)]);
      break;
    case 3:
      text.resize(at);
      break;
    case 4:
      text.insert(at, text.substr(random() % text.size(), random() % 200));
      break;
    default:
      text[at] ^= static_cast<char>(1 << random() % 8);
      break;
  }
}

// Compares a trace with itself and with the one before it, which it becomes. Returns how much there
// was to tell.
std::size_t compared(trace::StepTree tree, trace::StepTree& before) {
  std::size_t bytes = 0;
  std::swap(tree, before);
  for (const trace::StepTree* other : {&before, &tree}) {
    try {
      const std::vector<trace::TraceDiff> diffs = {trace::diff_of(*other, before)};
      bytes += trace::diff_text(diffs, 5).size() + trace::diff_json(diffs).size();
    } catch (const FormatError&) {  // nothing to compare
    }
  }
  return bytes;
}

// Whether it can be checked, with the same outcome in pieces as whole.
bool is_checked(const std::string& text, const trace::ReadOptions& options) {
  const auto outcome = [&](const trace::ReadOptions& how) -> std::string {
    try {
      return trace::trace_check_json(trace::check_trace(text, "fuzz", how));
    } catch (const FormatError&) {
      return {};
    }
  };
  const std::string whole = outcome({.threads = 1, .progress = {}});
  if (outcome(options) != whole) {
    fmt::print("in pieces of {} bytes checked otherwise than whole:\n{}\n", options.piece_bytes,
               text);
    std::abort();
  }
  return !whole.empty();
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    fmt::print(stderr, "usage: trace_fuzz COUNT SEED FILE...\n");
    return 2;
  }
  const std::uint64_t inputs = std::strtoull(arguments[1], nullptr, 10);
  Random random(std::strtoull(arguments[2], nullptr, 10));
  std::vector<std::string> texts;
  for (int i = 3; i < count; ++i) texts.push_back(file_text(arguments[i]));
  trace::StepTree before;
  std::uint64_t read = 0, refused = 0, events = 0, checked = 0;
  for (std::uint64_t i = 0; i < inputs; ++i) {
    std::string text = excerpt(texts[random() % texts.size()], random);
    for (std::uint64_t damages = random() % 6; damages > 0; --damages) damage(text, random);
    if (random() % 16 == 0) {
      text = gzipped(text);
      if (random() % 2 == 0) damage(text, random);
    }
    const trace::ReadOptions options{
        .threads = 1, .piece_bytes = 64 + random() % 4096, .progress = {}};
    checked += is_checked(text, options);
    try {
      trace::Trace trace = trace::read_text(text, "fuzz", options);
      const trace::RunReport reports = trace::report_ranks({trace::report_of(trace)});
      if (random() % 8 == 0)
        events += trace::report_text(reports, 5).size() + trace::report_json(reports).size();
      ++read;
      events += compared(trace::step_tree(std::move(trace)), before);
    } catch (const FormatError&) {
      ++refused;
    }
  }
  fmt::print("{} inputs: {} read, {} refused, {} checked ({} bytes told)\n", inputs, read, refused,
             checked, events);
  return 0;
}
