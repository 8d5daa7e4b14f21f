// ridge_parity OUT.safetensors OPTIONS_JSON: trains num-steps steps and writes all that parity.py
// compares: for each step and accumulated batch "<step>.<batch>.tokens", ".targets", ".logits" and
// ".loss"; for each step from 1 the weights before it ("<step>.weight.<parameter>"), the gradients
// as the optimizer gets them, before clipping and without a loss scale ("<step>.grad.<parameter>"),
// their norm ("<step>.grad_norm") and UpdateLossScale's report ("<step>.loss_scale"); and the
// weights after the last step, numbered as before one more.

#include <fmt/format.h>

#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/safetensors.h"
#include "ridge/models/llama/llama.h"
#include "ridge/run/executor.h"
#include "ridge/run/observer.h"
#include "ridge/session/devices.h"
#include "ridge/session/gradient_reader.h"
#include "ridge/session/options.h"
#include "ridge/session/session.h"

namespace ridge {
namespace {

// Values read back, until they are written to a file.
class Record {
 public:
  Record(Graph& graph, Executor& executor) : graph_(graph), executor_(executor) {}

  void add(std::string name, Value value) {
    types_.push_back({std::move(name), value.type()});
    executor_.read(value, std::span<std::byte>(bytes_.emplace_back(value.type().bytes())));
  }

  void add(std::string name, const TensorType& type, std::span<const float> floats) {
    types_.push_back({std::move(name), type});
    const auto bytes = std::as_bytes(floats);
    bytes_.emplace_back(bytes.begin(), bytes.end());
  }

  void add_weights(std::int64_t step) {
    for (const Value& p : graph_.parameters())
      add(fmt::format("{}.weight.{}", step, graph_.info(p.id).name), p);
  }

  void write(const char* path) const {
    write_safetensors(path, types_, {}, [&](std::size_t i) { return std::span(bytes_[i]); });
  }

 private:
  Graph& graph_;
  Executor& executor_;
  std::vector<NamedType> types_;
  std::deque<std::vector<std::byte>> bytes_;
};

// Records what a step computes while its memory is still there.
class StepRecorder final : public Observer {
 public:
  StepRecorder(Session& session, Record& record) : trainer_(session), record_(record) {
    session.executor().observe(*this);
  }
  ~StepRecorder() override { trainer_.executor().forget(*this); }

  void on_phase(Phase phase, Clock::time_point, Clock::time_point) override {
    const std::int64_t step = trainer_.steps_done() + 1;
    if (phase == Phase::forward) {
      const std::string prefix = fmt::format("{}.{}.", step, batch_++);
      const Model& model = trainer_.model();
      record_.add(prefix + "tokens", model.input);
      record_.add(prefix + "targets", model.targets);
      const std::vector<float> logits = trainer_.logits();
      std::vector<std::int64_t> dims(model.logits.shape().dims().begin(),
                                     model.logits.shape().dims().end());
      dims.back() = static_cast<std::int64_t>(logits.size()) / model.logits.shape().rows();
      record_.add(prefix + "logits", {DType::f32, Shape(dims)}, logits);
      record_.add(prefix + "loss", model.loss);
    }
    if (phase == Phase::optimizer) batch_ = 0;
  }

 private:
  void add_gradient(std::size_t parameter, Value gradient, float scale) {
    std::vector<float> floats = trainer_.executor().read_floats(gradient);
    for (float& element : floats) element /= scale;
    const ValueId id = trainer_.training().parameters[parameter].id;
    record_.add(
        fmt::format("{}.grad.{}", trainer_.steps_done() + 1, trainer_.graph().info(id).name),
        gradient.type(), floats);
  }

  Session& trainer_;
  Record& record_;
  std::int64_t batch_ = 0;  // of those that the step accumulates
  GradientReader reader_{trainer_, [this](std::size_t parameter, Value gradient, float scale) {
                           add_gradient(parameter, gradient, scale);
                         }};
};

void train(const RunOptions& options, const char* path) {
  const std::unique_ptr<Device> device = open_device(options);
  Session session(options, *device);
  Record record(session.graph(), session.executor());
  const StepRecorder recorder(session, record);
  while (session.steps_done() < options.num_steps) {
    record.add_weights(session.steps_done() + 1);
    session.step();
    if (const Value norm = session.training().grad_norm)
      record.add(fmt::format("{}.grad_norm", session.steps_done()), norm);
    if (const Value report = session.training().scale_report)
      record.add(fmt::format("{}.loss_scale", session.steps_done()), report);
  }
  record.add_weights(options.num_steps + 1);
  record.write(path);
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: ridge_parity OUT.safetensors OPTIONS_JSON\n");
    return 2;
  }
  try {
    ridge::RunOptions options;
    ridge::apply_json(options, argv[2]);
    options.resolve();
    ridge::train(options, argv[1]);
  } catch (const ridge::Error& error) {
    fmt::print(stderr, "ridge_parity: {}\n", error.what());
    return 1;
  }
}
