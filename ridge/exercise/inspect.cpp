#include "ridge/exercise/inspect.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "ridge/graph/op_rules.h"
#include "ridge/session/gradient_reader.h"

namespace ridge {
namespace {

double sum_of_squares(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return sum;
}

std::string without_layer(const std::string& name) {
  static const std::regex number("\\.[0-9]+\\.");
  return std::regex_replace(name, number, ".*.");
}

// Notes the parameters before a step, and their gradients before the optimizer has used them.
class ParameterReader {
 public:
  explicit ParameterReader(Session& session)
      : reader_(session, [&session, this](std::size_t parameter, Value gradient, double scale) {
          rows_[parameter].gradient =
              sum_of_squares(session.executor().read_floats(gradient)) / (scale * scale);
        }) {
    for (const Value& p : session.training().parameters)
      rows_.push_back({.name = without_layer(session.graph().info(p.id).name),
                       .elements = static_cast<double>(p.type().numel()),
                       .start = sum_of_squares(session.executor().read_floats(p))});
  }

  std::vector<ParameterFacts> facts() const {
    std::vector<ParameterFacts> all;
    std::vector<double> elements;
    for (const Row& row : rows_) {
      auto found = std::ranges::find(all, row.name, &ParameterFacts::name);
      if (found == all.end()) {
        found = all.insert(all.end(), {.name = row.name});
        elements.push_back(0);
      }
      ++found->parameters;
      found->start += row.start;
      found->gradient += row.gradient;
      elements[static_cast<std::size_t>(found - all.begin())] += row.elements;
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].start = std::sqrt(all[i].start / elements[i]);
      all[i].gradient = std::sqrt(all[i].gradient);
    }
    return all;
  }

 private:
  struct Row {
    std::string name;
    double elements = 0;
    double start = 0, gradient = 0;  // sums of squares
  };

  std::vector<Row> rows_;
  GradientReader reader_;
};

std::size_t kernels_of(const Graph& graph) {
  return static_cast<std::size_t>(std::ranges::count_if(
      graph.nodes(), [&](const Node& node) { return cost(graph, node).bytes() > 0; }));
}

}  // namespace

std::size_t RunFacts::without_gradient() const {
  std::size_t count = 0;
  for (const ParameterFacts& p : parameters) count += p.gradient == 0 ? p.parameters : 0;
  return count;
}

RunFacts observe_run(const RunOptions& options, Device& device, const Defect& defect,
                     const std::function<void(std::int64_t)>& done) {
  Session session(options, defect.device_or(device), defect.hooks);
  RunFacts facts{.record = new_record(session)};
  facts.kernels = kernels_of(session.graph());
  const auto step = [&] {
    facts.record.steps.push_back(session.step());
    if (done) done(session.steps_done());
  };
  const auto begin = Clock::now();
  {
    const ParameterReader reader(session);
    step();
    facts.parameters = reader.facts();
  }
  while (session.steps_done() < options.num_steps) step();
  facts.record.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  note_memory(facts.record, session);
  facts.summary = summarize(facts.record);
  return facts;
}

RunOptions quick_check_of(const RunOptions& options) {
  RunOptions quick = options;
  quick.batch_size = 1;
  quick.seq_len = std::min<std::int64_t>(options.seq_len, 32);
  quick.gradient_accumulation_steps = 1;
  quick.num_steps = 10;
  return quick;
}

}  // namespace ridge
