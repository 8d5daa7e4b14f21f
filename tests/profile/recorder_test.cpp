#include "ridge/profile/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "ridge/cpu/device.h"
#include "ridge/ops/op.h"
#include "ridge/profile/node_stats.h"
#include "ridge/session/session.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

RunOptions small_options() {
  RunOptions o = small_llama();
  o.max_grad_norm = 1;
  o.resolve();
  return o;
}

struct SmallRun {
  CpuDevice device{2};
  Session session;

  explicit SmallRun(const RunOptions& options = small_options()) : session(options, device) {}

  void steps(Recorder& recorder, int count) {
    for (int i = 0; i < count; ++i) {
      recorder.begin_step(session.steps_done() + 1);
      recorder.end_step(session.step().loss);
    }
  }
  Executor& executor() { return session.executor(); }
};

// What is alive after each change of a recording, by address.
class Replay {
 public:
  explicit Replay(const Recording& recording) {
    for (const Recording::MemoryChange& change : recording.memory) {
      if (change.bytes > 0) {
        EXPECT_TRUE(alive_.emplace(change.address, change.bytes).second)
            << "allocated twice at " << change.address;
      } else {
        EXPECT_EQ(alive_[change.address], -change.bytes) << "released another size";
        alive_.erase(change.address);
      }
      // A workspace's own size is rounded up by the allocator.
      live_ += change.bytes > 0 ? (change.bytes + 63) / 64 * 64 : -((-change.bytes + 63) / 64 * 64);
      lives.push_back(live_);
    }
  }
  std::int64_t live() const { return live_; }
  std::vector<std::int64_t> lives;

 private:
  std::map<std::uint64_t, std::int64_t> alive_;
  std::int64_t live_ = 0;
};

std::size_t nodes_with_kernel(const Graph& graph) {
  std::size_t count = 0;
  for (const Node& node : graph.nodes()) count += !only_renames(*node.op);
  return count;
}

TEST(Recorder, HearsFromAttachToDetach) {
  SmallRun run;
  Recorder before, recorder;
  run.steps(before, 1);  // not attached: only the step itself is known
  EXPECT_TRUE(before.recording().nodes.empty());
  EXPECT_EQ(before.recording().steps.size(), 1u);

  recorder.attach(run.executor());
  run.steps(recorder, 2);
  recorder.detach(run.executor());
  run.steps(before, 1);

  const Recording& recording = recorder.recording();
  EXPECT_EQ(recording.graph, &run.session.graph());
  EXPECT_EQ(recording.device, "cpu");
  EXPECT_EQ(recording.threads, 2);
  EXPECT_EQ(recording.nodes.size(), 2 * nodes_with_kernel(run.session.graph()));
  EXPECT_EQ(recording.phases.size(), 2 * 3u);
  ASSERT_EQ(recording.steps.size(), 2u);
  EXPECT_EQ(recording.steps[0].step, 2);
  EXPECT_EQ(recording.steps[1].step, 3);
  EXPECT_GT(recording.steps[0].loss, 0);
  EXPECT_EQ(recording.dropped, 0u);
}

TEST(Recorder, NestsNodesInPhasesInSteps) {
  SmallRun run;
  Recorder recorder;
  recorder.attach(run.executor());
  run.steps(recorder, 3);
  const Recording& r = recorder.recording();
  const Graph& graph = *r.graph;
  std::int64_t time = 0;
  std::size_t phase = 0;
  for (const Recording::NodeRun& node : r.nodes) {
    EXPECT_LE(time, node.begin_ns) << "nodes overlap";
    EXPECT_LE(node.begin_ns, node.end_ns);
    time = node.end_ns;
    while (r.phases[phase].end_ns < node.begin_ns) ++phase;
    EXPECT_LE(r.phases[phase].begin_ns, node.begin_ns);
    EXPECT_LE(node.end_ns, r.phases[phase].end_ns);
    EXPECT_EQ(r.phases[phase].phase, graph.nodes()[node.node].phase);
    EXPECT_EQ(r.phases[phase].step, node.step);
  }
  for (const Recording::PhaseRun& p : r.phases) {
    const Recording::Step& step = r.steps[static_cast<std::size_t>(p.step - 1)];
    EXPECT_LE(step.begin_ns, p.begin_ns);
    EXPECT_LE(p.end_ns, step.end_ns);
  }
}

TEST(Recorder, AccountsForTheWholeOfEachStep) {
  RunOptions options = small_options();
  options.gradient_accumulation_steps = 2;
  SmallRun run(options);
  Recorder recorder;
  recorder.attach(run.executor());
  run.steps(recorder, 4);
  const Recording& r = recorder.recording();
  // The gaps, found one by one: before, between and after the nodes of a phase, and those around
  // the phases of a step.
  std::int64_t in_phases = 0, around_phases = 0, steps = 0;
  std::size_t node = 0, phase = 0;
  for (const Recording::Step& step : r.steps) {
    std::int64_t time = step.begin_ns;
    for (; phase < r.phases.size() && r.phases[phase].step == step.step; ++phase) {
      around_phases += r.phases[phase].begin_ns - time;
      time = r.phases[phase].begin_ns;
      for (; node < r.nodes.size() && r.nodes[node].end_ns <= r.phases[phase].end_ns; ++node) {
        in_phases += r.nodes[node].begin_ns - time;
        time = r.nodes[node].end_ns;
      }
      in_phases += r.phases[phase].end_ns - time;
      time = r.phases[phase].end_ns;
    }
    around_phases += step.end_ns - time;
    steps += step.end_ns - step.begin_ns;
  }
  EXPECT_EQ(node, r.nodes.size());
  const StepTime time = step_time(r);
  EXPECT_EQ(time.steps, 4);
  EXPECT_EQ(time.total_ns, steps);
  EXPECT_EQ(time.between_nodes_ns, in_phases);
  EXPECT_EQ(time.outside_phases_ns, around_phases);
  EXPECT_EQ(time.nodes_ns + in_phases + around_phases, steps);
  std::int64_t by_node = 0;
  for (const NodeStats& stats : node_stats(r)) by_node += stats.total_ns;
  EXPECT_EQ(by_node, time.nodes_ns);
}

TEST(Recorder, RepeatsWhatTheAllocatorDid) {
  for (const bool late : {false, true}) {
    SmallRun run;
    Recorder recorder, unheard;
    if (late) run.steps(unheard, 1);
    const std::size_t alive_before = run.executor().memory().live;
    run.executor().reset_peak_memory();
    recorder.attach(run.executor());
    // First of all comes what is alive already: all of it, with sizes that add up.
    const Replay present(recorder.recording());
    EXPECT_EQ(present.live(), static_cast<std::int64_t>(alive_before));
    EXPECT_GT(alive_before, 0u);

    run.steps(recorder, 2);
    const Recording& recording = recorder.recording();
    const Replay replay(recording);
    EXPECT_EQ(replay.live(), static_cast<std::int64_t>(run.executor().memory().live));
    const auto first = static_cast<std::ptrdiff_t>(present.lives.size());
    for (std::size_t i = present.lives.size(); i < recording.memory.size(); ++i)
      EXPECT_EQ(static_cast<std::int64_t>(recording.memory[i].live), replay.lives[i]) << i;
    EXPECT_EQ(*std::max_element(replay.lives.begin() + first, replay.lives.end()),
              static_cast<std::int64_t>(run.executor().memory().peak_live));
    EXPECT_EQ(run.executor().memory().peak_live, run.executor().peak_bytes());
  }
}

TEST(Recorder, LeavesMemoryOutIfAsked) {
  SmallRun run;
  Recorder recorder({.memory = false});
  recorder.attach(run.executor());
  run.steps(recorder, 1);
  EXPECT_TRUE(recorder.recording().memory.empty());
  EXPECT_FALSE(recorder.recording().nodes.empty());
}

TEST(Recorder, CountsWhatItHasNoRoomFor) {
  SmallRun run;
  Recorder whole, bounded({.max_records = 20});
  whole.attach(run.executor());
  bounded.attach(run.executor());
  for (int i = 0; i < 30; ++i) {
    whole.begin_step(i + 1);
    bounded.begin_step(i + 1);
    const double loss = run.session.step().loss;
    whole.end_step(loss);
    bounded.end_step(loss);
  }
  const Recording &all = whole.recording(), &some = bounded.recording();
  EXPECT_EQ(all.dropped, 0u);
  EXPECT_EQ(some.nodes.size(), 20u);
  EXPECT_EQ(some.memory.size(), 20u);
  EXPECT_EQ(some.phases.size(), 20u);
  EXPECT_EQ(some.steps.size(), 20u);
  EXPECT_EQ(some.dropped,
            all.nodes.size() + all.memory.size() + all.phases.size() + all.steps.size() - 4 * 20);
  // What there is, is the beginning.
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(some.nodes[i].node, all.nodes[i].node);
}

TEST(DisplayName, IsTheValuesOwnOrThatOfItsMaker) {
  Graph graph;
  const Value x = graph.input("in \"put\"\n", {DType::f32, {2, 3}});
  Value plain, scoped;
  plain = scale(x, 2.0f);
  {
    const Scope outer(graph, "layers.0");
    const Scope inner(graph, "attention");
    scoped = softmax(plain);
  }
  EXPECT_EQ(display_name(graph, x.id), "in \"put\"\n");
  EXPECT_EQ(display_name(graph, plain.id), "scale");
  EXPECT_EQ(display_name(graph, scoped.id), "layers.0.attention: softmax");
}

}  // namespace
}  // namespace ridge
