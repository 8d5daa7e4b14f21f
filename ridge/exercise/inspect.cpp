#include "ridge/exercise/inspect.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "ridge/graph/op_rules.h"

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
class ParameterReader final : public Observer {
 public:
  explicit ParameterReader(Session& session) : session_(session) {
    const TrainingStep& step = session.training();
    const std::vector<Value>& gradients =
        step.accumulators.empty() ? step.gradients : step.accumulators;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const Value p = step.parameters[i];
      rows_.push_back({.value = gradients[i],
                       .name = without_layer(session.graph().info(p.id).name),
                       .elements = static_cast<double>(p.type().numel()),
                       .start = sum_of_squares(session.executor().read_floats(p))});
    }
    session.executor().observe(*this);
  }
  ~ParameterReader() override { session_.executor().forget(*this); }
  ParameterReader(const ParameterReader&) = delete;
  ParameterReader& operator=(const ParameterReader&) = delete;

  void on_phase(Phase phase, Clock::time_point, Clock::time_point) override {
    if (phase != Phase::backward) return;
    const double scale = session_.gradient_scale();
    for (Row& row : rows_)
      row.gradient = sum_of_squares(session_.executor().read_floats(row.value)) / (scale * scale);
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
    Value value;  // the gradient
    std::string name;
    double elements = 0;
    double start = 0, gradient = 0;  // sums of squares
  };

  Session& session_;
  std::vector<Row> rows_;
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
