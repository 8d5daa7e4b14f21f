#include "ridge/study/definition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "ridge/base/digest.h"
#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/base/text_table.h"
#include "ridge/base/utf8.h"
#include "ridge/session/json.h"
#include "ridge/study/run_row.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;

// The workshop does not say its numbers of heads: these make heads of 32 to 128, as usual.
constexpr std::array<StudySize, 5> sizes{{
    {"tiny", 256, 4, 8, 128, 8, "~2.9M", "<5s/iter"},
    {"small", 512, 8, 8, 256, 8, "~20.9M", "10-30s/iter"},
    {"medium", 1024, 12, 16, 512, 16, "~167M", "30-60s/iter"},
    {"large", 2048, 16, 16, 1024, 8, "~1.3B", "1-3min/iter"},
    {"very_large", 4096, 24, 32, 2048, 4, "~10.7B", "5-10min/iter"},
}};

constexpr std::size_t longest_name = 80;

std::string dashed(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '_', '-');
  return text;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

void set_option(RunOptions& options, std::string_view name, std::string_view value) {
  const std::vector<OptionInfo> fields = options_of(options);
  set_from_text(*find_option(fields, name), value);
}

// The same run without what says where it is written and what is reported of it.
RunOptions measured(const RunOptions& options) {
  RunOptions copy = options, plain;
  const std::vector<OptionInfo> from = options_of(copy), to = options_of(plain);
  for (std::size_t i = 0; i < from.size(); ++i)
    if (is_measured_option(from[i]) || from[i].name == "init-from")
      std::visit([&]<class T>(T* value) { *std::get<T*>(to[i].target) = *value; }, from[i].target);
  return plain;
}

StudyVariant variant_of(const RunOptions& base, std::string_view size,
                        std::span<const StudyAxis> axes, std::span<const std::size_t> at,
                        std::span<const std::string> set) {
  StudyVariant variant{.size = std::string(size), .settings = {}, .options = base};
  if (!size.empty())
    for (const auto& [name, value] : settings_of(study_size(size)))
      if (std::ranges::find(set, name) == set.end()) set_option(variant.options, name, value);
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const std::string& value = axes[a].values[at[a]];
    set_option(variant.options, axes[a].option, value);
    variant.settings.emplace_back(axes[a].option, value);
  }
  try {
    variant.options.resolve();
  } catch (const UsageError& error) {
    if (axes.empty()) throw;
    throw UsageError("the variant \"{}\" makes no sense: {}", name_of(variant), error.what());
  }
  variant.options = measured(variant.options);
  return variant;
}

}  // namespace

std::span<const StudySize> study_sizes() { return sizes; }

const StudySize& study_size(std::string_view name) {
  std::vector<std::string> names;
  for (const StudySize& size : sizes) {
    if (dashed(size.name) == dashed(name)) return size;
    names.emplace_back(size.name);
  }
  const std::string near = nearest_name(std::string(name), names);
  throw UsageError("there is no size {}{}", shown(name),
                   near.empty() ? fmt::format("; there are: {}", fmt::join(names, ", "))
                                : "; did you mean " + near + "?");
}

std::vector<std::pair<std::string, std::string>> settings_of(const StudySize& size) {
  return {{"hidden-dim", std::to_string(size.hidden_dim)},
          {"n-layers", std::to_string(size.n_layers)},
          {"n-heads", std::to_string(size.n_heads)},
          {"seq-len", std::to_string(size.seq_len)},
          {"batch-size", std::to_string(size.batch_size)}};
}

bool is_measured_option(const OptionInfo& option) {
  if (option.group == "Profiling" || option.name == "save-every") return false;
  return option.group != "Output" || option.name == "warmup-steps";
}

StudyAxis parse_axis(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos)
    throw UsageError("--vary {} has no values; write it as --vary batch-size=4,8", shown(text));
  std::string name = dashed(text.substr(0, equals));
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  RunOptions scratch;
  const std::vector<OptionInfo> options = options_of(scratch);
  const OptionInfo* const option = find_option(options, name);
  if (!option) {
    std::vector<std::string> names;
    for (const OptionInfo& one : options)
      if (is_measured_option(one)) names.push_back(one.name);
    const std::string near = nearest_name(name, names);
    throw UsageError(
        "--vary {}: there is no such option{}", shown(name),
        near.empty() ? "; ridge study --help lists them" : "; did you mean " + near + "?");
  }
  if (!is_measured_option(*option) || option->name == "network")
    throw UsageError("--vary {} cannot vary: {}", option->name,
                     option->name == "network" ? "a study is about one network, named by --network"
                                               : "it says what is written, not what is measured");
  StudyAxis axis{.option = option->name, .values = split(text.substr(equals + 1))};
  std::set<std::string> seen;
  for (const std::string& value : axis.values) {
    if (value.empty())
      throw UsageError("--vary {} has an empty value; write it as --vary {}=A,B", axis.option,
                       axis.option);
    if (!seen.insert(value).second)
      throw UsageError("--vary {} has {} twice", axis.option, shown(value));
  }
  return axis;
}

std::string name_of(const StudyVariant& variant) {
  std::string text = variant.size;
  for (const auto& [option, value] : variant.settings)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", option, value);
  return text.empty() ? variant.options.network : text;
}

std::string name_without(const StudyVariant& variant, std::string_view option) {
  std::string text = option.empty() ? "" : variant.size;
  for (const auto& [name, value] : variant.settings)
    if (name != option) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  return text;
}

std::string VariantSeries::label_of(const StudyVariant& variant) const {
  if (option.empty()) {
    // By assignments, since GCC 13 crashes where these stand in braces.
    StudyVariant unvaried;
    unvaried.size = variant.size;
    unvaried.options = variant.options;
    return name_of(unvaried);
  }
  const auto found = std::ranges::find(variant.settings, option,
                                       [](const auto& setting) { return setting.first; });
  return found == variant.settings.end() ? "" : found->second;
}

std::vector<VariantSeries> series_of(std::span<const StudyVariant> variants) {
  std::string option;
  const bool is_one_size = std::ranges::all_of(
      variants, [&](const StudyVariant& variant) { return variant.size == variants[0].size; });
  if (is_one_size && !variants.empty())
    for (std::size_t i = variants[0].settings.size(); i-- > 0;)
      if (std::ranges::any_of(variants, [&](const StudyVariant& variant) {
            return variant.settings[i] != variants[0].settings[i];
          }))
        option = variants[0].settings[i].first;
  std::vector<VariantSeries> all;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    const std::string name = name_without(variants[v], option);
    auto found = std::ranges::find(all, name, &VariantSeries::name);
    if (found == all.end()) found = all.insert(all.end(), {name, option, {}});
    found->variants.push_back(v);
  }
  return all;
}

bool StudyDefinition::measures_as(const StudyDefinition& other) const {
  return rounds == other.rounds && seed == other.seed && variants == other.variants;
}

std::vector<StudyVariant> variants_of(const RunOptions& base, std::span<const std::string> names,
                                      std::span<const StudyAxis> axes,
                                      std::span<const std::string> set) {
  std::vector<std::string_view> of_sizes(names.begin(), names.end());
  if (of_sizes.empty()) of_sizes.emplace_back();
  std::set<std::string_view> seen;
  double count = 1;
  for (std::string_view& name : of_sizes) {
    if (!name.empty()) name = study_size(name).name;
    if (!seen.insert(name).second) throw UsageError("the size {} is given twice", name);
  }
  for (const StudyAxis& axis : axes) {
    if (!seen.insert(axis.option).second)
      throw UsageError("--vary {} is given twice: name all its values in one", axis.option);
    count *= static_cast<double>(axis.values.size());
  }
  count *= static_cast<double>(of_sizes.size());
  if (count > static_cast<double>(max_variants))
    throw UsageError("{:.0f} variants are too many: a study has at most {}", count, max_variants);
  std::vector<StudyVariant> variants;
  for (const std::string_view size : of_sizes) {
    std::vector<std::size_t> at(axes.size(), 0);
    for (bool more = true; more;) {
      variants.push_back(variant_of(base, size, axes, at, set));
      more = false;
      for (std::size_t a = axes.size(); a-- > 0 && !more;) {
        more = ++at[a] < axes[a].values.size();
        if (!more) at[a] = 0;
      }
    }
  }
  for (std::size_t i = 0; i < variants.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (variants[i].options == variants[j].options)
        throw UsageError("the variants \"{}\" and \"{}\" are the same run", name_of(variants[j]),
                         name_of(variants[i]));
  return variants;
}

std::string default_study_name(const StudyDefinition& definition) {
  std::vector<std::string> parts;
  const auto add = [&](const std::string& part) {
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
  };
  for (const StudyVariant& variant : definition.variants)
    add(variant.size.empty() ? variant.options.network : variant.size);
  for (const auto& [option, value] : definition.variants.front().settings) add(option);
  std::uint64_t hash = fnv1a(fmt::format("{} {}", definition.rounds, definition.seed));
  for (const StudyVariant& variant : definition.variants)
    hash = fnv1a(to_json(variant.options), hash);
  std::string name = fmt::format("{}", fmt::join(parts, "-"));
  name.resize(std::min(name.size(), longest_name - 5));
  return fmt::format("{}-{:04x}", name, hash & 0xFFFF);
}

std::string checked_study_name(std::string_view name) {
  std::string text(name);
  const bool fits = !text.empty() && display_width(text) <= longest_name &&
                    text == printable(text) && text.find('/') == std::string::npos &&
                    text.front() != '.' && text.front() != '-';
  if (!fits)
    throw UsageError(
        "{} is no name of a study: give one of at most {} characters that a directory can have",
        shown(name), longest_name);
  return text;
}

std::vector<std::size_t> order_of_round(const StudyDefinition& definition, std::int64_t round) {
  std::vector<std::size_t> order(definition.variants.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[uniform_integer(static_cast<std::uint32_t>(i), definition.seed,
                                                  static_cast<std::uint64_t>(round), i)]);
  return order;
}

std::string to_json(const StudyDefinition& definition) {
  Json variants = Json::array();
  for (const StudyVariant& variant : definition.variants) {
    Json settings = Json::object();
    for (const auto& [option, value] : variant.settings) settings[option] = value;
    variants.push_back(
        {{"size", variant.size}, {"settings", settings}, {"options", json_of(variant.options)}});
  }
  return one_line({{"schema", "ridge-study-1"},
                   {"rounds", definition.rounds},
                   {"seed", definition.seed},
                   {"output", definition.output},
                   {"profiles", definition.profiles},
                   {"profile", json_of(definition.profile)},
                   {"time_limit", definition.time_limit},
                   {"variants", variants}});
}

StudyDefinition study_from_json(std::string_view text) {
  const Json json = json_object(text, "the definition of the study");
  try {
    StudyDefinition definition{.rounds = json.at("rounds"),
                               .seed = json.at("seed"),
                               .variants = {},
                               .output = json.at("output"),
                               .profiles = json.at("profiles"),
                               .profile = {},
                               .time_limit = json.at("time_limit")};
    apply_json(definition.profile, json.at("profile").dump());
    for (const Json& from : json.at("variants")) {
      StudyVariant& variant = definition.variants.emplace_back();
      variant.size = from.at("size");
      for (const auto& [option, value] : from.at("settings").items())
        variant.settings.emplace_back(option, value.get<std::string>());
      apply_json(variant.options, from.at("options").dump());
    }
    if (definition.variants.empty()) throw FormatError("the study has no variants");
    return definition;
  } catch (const Json::exception&) {
    throw FormatError("the definition of the study is damaged, or of a newer program");
  }
}

}  // namespace ridge
