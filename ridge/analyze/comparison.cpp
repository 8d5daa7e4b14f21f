#include "ridge/analyze/comparison.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "ridge/analyze/interleaved.h"
#include "ridge/base/error.h"

namespace ridge {

std::vector<double> VariantResult::seconds() const {
  std::vector<double> all;
  for (const std::vector<double>& round : rounds) all.insert(all.end(), round.begin(), round.end());
  return all;
}

std::vector<double> VariantResult::by_round() const {
  std::vector<double> medians;
  for (const std::vector<double>& round : rounds) medians.push_back(percentile(round, 0.5));
  return medians;
}

double VariantResult::samples_per_second() const {
  const double median = measured() ? percentile(seconds(), 0.5) : 0;
  return median > 0 ? static_cast<double>(variant.options.batch_size) / median : 0;
}

double VariantResult::samples_per_second_per_gb() const {
  return peak_tensor_bytes > 0
             ? samples_per_second() / (static_cast<double>(peak_tensor_bytes) * 1e-9)
             : 0;
}

namespace {

constexpr std::int64_t most_rounds = 10;

class Tournament {
 public:
  Tournament(const std::vector<BenchVariant>& variants, Device& device,
             const ComparisonHooks& hooks)
      : device_(device), hooks_(hooks), held_(variants.size()), results_(variants.size()) {
    for (std::size_t i = 0; i < variants.size(); ++i) {
      results_[i].variant = variants[i];
      results_[i].fault = variants[i].refusal;
      if (variants[i].refusal.empty()) all_ += variants[i].options.iterations;
    }
  }

  std::vector<VariantResult> play() {
    take_turns(results_.size(), most_rounds, [this](std::size_t i, std::int64_t round) {
      if (!stopped_ && results_[i].fault.empty()) turn(i, round);
    });
    return std::move(results_);
  }

 private:
  // Of the iterations of a variant, those of one round.
  static std::int64_t share_of(std::int64_t iterations, std::int64_t round) {
    return iterations * (round + 1) / most_rounds - iterations * round / most_rounds;
  }

  void turn(std::size_t i, std::int64_t round) {
    VariantResult& result = results_[i];
    const std::int64_t iterations = share_of(result.variant.options.iterations, round);
    if (iterations == 0) return;
    try {
      play_round(i, iterations);
    } catch (const OutOfMemoryError&) {
      // If memory is short, in place of all others.
      for (auto& held : held_) held.reset();
      try {
        play_round(i, iterations);
      } catch (const OutOfMemoryError& error) {
        held_[i].reset();
        result.fault = error.what();
        result.rounds.clear();
      }
    }
  }

  void play_round(std::size_t i, std::int64_t iterations) {
    VariantResult& result = results_[i];
    const BenchOptions& options = result.variant.options;
    if (!held_[i]) {
      held_[i] = std::make_unique<BenchSession>(options, device_, hooks_.session);
      if (!result.measured()) result.compile_seconds = held_[i]->compile_seconds();
    }
    BenchSession& session = *held_[i];
    const std::int64_t warmup = result.measured() ? 1 : options.warmup;
    for (std::int64_t k = 0; k < warmup && !stop(); ++k) session.iterate();
    std::vector<double> seconds;
    for (std::int64_t k = 0; k < iterations && !stop(); ++k) {
      const BenchIteration done = session.iterate();
      seconds.push_back(done.seconds);
      result.loss = done.loss;
      if (hooks_.progress) hooks_.progress(++done_, all_);
    }
    if (seconds.empty()) return;
    if (hooks_.keep_logits && result.logits.empty())
      result.logits = session.executor().read_floats(session.model().logits);
    result.peak_tensor_bytes =
        std::max(result.peak_tensor_bytes, session.executor().memory().peak_live);
    result.rounds.push_back(std::move(seconds));
  }

  bool stop() {
    if (hooks_.stop && hooks_.stop()) stopped_ = true;
    return stopped_;
  }

  Device& device_;
  const ComparisonHooks& hooks_;
  std::vector<std::unique_ptr<BenchSession>> held_;  // by variant; null if there was no memory
  std::vector<VariantResult> results_;
  std::int64_t done_ = 0, all_ = 0;
  bool stopped_ = false;
};

}  // namespace

std::vector<VariantResult> time_variants(const std::vector<BenchVariant>& variants, Device& device,
                                         const ComparisonHooks& hooks) {
  return Tournament(variants, device, hooks).play();
}

Ratio speedup_over(const VariantResult& first, const VariantResult& result) {
  if (!first.measured() || !result.measured()) return {};
  std::vector<double> a = first.by_round(), b = result.by_round();
  const std::size_t rounds = std::min(a.size(), b.size());  // they differ if it was interrupted
  a.resize(rounds);
  b.resize(rounds);
  return paired_ratio(a, b);
}

Difference difference_of(const VariantResult& first, const VariantResult& result,
                         std::int64_t classes, std::int64_t inner) {
  Difference difference{.loss = std::abs(result.loss - first.loss)};
  const std::vector<float>&a = first.logits, &b = result.logits;
  double squares = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    largest = std::max(largest, std::abs(static_cast<double>(b[i]) - static_cast<double>(a[i])));
  }
  if (squares > 0) difference.logits = largest / std::sqrt(squares / static_cast<double>(a.size()));
  // Logits are [N, classes, inner].
  const auto best = [&](const std::vector<float>& logits, std::int64_t sample, std::int64_t place) {
    std::int64_t winner = 0;
    const auto at = [&](std::int64_t c) {
      return logits[static_cast<std::size_t>((sample * classes + c) * inner + place)];
    };
    for (std::int64_t c = 1; c < classes; ++c)
      if (at(c) > at(winner)) winner = c;
    return winner;
  };
  const std::int64_t samples = static_cast<std::int64_t>(a.size()) / (classes * inner);
  for (std::int64_t sample = 0; sample < samples; ++sample)
    for (std::int64_t place = 0; place < inner; ++place, ++difference.all)
      difference.same += best(a, sample, place) == best(b, sample, place) ? 1 : 0;
  return difference;
}

}  // namespace ridge
