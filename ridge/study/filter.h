#pragma once

// Filters of runs, as a person types them:
//
//   version=v4 and gpu~NVIDIA
//   (batch_size>=8 or tag=baseline) and not dtype=fp32
//   created>2026-11-01 and hidden_dim=512 and system_info.host='build 7'
//
// A comparison is a name, one of = != < <= > >= ~ !~ and a value, which quotes may surround
// ('it''s'). ~ is "contains", whatever the case of ASCII letters. Names are
//
// - columns (run_row.h), in whatever table they are;
// - tag: = compares all tags of a run with the value; != says that none is it;
// - options of the run, by their names with hyphens or underscores;
// - paths into the record or its context, with dots: performance_summary.variation.
//
// A date may be a year, a month, a day or a moment; = is anywhere within it, > after its end. What
// a run has no value for is like no value: it is != 224, and neither < nor > it.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/study/sqlite.h"

namespace ridge {

// A condition on a row of `runs`, and the values of its parameters; without text it holds for all.
struct SqlCondition {
  std::string sql;
  std::vector<SqlValue> values;
};

// What a filter may name beside columns.
struct FilterNames {
  std::vector<std::string> options;  // "hidden-dim"
  // Whether any record, or context, has a path such as $."system_info"."host".
  std::function<bool(bool context, const std::string& path)> has_path;
};

// A text as a value in a filter: in quotes, with those in it doubled.
std::string filter_value(std::string_view text);

// The condition of a filter; text of the user goes into its values alone. UsageError, with the
// place, for what is no filter, and with near names for a name that nobody knows.
SqlCondition condition_of(std::string_view filter, const FilterNames& names);

}  // namespace ridge
