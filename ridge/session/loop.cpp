#include "ridge/session/loop.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "ridge/base/processor_use.h"
#include "ridge/base/units.h"
#include "ridge/device/gathered.h"
#include "ridge/session/pace.h"

namespace ridge {
namespace {

// Gradients that do not fit when they are a millionth of what they are will not if they are less.
bool overflows_at_any_scale(const StepReport& report) {
  return report.skipped && *report.loss_scale < 1e-6;
}

// Until now, with what the other ranks on this host used since `begin` as this process's own. All
// ranks call it.
ProcessorUse use_by_all_ranks(const ProcessorUse& begin, const Device& device) {
  ProcessorUse use = ProcessorUse::now();
  if (Communicator* const communicator = device.communicator()) {
    const auto mine = ProcessSeconds::of_this_process(use.own - begin.own);
    use.own = begin.own + seconds_on_host(gathered(*communicator, mine), mine);
  }
  return use;
}

}  // namespace

std::string nothing_saved(const RunOptions& options) {
  if (!options.resume.empty())
    return fmt::format("nothing was saved since {}, which is intact", options.resume);
  if (options.save_every > 0)
    return fmt::format("nothing was saved yet (--save-every {})", options.save_every);
  return "nothing was saved: --save-every makes checkpoints";
}

Loop::Loop(Session& session, LoopConfig config, std::vector<LoopObserver*> observers,
           LastWords& last_words)
    : session_(session),
      options_(session.options()),
      config_(std::move(config)),
      observers_(std::move(observers)),
      last_words_(last_words),
      record_(new_record(session)),
      pace_(Pace::open()) {
  if (ranges_) session.executor().observe(*ranges_);
}

Loop::~Loop() {
  if (ranges_) session_.executor().forget(*ranges_);
}

Record Loop::run() {
  const ProcessorUse begin = ProcessorUse::now();
  const auto start = Clock::now();
  std::optional<ProcessorUse> end;
  try {
    take_steps();
    if (record_.outcome != Outcome::diverged) last_words_.attempt([this] { save(); });
    if (record_.outcome == Outcome::completed) end = use_by_all_ranks(begin, session_.device());
  } catch (const OutOfMemoryError& error) {
    give_up(error);
  } catch (const DeviceError& error) {
    give_up(error);
  } catch (const RankError& error) {
    give_up(error);
  }
  record_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  record_.busy_processors_of_others =
      busy_processors_of_others(begin, end ? *end : ProcessorUse::now());
  note_memory(record_, session_);
  return std::move(record_);
}

void Loop::take_steps() {
  while (record_.outcome == Outcome::completed && !is_last()) {
    if (config_.stop && config_.stop() && session_.steps_in_flight() == 0) {
      record_.outcome = Outcome::interrupted;
      return;
    }
    if (pace_ && !pace_->wait()) return;
    step();
  }
}

// What is on the device is lost, or in the middle of a step; what was saved before stays.
template <class Fault>
void Loop::give_up(const Fault& fault) {
  record_.outcome = Outcome::failed;
  const std::string rest =
      written_step_ > 0 ? fmt::format("the checkpoint of step {} is intact: go on with --resume {}",
                                      written_step_, config_.checkpoint.string())
                        : nothing_saved(options_);
  fault_ =
      std::make_exception_ptr(Fault("{}{}{}", fault.what(), config_.checkpoint.empty() ? "" : "; ",
                                    config_.checkpoint.empty() ? "" : rest));
}

bool Loop::due(std::int64_t interval, std::int64_t step) const {
  return interval > 0 && step % interval == 0;
}

void Loop::step() {
  session_.executor().reset_peak_memory();
  const std::int64_t next = session_.steps_done() + 1;
  for (LoopObserver* observer : observers_) observer->before_step(session_, next);
  if (pace_) pace_->begin_step();
  if (session_.steps_in_flight() == 0) begin_step();
  if (may_run_ahead()) begin_step();
  const StepReport report = session_.finish_step();
  if (pace_) pace_->end_step(report);
  const std::size_t peak = session_.executor().memory().peak_live;
  record_.peak_tensor_bytes = std::max(record_.peak_tensor_bytes, peak);
  record_.steps.push_back(report);
  const bool trains = session_.workload().use == Use::training;
  if (trains && (!std::isfinite(report.loss) || overflows_at_any_scale(report)))
    record_.outcome = Outcome::diverged;
  for (LoopObserver* observer : observers_) observer->after_step(session_, report, peak, record_);
  if (record_.outcome == Outcome::diverged) return;
  const std::int64_t done = session_.steps_done();
  if (due(options_.eval_every, done) || (is_last() && ends_with_evaluation())) evaluate();
  if (due(options_.save_every, done) && !is_last()) save();  // run() saves the last
}

// Whether to evaluate after the last step: with --eval-every, or where labels give an accuracy.
bool Loop::ends_with_evaluation() const {
  if (session_.workload().use != Use::training) return false;
  return options_.eval_every > 0 ||
         (session_.data().has_labels() && session_.data().validation_samples() != 0);
}

void Loop::begin_step() {
  if (ranges_) ranges_->begin_step(session_.steps_done() + session_.steps_in_flight() + 1);
  session_.begin_step();
  if (ranges_) ranges_->end_step();
}

// Whether the step after the one in flight may begin before that one is finished: a device that
// works while the host waits need not stand still between them. Nothing may be due between the two
// that looks at the model.
bool Loop::may_run_ahead() const {
  const std::int64_t step = session_.steps_done() + 1;
  if (!config_.runs_ahead || pace_ || !session_.device().is_gpu() || step >= config_.last_step)
    return false;
  for (const LoopObserver* observer : observers_)
    if (observer->wants_single_steps()) return false;
  return !(config_.stop && config_.stop()) && !due(options_.eval_every, step) &&
         !due(options_.save_every, step);
}

void Loop::evaluate() {
  record_.validation.push_back({session_.steps_done(), session_.evaluate(options_.eval_batches)});
  record_.peak_tensor_bytes =
      std::max(record_.peak_tensor_bytes, session_.executor().memory().peak_live);
  for (LoopObserver* observer : observers_)
    observer->evaluated(session_, record_.validation.back());
}

// Saves a checkpoint, unless none are wanted or this step has been saved.
void Loop::save() {
  if (options_.save_every == 0 || config_.checkpoint.empty() || record_.steps.empty()) return;
  if (saved_step_ == session_.steps_done()) return;
  saved_step_ = session_.steps_done();
  session_.save(config_.checkpoint);
  written_step_ = saved_step_;
  for (LoopObserver* observer : observers_) observer->saved(config_.checkpoint, saved_step_);
}

// A checkpoint of a run that diverged is not written, for its weights are spoilt; the last one
// before stays.
void refuse_divergence(const Record& record) {
  if (record.outcome != Outcome::diverged) return;
  const StepReport& last = record.steps.back();
  if (last.skipped && std::isfinite(last.loss))
    throw Error(
        "gradients overflow at step {} whatever the loss scale: training has diverged; try a "
        "smaller --learning-rate, or --dtype bf16",
        last.step);
  throw Error(
      "the loss is {} at step {}: training has diverged; try a smaller --learning-rate, "
      "--lr-warmup-steps 100 or --max-grad-norm 1",
      format_loss(last.loss), last.step);
}

}  // namespace ridge
