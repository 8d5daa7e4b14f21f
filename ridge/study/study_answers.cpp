// The questions of the workshop's performance study, answered by what a study measured.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ridge/base/units.h"
#include "ridge/study/study_laws.h"

namespace ridge {
namespace {

constexpr double mega = 1e6;
constexpr double saturated = 0.9;       // of the best rate
constexpr double significant = 0.25;    // of the peak memory
constexpr double workshop_minutes = 5;  // that a run of the workshop's 50 steps may take
constexpr std::int64_t workshop_steps = 50;
constexpr std::size_t most_named = 5;  // variants in a sentence

using Variants = std::vector<std::size_t>;

double real(auto value) { return static_cast<double>(value); }

class Answers {
 public:
  Answers(const StudyResult& result, const std::vector<StudyLaw>& laws)
      : result_(result), laws_(laws) {
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
    if (result_.gathered) return std::move(answers_);  // the rest is by the plans
    memory();
    compute();
    if (has_sizes_) practice();
    return std::move(answers_);
  }

 private:
  void add(std::string_view heading, std::string_view question, std::string text) {
    if (!text.empty())
      answers_.push_back({std::string(heading), std::string(question), std::move(text)});
  }
  std::string name(std::size_t v) const { return name_of(result_.definition.variants[v]); }
  const VariantPlan& plan(std::size_t v) const { return result_.plans[v]; }
  const MeasuredVariant& at(std::size_t v) const { return result_.variants[v]; }

  // "tiny 12 %; small 30 %" of some variants; where there are many, of those of least and most
  // work: the tables have all.
  template <class Text>
  std::string each(const Variants& variants, const Text& text) const {
    std::vector<std::string> parts;
    for (const std::size_t v : variants)
      if (variants.size() <= most_named || v == variants.front() || v == variants.back())
        parts.push_back(fmt::format("{} {}", name(v), text(v)));
    return fmt::format("{}", fmt::join(parts, variants.size() > most_named ? " .. " : "; "));
  }
  template <class Value>
  std::size_t largest(const Variants& variants, const Value& value) const {
    return *std::ranges::max_element(variants, {}, value);
  }
  const StudyLaw* law(StudyQuantity quantity, std::string_view axis) const {
    const auto found = std::ranges::find_if(
        laws_, [&](const StudyLaw& one) { return one.quantity == quantity && one.axis == axis; });
    return found == laws_.end() ? nullptr : &*found;
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
    for (const StudyLaw& one : laws_)
      if (one.axis == "batch-size" && one.quantity == StudyQuantity::throughput)
        add(heading, "How does the batch size affect throughput?", by_batch(one));
    if (has_sizes_ && !law(StudyQuantity::step_time, "batch-size"))
      add(heading, "How does the batch size affect throughput?",
          fmt::format("This study does not vary it. Measure: ridge study {} --vary "
                      "batch-size=1,2,4,8,16",
                      result_.definition.variants[measured_.back()].size));
  }

  std::string by_size() const {
    const StudyLaw* const power = law(StudyQuantity::throughput, "parameters");
    if (!power || !power->power) return "";
    const double exponent = power->power->coefficients[1];
    std::string text = fmt::format(
        "It falls as the power {:.2f} of the parameters over {} sizes; -1 would be in inverse "
        "proportion.",
        exponent, power->points.size());
    for (std::size_t i = 1; i < power->points.size(); ++i) {
      const StudyPoint &from = power->points[i - 1], &to = power->points[i];
      const auto per_sample = [&](std::size_t v) {
        return real(plan(v).flops) / real(plan(v).samples_per_step);
      };
      text += fmt::format(
          " From {} to {}: {:.1f} times the parameters, {:.1f} times the FLOPs of a {}, "
          "{} divided by {:.1f}.",
          name(from.variant), name(to.variant), to.x / from.x,
          per_sample(to.variant) / per_sample(from.variant), plan(to.variant).sample, "samples/s",
          from.y / to.y);
    }
    return text;
  }

  std::string saturation() const {
    if (measured_.size() < 2 || rate(measured_.front()) <= 0) return "";
    // Of versions of one step there is nothing to say by size.
    if (2 * plan(measured_.back()).flops < 3 * plan(measured_.front()).flops) return "";
    const std::size_t best = largest(measured_, [&](std::size_t v) { return rate(v); });
    const auto first = std::ranges::find_if(
        measured_, [&](std::size_t v) { return rate(v) >= saturated * rate(best); });
    return fmt::format(
        "From {} on, the variant of least work that reaches 90 % of the best rate, {}FLOP/s of {}: "
        "{}.{}",
        name(*first), format_si(rate(best)), name(best),
        each(measured_,
             [&](std::size_t v) { return fmt::format("{:.0f} %", 100 * rate(v) / rate(best)); }),
        *first == measured_.back() ? " The largest may not have reached the limit yet." : "");
  }

  std::string by_batch(const StudyLaw& one) const {
    const std::string where = one.where.empty() ? "" : fmt::format("With {}: ", one.where);
    const auto batch = saturating_batch(one);
    if (!batch) {
      const bool unclear = one.saturation && !one.saturation->is_clear;
      return fmt::format(
          "{}from a batch of {:.0f} to one of {:.0f}, samples/s go from {:.4g} to {:.4g}. {}",
          where, one.points.front().x, one.points.back().x, one.points.front().y,
          one.points.back().y,
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
    if (const StudyLaw* const one = law(StudyQuantity::peak_memory, "parameters");
        one && one->power)
      add(heading, "Is memory proportional to the parameters?",
          fmt::format(
              "The peak grows as their power {:.2f}; 1 would be proportional. {}",
              one->power->coefficients[1],
              "Activations grow with batch and sequence too, which differ among the sizes."));
    if (has_attention_) {
      add(heading, "How does memory scale with the length of the sequence?", by_length());
      add(heading, "Where does attention's memory become significant?", attention_memory());
    }
    add(heading, "What is the overhead, peak over parameters?",
        each(all_,
             [&](std::size_t v) {
               return fmt::format("{:.1f}",
                                  real(plan(v).peak_bytes) / real(plan(v).parameter_bytes));
             }) +
            (result_.definition.variants.front().options.use() == Use::training
                 ? ". Parameters and the optimizer's two moments alone would be 3; the rest is "
                   "activations."
                 : "."));
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
    return fmt::format(
        "{}, S the length, by the plan in MB: {}.",
        is_quadratic ? "By a linear and a quadratic part" : "Linearly",
        each(shown, [&](std::size_t v) {
          std::string text = fmt::format("{:.4g} + {:.4g} S", plan(v).fixed_bytes / mega,
                                         plan(v).bytes_per_token / mega);
          if (squared(v))
            text += fmt::format(" + {:.3g} S^2 (the square is the larger from S = {:.0f} on)",
                                plan(v).bytes_per_token_squared / mega,
                                plan(v).bytes_per_token / plan(v).bytes_per_token_squared);
          return text;
        }));
  }

  std::string attention_memory() const {
    const auto first = std::ranges::find_if(
        all_, [&](std::size_t v) { return attention_share_of_peak(v) >= significant; });
    std::string text = fmt::format(
        "What attention computed holds of the peak: {}.", each(all_, [&](std::size_t v) {
          return fmt::format("{:.0f} %", 100 * attention_share_of_peak(v));
        }));
    text += first == all_.end() ? " It is nowhere a quarter."
                                : fmt::format(" It is a quarter from {} on.", name(*first));
    return text + fmt::format(" It passes all else together at a length of: {}.",
                              each(all_, [&](std::size_t v) {
                                return plan(v).attention_passes_at
                                           ? fmt::format("{}", *plan(v).attention_passes_at)
                                           : fmt::format("none up to {}", longest_planned_sequence);
                              }));
  }

  void compute() {
    constexpr std::string_view heading = "Compute characteristics";
    const std::size_t best = largest(measured_, [&](std::size_t v) { return rate(v); });
    add(heading, "Which variant uses the device best?",
        fmt::format("{}: {}.", name(best),
                    each(measured_,
                         [&](std::size_t v) {
                           const auto used = result_.utilization(v);
                           return fmt::format("{}FLOP/s{}", format_si(rate(v)),
                                              used ? fmt::format(" ({:.0f} %)", 100 * *used) : "");
                         })) +
            (result_.utilization(best) ? " In brackets is the part of the device's peak."
                                       : " How much of the device that is, is known once ridge "
                                         "roofline has measured it."));
    add(heading, "How does the arithmetic intensity change?",
        fmt::format(
            "FLOPs per byte that kernels read and write: {}.",
            each(all_, [&](std::size_t v) { return fmt::format("{:.1f}", intensity(v)); })));
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
    return fmt::format(
        "By the ceilings, computing is this part of the least time of a step, and moving data the "
        "rest: {}. Most compute-bound is {}, most memory-bound {}.",
        each(known,
             [&](std::size_t v) { return fmt::format("{:.0f} %", 100 * computing_share(v)); }),
        name(most), name(least));
  }

  std::string shares() const {
    const auto share = [&](std::size_t v, std::int64_t flops) {
      return 100 * real(flops) / real(plan(v).flops);
    };
    return fmt::format(
        "By FLOPs, attention and feed-forward have: {}.", each(all_, [&](std::size_t v) {
          return fmt::format("{:.0f} and {:.0f} %", share(v, plan(v).attention_flops),
                             share(v, plan(v).feed_forward_flops));
        }));
  }

  // What the workshop asks of its five sizes.
  void practice() {
    constexpr std::string_view heading = "Practice";
    const std::size_t most =
        largest(all_, [&](std::size_t v) { return attention_share_of_peak(v); });
    add(heading, "Which size would benefit most from flash attention?",
        fmt::format(
            "{}, where attention holds {:.0f} % of the peak and does {:.0f} % of the FLOPs. "
            "Try it with --version v3.",
            name(most), 100 * attention_share_of_peak(most),
            100 * real(plan(most).attention_flops) / real(plan(most).flops)));
    add(heading, "Which batch size is recommended?", batches());
    add(heading, "Which is the largest model that can be trained here?", largest_model());
    add(heading, "How could throughput be improved?", improvement());
    add(heading, "Which size is best for the workshop?", best_for_workshop());
  }

  std::string batches() const {
    return fmt::format(
        "The largest that fit in the memory that was left: {}. The smallest that saturates the "
        "device is enough; --vary batch-size finds it.",
        each(all_, [&](std::size_t v) {
          return plan(v).largest_batch > 0 ? format_count(plan(v).largest_batch) : "none";
        }));
  }
  std::string largest_model() const {
    Variants fit = all_;
    std::erase_if(fit, [&](std::size_t v) { return !plan(v).fits(); });
    if (fit.empty()) return "";
    const std::size_t v = largest(fit, [&](std::size_t one) { return plan(one).parameters; });
    return fmt::format("Of these {}, with {} parameters: it needs {} of {}.{}", name(v),
                       format_count(plan(v).parameters), format_bytes(plan(v).needed_bytes),
                       format_bytes(plan(v).available_bytes),
                       fit.size() == all_.size() ? " All of them fit." : "");
  }
  std::string improvement() const {
    Variants known = measured_;
    std::erase_if(known, [&](std::size_t v) { return !has_ceilings(v); });
    const std::string advice =
        "ridge ablate measures what each pass gains, and --vary version=v1,v2,v3,v4 all together.";
    if (known.empty()) return advice;
    return fmt::format(
        "Steps take this many times what their kernels need at the ceilings: {}. {}",
        each(known,
             [&](std::size_t v) {
               return fmt::format(
                   "{:.1f}", *at(v).seconds / (plan(v).computing_seconds + plan(v).moving_seconds));
             }),
        advice);
  }
  std::string best_for_workshop() const {
    const auto minutes = [&](std::size_t v) { return workshop_steps * *at(v).seconds / 60; };
    Variants quick = measured_;
    std::erase_if(quick, [&](std::size_t v) { return minutes(v) > workshop_minutes; });
    if (quick.empty()) return "None of them takes less than 5 minutes for the workshop's 50 steps.";
    return fmt::format("{}, the largest whose 50 steps take less than {:.0f} minutes here: {}.",
                       name(quick.back()), workshop_minutes, each(measured_, [&](std::size_t v) {
                         return format_duration(60 * minutes(v));
                       }));
  }

  const StudyResult& result_;
  const std::vector<StudyLaw>& laws_;
  Variants measured_, all_;  // by FLOPs
  bool has_sizes_ = false, has_attention_ = false;
  std::vector<StudyAnswer> answers_;
};

}  // namespace

std::vector<StudyAnswer> answers_of(const StudyResult& result, const std::vector<StudyLaw>& laws) {
  return Answers(result, laws).all();
}

}  // namespace ridge
