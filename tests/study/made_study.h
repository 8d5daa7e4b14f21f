#pragma once

#include <string>
#include <vector>

#include "ridge/study/study_result.h"
#include "tests/study/made_store.h"

namespace ridge::testing {

// A study in a store, whose runs are made up.
class MadeStudy {
 public:
  MadeStudy(const std::vector<std::string>& sizes, const std::vector<std::string>& vary,
            std::int64_t rounds) {
    std::vector<StudyAxis> axes;
    for (const std::string& text : vary) axes.push_back(parse_axis(text));
    RunOptions base;
    base.device = "cpu";
    definition.rounds = rounds;
    definition.variants = variants_of(base, sizes, axes, {});
    for (const StudyVariant& variant : definition.variants) {
      VariantPlan& plan = plans.emplace_back();
      plan.parameters = variant.options.hidden_dim * variant.options.hidden_dim;
      plan.parameter_bytes = static_cast<std::uint64_t>(4 * plan.parameters);
      plan.peak_bytes = 10 * plan.parameter_bytes;
      plan.samples_per_step = variant.options.batch_size;
      plan.sample = "sequence";
      plan.flops = 1'000'000 * variant.options.batch_size * variant.options.n_layers;
      plan.bytes = 100'000;
      plan.needed_bytes = plan.peak_bytes;
      plan.available_bytes = std::uint64_t{1} << 40;
    }
    made.store.add_study(
        {.name = "s", .created = 1, .definition = to_json(definition), .plans = to_json(plans)});
  }
  void measure(std::int64_t variant, std::int64_t round, double seconds,
               std::int64_t peak = 1'000'000) {
    const RunOptions& o = definition.variants[static_cast<std::size_t>(variant)].options;
    RunDocument run = document_of({.version = o.version,
                                   .batch_size = o.batch_size,
                                   .seq_len = o.seq_len,
                                   .median_seconds = seconds,
                                   .peak_bytes = peak});
    run.study = "s";
    run.turn = StudyTurn{.variant = variant, .round = round};
    made.store.add(run);
  }
  StudyResult result() { return read_study(made.store, "s"); }

  MadeStore made;
  StudyDefinition definition;
  std::vector<VariantPlan> plans;
};

}  // namespace ridge::testing
