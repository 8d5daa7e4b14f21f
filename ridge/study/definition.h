#pragma once

// What a study measures: its variants, each a run of its own, in rounds.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/session/options.h"

namespace ridge {

// A problem size of the workshop's study, for its LLaMA.
struct StudySize {
  std::string_view name;
  std::int64_t hidden_dim, n_layers, n_heads, seq_len, batch_size;
  // What the workshop claims of it. A run may show something else.
  std::string_view claimed_parameters;  // "~2.9M"
  std::string_view claimed_time;        // of a step: "<5s/iter"
};
std::span<const StudySize> study_sizes();            // the smallest first
const StudySize& study_size(std::string_view name);  // UsageError, naming the nearest

// Options that a size sets, as option names and values.
std::vector<std::pair<std::string, std::string>> settings_of(const StudySize& size);

// An option that varies, under its name, and its values as texts.
struct StudyAxis {
  std::string option;
  std::vector<std::string> values;
};
// Reads "batch-size=4,8"; also with underscores or an alias. UsageError for an option that there is
// not, for one that no study varies (files and reports), and for a list that is empty or repeats.
StudyAxis parse_axis(std::string_view text);

// Whether an option has a place in the definition of what is measured, so that it may vary: files,
// reports and profiles have none.
bool is_measured_option(const OptionInfo& option);

struct StudyVariant {
  std::string size;                                           // a name; empty: of no size
  std::vector<std::pair<std::string, std::string>> settings;  // value of each axis, in their order
  RunOptions options;                                         // resolved

  bool operator==(const StudyVariant&) const = default;
};
// "tiny", "batch-size 8, version v4", "tiny, seq-len 512".
std::string name_of(const StudyVariant& variant);
// The same but for one option, or for the size if none is named: "version v4".
std::string name_without(const StudyVariant& variant, std::string_view option);

struct StudyDefinition {
  std::int64_t rounds = 3;
  std::uint64_t seed = 42;  // of the order within a round
  std::vector<StudyVariant> variants;

  // Where and how, which does not define what is measured.
  std::string output;     // directory, absolute
  bool profiles = false;  // whether each variant runs once more with a profile
  RunOptions profile;     // what is profiled then: the profiling options alone count
  double time_limit = 0;  // of a measurement, in seconds

  // Whether the other measures the same.
  bool measures_as(const StudyDefinition& other) const;
};

inline constexpr std::size_t max_variants = 200;

// The product of sizes and axes, the last axis varying fastest, over `base`, whose options named in
// `set` stay as they are whatever a size says. Each is resolved, and has no files, reports or
// profiles. UsageError for a variant that makes no sense, and for more than max_variants.
std::vector<StudyVariant> variants_of(const RunOptions& base, std::span<const std::string> sizes,
                                      std::span<const StudyAxis> axes,
                                      std::span<const std::string> set);

// "tiny-small" or "resnet18-batch-size", and a digest of what is measured: the same definition has
// the same name.
std::string default_study_name(const StudyDefinition& definition);
// A name that a study can have, which a directory can have too: UsageError for any other.
std::string checked_study_name(std::string_view name);

// Variants that differ in their size alone, or where there is one size, in the first option that
// varies; in the order of the study.
struct VariantSeries {
  std::string name;    // what they have in common: "version v1, dtype fp32"; empty if nothing
  std::string option;  // in which they differ; empty: in their size
  std::vector<std::size_t> variants;
  // What a variant is within the series: "tiny", "8".
  std::string label_of(const StudyVariant& variant) const;
};
std::vector<VariantSeries> series_of(std::span<const StudyVariant> variants);

// The variants of a round, by number, in an order that the seed and the round decide.
std::vector<std::size_t> order_of_round(const StudyDefinition& definition, std::int64_t round);

std::string to_json(const StudyDefinition& definition);
// FormatError for a text that is none.
StudyDefinition study_from_json(std::string_view json);

}  // namespace ridge
