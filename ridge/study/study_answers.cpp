// The questions of the workshop's performance study, answered by what a study measured.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ridge/base/units.h"
#include "ridge/study/study_laws.h"
#include "ridge/study/study_scaling.h"

namespace ridge {
namespace {

constexpr double saturated = 0.9;       // of the best rate
constexpr double significant = 0.25;    // of the peak memory
constexpr double workshop_minutes = 5;  // that a run of the workshop's 50 steps may take
constexpr std::int64_t workshop_steps = 50;
constexpr std::size_t most_named = 5;   // variants in a sentence; more are told by series
constexpr std::size_t most_series = 6;  // in a sentence

constexpr std::string_view batch_question = "Which batch size is recommended?";

using Variants = std::vector<std::size_t>;

class Answers {
 public:
  Answers(const StudyResult& result, const std::vector<StudyLaw>& laws)
      : result_(result), laws_(laws), series_(series_of(result.definition.variants)) {
    for (std::size_t v = 0; v < result.variants.size(); ++v) {
      if (result.variants[v].seconds) measured_.push_back(v);
      all_.push_back(v);
    }
    // By size of the work, so that a sentence goes from small to large.
    const auto by_flops = [&](std::size_t v) { return result.plans[v].flops; };
    std::ranges::stable_sort(measured_, {}, by_flops);
    std::ranges::stable_sort(all_, {}, by_flops);
    std::set<std::string> sizes;
    for (const StudyVariant& variant : result.definition.variants) sizes.insert(variant.size);
    has_sizes_ = sizes.size() > 1;
    has_attention_ = std::ranges::any_of(
        result.plans, [](const VariantPlan& plan) { return plan.attention_flops > 0; });
  }

  std::vector<StudyAnswer> all() && {
    if (measured_.empty()) return {};
    throughput();
    scaling();
    if (result_.gathered) return std::move(answers_);  // the rest is by the plans
    memory();
    compute();
    practice();
    return std::move(answers_);
  }

 private:
  void add(std::string_view heading, std::string_view question, std::string text) {
    if (text.ends_with('\n')) text.pop_back();
    if (!text.empty())
      answers_.push_back({std::string(heading), std::string(question), std::move(text)});
  }
  std::string name(std::size_t v) const { return name_of(result_.definition.variants[v]); }
  const VariantPlan& plan(std::size_t v) const { return result_.plans[v]; }
  const MeasuredVariant& at(std::size_t v) const { return result_.variants[v]; }

  std::string label(const VariantSeries& series, std::size_t v) const {
    return series.label_of(result_.definition.variants[v]);
  }
  // What is said of a variant in a list of its series: "tiny 12 %", or "12 % at batch-size 4" of
  // the first and "24 % at 8" of those after it.
  std::string listed(const VariantSeries& series, std::size_t v, bool is_first,
                     const std::string& text) const {
    if (series.option.empty()) return fmt::format("{} {}", label(series, v), text);
    return fmt::format("{} at {}{}", text, is_first ? series.option + " " : "", label(series, v));
  }
  // What is said of each of some variants: "Peaks: tiny 12 %; small 30 %." Where there are many, as
  // a list with an item for each series, or for the first and last of many: the tables have all.
  template <class Text>
  std::string told(std::string_view what, const Variants& variants, const Text& text) const {
    std::vector<std::string> parts;
    if (variants.size() <= most_named) {
      for (const std::size_t v : variants) parts.push_back(fmt::format("{} {}", name(v), text(v)));
      return fmt::format("{}: {}.", what, fmt::join(parts, "; "));
    }
    for (const VariantSeries& series : series_) {
      Variants members = series.variants;
      std::erase_if(
          members, [&](std::size_t v) { return std::ranges::find(variants, v) == variants.end(); });
      if (!members.empty())
        parts.push_back(series.name + (series.name.empty() ? "" : ": ") +
                        list_of(series, members, text));
    }
    if (parts.size() > most_series) parts = {parts.front(), parts.back()};
    return itemized(what, parts);
  }
  template <class Text>
  std::string list_of(const VariantSeries& series, const Variants& members,
                      const Text& text) const {
    std::vector<std::string> texts, list;
    for (const std::size_t v : members) {
      texts.push_back(text(v));
      list.push_back(listed(series, v, list.empty(), texts.back()));
    }
    const bool is_same = std::ranges::all_of(texts, [&](const auto& t) { return t == texts[0]; });
    return is_same && texts.size() > 1 ? texts[0] + " throughout"
                                       : fmt::format("{}", fmt::join(list, ", "));
  }
  static std::string itemized(std::string_view what, const std::vector<std::string>& items) {
    if (items.size() == 1) return fmt::format("{}: {}.", what, items.front());
    return fmt::format("{}:\n- {}.\n", what, fmt::join(items, ".\n- "));
  }
  static std::string then(const std::string& text, std::string_view more) {
    return fmt::format("{}{}{}", text, text.ends_with('\n') || more.empty() ? "" : " ", more);
  }
  template <class Value>
  std::size_t largest(const Variants& variants, const Value& value) const {
    return *std::ranges::max_element(variants, {}, value);
  }
  std::vector<const StudyLaw*> laws_by(std::string_view axis, StudyQuantity quantity) const {
    std::vector<const StudyLaw*> found;
    for (const StudyLaw& one : laws_)
      if (one.quantity == quantity && one.axis == axis) found.push_back(&one);
    return found;
  }
  std::vector<const StudyLaw*> powers_of_parameters(StudyQuantity quantity) const {
    std::vector<const StudyLaw*> found = laws_by("parameters", quantity);
    std::erase_if(found, [](const StudyLaw* one) { return !one->power; });
    return found;
  }
  // "as the power -1.10 of the parameters", or as several, each with where it holds.
  static std::string powers_text(const std::vector<const StudyLaw*>& laws) {
    std::vector<std::string> parts;
    for (const StudyLaw* one : laws)
      parts.push_back(fmt::format("{:.2f}{}", one->power->coefficients[1],
                                  laws.size() > 1 ? " with " + one->where : ""));
    return laws.size() == 1
               ? fmt::format("as the power {} of the parameters", parts.front())
               : fmt::format("as a power of the parameters: {}", fmt::join(parts, "; "));
  }
  double rate(std::size_t v) const { return at(v).flops_per_second().value_or(0); }
  double attention_share_of_peak(std::size_t v) const {
    return real(plan(v).attention_peak_bytes) / real(plan(v).peak_bytes);
  }
  double intensity(std::size_t v) const {
    return real(plan(v).flops) / real(std::max<std::int64_t>(1, plan(v).bytes));
  }
  bool has_ceilings(std::size_t v) const {
    return plan(v).computing_seconds + plan(v).moving_seconds > 0;
  }
  double computing_share(std::size_t v) const {
    return plan(v).computing_seconds / (plan(v).computing_seconds + plan(v).moving_seconds);
  }

  void throughput() {
    constexpr std::string_view heading = "Throughput scaling";
    if (has_sizes_) add(heading, "Does throughput decrease linearly with model size?", by_size());
    add(heading, "At what size is the device saturated?", saturation());
    std::vector<std::string> batches;
    for (const StudyLaw* one : laws_by("batch-size", StudyQuantity::throughput))
      batches.push_back(by_batch(*one));
    add(heading, "How does the batch size affect throughput?",
        fmt::format("{}", fmt::join(batches, "\n")));
    if (has_sizes_ && batches.empty())
      add(heading, "How does the batch size affect throughput?",
          fmt::format("This study does not vary it. Measure: ridge study {} --vary "
                      "batch-size=1,2,4,8,16",
                      result_.definition.variants[measured_.back()].size));
  }

  void scaling() {
    std::vector<std::string> weak, strong;
    for (const ScalingPoint& p : scaling_of(result_))
      (p.is_weak ? weak : strong)
          .push_back(fmt::format("{} ranks with a batch of {}: {}", p.ranks, p.batch,
                                 efficiency_text(p.efficiency)));
    constexpr std::string_view heading = "Several ranks";
    if (!weak.empty())
      add(heading, "What is the scaling efficiency?",
          itemized("With the batch of one for each", weak));
    if (!strong.empty())
      add(heading, "What is it worth to share a batch?",
          itemized("Of so many times one rank's samples a second", strong));
  }

  std::string by_size() const {
    std::vector<const StudyLaw*> laws = powers_of_parameters(StudyQuantity::throughput);
    if (laws.empty()) return "";
    std::string text =
        fmt::format("It falls {}; -1 would be in inverse proportion.", powers_text(laws));
    const std::vector<StudyPoint>& points = laws.front()->points;
    // A line whose sizes failed has fewer points than the others.
    std::erase_if(laws, [&](const StudyLaw* one) { return one->points.size() != points.size(); });
    for (std::size_t i = 1; i < points.size(); ++i) {
      const StudyPoint &from = points[i - 1], &to = points[i];
      const auto per_sample = [&](std::size_t v) {
        return real(plan(v).flops) / real(plan(v).samples_per_step);
      };
      std::vector<std::string> divisors;
      for (const StudyLaw* one : laws)
        divisors.push_back(fmt::format("{:.1f}", one->points[i - 1].y / one->points[i].y));
      text += fmt::format(
          " From {} to {}: {:.1f} times the parameters, {:.1f} times the FLOPs of a {}, "
          "samples/s divided by {}{}.",
          size_of(from.variant), size_of(to.variant), to.x / from.x,
          per_sample(to.variant) / per_sample(from.variant), plan(to.variant).sample,
          fmt::join(divisors, ", "), i == 1 && laws.size() > 1 ? ", in that order" : "");
    }
    return text;
  }

  std::string size_of(std::size_t v) const { return result_.definition.variants[v].size; }

  std::string saturation() const {
    std::vector<std::string> parts;
    bool is_open = false;
    for (const VariantSeries& series : series_) {
      Variants members = measured_;  // by FLOPs
      std::erase_if(members, [&](std::size_t v) {
        return std::ranges::find(series.variants, v) == series.variants.end();
      });
      if (members.size() < 2 || rate(members.front()) <= 0) continue;
      // Of versions of one step there is nothing to say by size.
      if (2 * plan(members.back()).flops < 3 * plan(members.front()).flops) continue;
      const std::size_t best = largest(members, [&](std::size_t v) { return rate(v); });
      const auto first = std::ranges::find_if(
          members, [&](std::size_t v) { return rate(v) >= saturated * rate(best); });
      is_open |= *first == members.back();
      std::vector<std::string> list;
      for (const std::size_t v : members)
        list.push_back(
            listed(series, v, list.empty(), fmt::format("{:.0f} %", 100 * rate(v) / rate(best))));
      parts.push_back(fmt::format(
          "{}from {}{} on ({}; 100 % are {}FLOP/s)", series.name.empty() ? "" : series.name + ": ",
          series.option.empty() ? "" : series.option + " ", label(series, *first),
          fmt::join(list, ", "), format_si(rate(best))));
    }
    if (parts.empty()) return "";
    const std::string text = itemized("90 % of the best rate is reached", parts);
    return is_open ? then(text, "Where that is the largest, it may not have reached the limit yet.")
                   : text;
  }

  // The smallest batch that reaches most of what was measured.
  static const StudyPoint& saturating_point(const StudyLaw& one) {
    const double most = std::ranges::max(one.points, {}, &StudyPoint::y).y;
    return *std::ranges::find_if(
        one.points, [&](const StudyPoint& point) { return point.y >= saturated * most; });
  }

  std::string by_batch(const StudyLaw& one) const {
    const std::string where = one.where.empty() ? "" : fmt::format("With {}: ", one.where);
    const auto batch = saturating_batch(one);
    if (!batch) {
      const bool unclear = one.saturation && !one.saturation->is_clear;
      return fmt::format(
          "{}from a batch of {:.0f} to one of {:.0f}, samples/s go from {:.4g} to {:.4g}, "
          "and {:.0f} reaches 90 % of the most. {}",
          where, one.points.front().x, one.points.back().x, one.points.front().y,
          one.points.back().y, saturating_point(one).x,
          unclear ? "A part of the step that larger batches would share is not told from none."
                  : "The time of a step is no line from which a limit would follow.");
    }
    const double largest_batch = one.points.back().x;
    return fmt::format(
        "{}samples/s are {}, x the batch. They approach {:.4g}, and a batch of {:.0f} reaches 90 % "
        "of that{}.",
        where, one.text(), one.saturation->most, std::ceil(*batch),
        *batch > largest_batch
            ? fmt::format(", which is beyond the {:.0f} that were measured", largest_batch)
            : "");
  }

  void memory() {
    constexpr std::string_view heading = "Memory scaling";
    if (const auto laws = powers_of_parameters(StudyQuantity::peak_memory); !laws.empty())
      add(heading, "Is memory proportional to the parameters?",
          fmt::format("The peak grows {}; 1 would be proportional. Activations grow with batch and "
                      "sequence too, which differ among the sizes.",
                      powers_text(laws)));
    if (has_attention_) {
      add(heading, "How does memory scale with the length of the sequence?", by_length());
      add(heading, "Where does attention's memory become significant?", attention_memory());
    }
    add(heading, "What is the overhead, peak over parameters?",
        then(told("Times as much as the parameters", all_,
                  [&](std::size_t v) {
                    return fmt::format("{:.1f}",
                                       real(plan(v).peak_bytes) / real(plan(v).parameter_bytes));
                  }),
             result_.definition.variants.front().options.use() == Use::training
                 ? "Parameters and the optimizer's two moments alone would be 3; the rest is "
                   "activations."
                 : "The rest is activations."));
  }

  // Whether the square of the length matters for a hundredth of the peak where it was planned.
  bool squared(std::size_t v) const {
    const double length = 3 * real(plan(v).tokens_per_sample);
    const double square = plan(v).bytes_per_token_squared * length * length;
    return square > 0.01 * (square + plan(v).bytes_per_token * length + plan(v).fixed_bytes);
  }
  std::string by_length() const {
    Variants shown = has_sizes_ ? all_ : Variants{all_.front()};
    std::erase_if(shown, [&](std::size_t v) { return plan(v).bytes_per_token == 0; });
    if (shown.empty()) return "";
    const bool is_quadratic = std::ranges::any_of(shown, [&](std::size_t v) { return squared(v); });
    const std::string_view what =
        is_quadratic
            ? "By a linear and a quadratic part, S the length, by the plan in MB; in brackets the "
              "length from which the square is the larger"
            : "Linearly, S the length, by the plan in MB";
    return told(what, shown, [&](std::size_t v) {
      std::string text = fmt::format("{:.4g} + {:.4g} S", plan(v).fixed_bytes / mega,
                                     plan(v).bytes_per_token / mega);
      if (squared(v))
        text += fmt::format(" + {:.3g} S^2 ({:.0f})", plan(v).bytes_per_token_squared / mega,
                            plan(v).bytes_per_token / plan(v).bytes_per_token_squared);
      return text;
    });
  }

  std::string attention_memory() const {
    const auto first = std::ranges::find_if(
        all_, [&](std::size_t v) { return attention_share_of_peak(v) >= significant; });
    const std::string shares = told(
        "What attention computed holds of the peak", all_,
        [&](std::size_t v) { return fmt::format("{:.0f} %", 100 * attention_share_of_peak(v)); });
    const std::string quarter = first == all_.end() ? "It is nowhere a quarter."
                                : all_.size() <= most_named
                                    ? fmt::format("It is a quarter from {} on.", name(*first))
                                    : "";
    return then(then(shares, quarter),
                told("It passes all else together at a length of", all_, [&](std::size_t v) {
                  return plan(v).attention_passes_at
                             ? fmt::format("{}", *plan(v).attention_passes_at)
                             : fmt::format("none up to {}", longest_planned_sequence);
                }));
  }

  void compute() {
    constexpr std::string_view heading = "Compute characteristics";
    const std::size_t best = largest(measured_, [&](std::size_t v) { return rate(v); });
    add(heading, "Which variant uses the device best?",
        then(told(name(best) + (result_.utilization(best)
                                    ? ". FLOP/s, and in brackets the part of the device's peak"
                                    : ". FLOP/s"),
                  measured_,
                  [&](std::size_t v) {
                    const auto used = result_.utilization(v);
                    return format_si(rate(v)) +
                           (used ? fmt::format(" ({:.0f} %)", 100 * *used) : "");
                  }),
             result_.utilization(best) ? ""
                                       : "How much of the device that is, is known once ridge "
                                         "roofline has measured it."));
    add(heading, "How does the arithmetic intensity change?",
        told("FLOPs per byte that kernels read and write", all_,
             [&](std::size_t v) { return fmt::format("{:.1f}", intensity(v)); }));
    add(heading, "Is it bound by memory or by compute?", bound());
    if (has_attention_) add(heading, "Which dominates, attention or feed-forward?", shares());
  }

  std::string bound() const {
    Variants known = all_;
    std::erase_if(known, [&](std::size_t v) { return !has_ceilings(v); });
    if (known.empty())
      return "The ceilings of this device are not known. Measure them with ridge roofline, and "
             "begin the study anew.";
    const std::size_t most = largest(known, [&](std::size_t v) { return computing_share(v); });
    const std::size_t least = largest(known, [&](std::size_t v) { return -computing_share(v); });
    return then(
        told("By the ceilings, computing is this part of the least time of a step, and moving data "
             "the rest",
             known,
             [&](std::size_t v) { return fmt::format("{:.0f} %", 100 * computing_share(v)); }),
        fmt::format("Most compute-bound is {}, most memory-bound {}.", name(most), name(least)));
  }

  std::string shares() const {
    const auto share = [&](std::size_t v, std::int64_t flops) {
      return 100 * real(flops) / real(plan(v).flops);
    };
    return told("By FLOPs, attention and feed-forward have", all_, [&](std::size_t v) {
      return fmt::format("{:.0f} and {:.0f} %", share(v, plan(v).attention_flops),
                         share(v, plan(v).feed_forward_flops));
    });
  }

  // What the workshop asks of its five sizes, and of the batch of one of them.
  void practice() {
    constexpr std::string_view heading = "Practice";
    if (!has_sizes_) {
      if (!laws_by("batch-size", StudyQuantity::throughput).empty())
        add(heading, batch_question, batches());
      return;
    }
    const std::size_t most =
        largest(all_, [&](std::size_t v) { return attention_share_of_peak(v); });
    add(heading, "Which size would benefit most from flash attention?",
        fmt::format(
            "{}, where attention holds {:.0f} % of the peak and does {:.0f} % of the FLOPs. "
            "Try it with --version v3.",
            name(most), 100 * attention_share_of_peak(most),
            100 * real(plan(most).attention_flops) / real(plan(most).flops)));
    add(heading, batch_question, batches());
    add(heading, "Which is the largest model that can be trained here?", largest_model());
    add(heading, "How could throughput be improved?", improvement());
    add(heading, "Which size is best for the workshop?", best_for_workshop());
  }

  std::string batches() const {
    const auto fitting = [&](std::size_t v) {
      return plan(v).largest_batch > 0 ? format_count(plan(v).largest_batch) : "none";
    };
    const auto measured = laws_by("batch-size", StudyQuantity::throughput);
    if (measured.empty())
      return then(told("The largest that fit in the memory that was left", all_, fitting),
                  "The smallest that saturates the device is enough; --vary batch-size finds it.");
    std::vector<std::string> parts;
    for (const StudyLaw* one : measured) {
      const std::size_t v = one->points.front().variant;
      parts.push_back(fmt::format(
          "{}{:.0f}{}", one->where.empty() ? "" : one->where + ": ", saturating_point(*one).x,
          size_of(v).empty() ? "" : fmt::format(", of {} that fit", fitting(v))));
    }
    return itemized("The smallest that reaches 90 % of the most samples/s measured", parts);
  }
  std::string largest_model() const {
    Variants fit = all_;
    std::erase_if(fit, [&](std::size_t v) { return !plan(v).fits(); });
    if (fit.empty()) return "";
    const std::size_t v = largest(fit, [&](std::size_t one) { return plan(one).parameters; });
    return fmt::format(
        "Of these {}, with {} parameters: it needs {} of {}.{} ridge plan --search "
        "model finds the largest of such proportions.",
        name(v), format_count(plan(v).parameters), format_bytes(plan(v).needed_bytes),
        format_bytes(plan(v).available_bytes),
        fit.size() == all_.size() ? " All of them fit." : "");
  }
  std::string improvement() const {
    Variants known = measured_;
    std::erase_if(known, [&](std::size_t v) { return !has_ceilings(v); });
    const std::string advice =
        "ridge ablate measures what each pass gains, and --vary version=v1,v2,v3,v4 all together.";
    if (known.empty()) return advice;
    const auto times_least = [&](std::size_t v) {
      return fmt::format("{:.1f}",
                         *at(v).seconds / (plan(v).computing_seconds + plan(v).moving_seconds));
    };
    return then(told("Steps take this many times what their kernels need at the ceilings", known,
                     times_least),
                advice);
  }
  std::string best_for_workshop() const {
    const auto minutes = [&](std::size_t v) { return workshop_steps * *at(v).seconds / 60; };
    Variants quick = measured_;
    std::erase_if(quick, [&](std::size_t v) { return minutes(v) > workshop_minutes; });
    if (quick.empty()) return "None of them takes less than 5 minutes for the workshop's 50 steps.";
    const std::string what =
        fmt::format("{}, the largest whose 50 steps take less than {:.0f} minutes here",
                    name(quick.back()), workshop_minutes);
    return told(what, measured_, [&](std::size_t v) { return format_duration(60 * minutes(v)); });
  }

  const StudyResult& result_;
  const std::vector<StudyLaw>& laws_;
  const std::vector<VariantSeries> series_;
  Variants measured_, all_;  // by FLOPs
  bool has_sizes_ = false, has_attention_ = false;
  std::vector<StudyAnswer> answers_;
};

}  // namespace

std::vector<StudyAnswer> answers_of(const StudyResult& result, const std::vector<StudyLaw>& laws) {
  return Answers(result, laws).all();
}

}  // namespace ridge
