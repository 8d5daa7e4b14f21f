#include "ridge/trace/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "ridge/base/error.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A run written step by step, in microseconds. The host launches ahead of the card, unless it waits
// for it.
class MadeRun {
 public:
  // An operator with its kernels. What stands within `inside` stands within it.
  MadeRun& operation(const std::string& name, const std::string& shape,
                     const std::vector<std::pair<std::string, double>>& kernels,
                     const std::function<void(MadeRun&)>& inside = {}) {
    const double begin = host_;
    host_ += 1;
    for (const auto& [kernel, duration] : kernels) launch(kernel, duration);
    if (inside) inside(*this);
    host_ += 1;
    made_.operation(name, begin, host_ - begin, shape);
    return *this;
  }
  MadeRun& annotation(const std::string& name, const std::function<void(MadeRun&)>& inside) {
    const double begin = host_;
    inside(*this);
    host_ += 1;
    made_.annotation(name, begin, host_ - begin);
    return *this;
  }
  MadeRun& launch(const std::string& kernel, double duration) {
    const double begin = std::max(card_, host_ + 5);
    const bool copies = kernel.starts_with("Memcpy");
    made_.launched(kernel, host_, begin, duration, 7, copies ? "gpu_memcpy" : "kernel");
    host_ += 3;
    card_ = begin + duration;
    return *this;
  }
  // Waits until the card is done, and some more.
  MadeRun& synchronize(double more) {
    const double begin = host_;
    host_ = std::max(host_, card_) + more;
    made_.call("cudaStreamSynchronize", begin, host_ - begin);
    return *this;
  }
  MadeRun& step(const std::function<void(MadeRun&)>& inside) {
    const double begin = host_;
    inside(*this);
    host_ += 1;
    made_.step(next_step_++, begin, host_ - begin);
    return *this;
  }
  MadeRun& steps(int count, const std::function<void(MadeRun&)>& inside) {
    for (int i = 0; i < count; ++i) step(inside);
    return *this;
  }
  StepTree tree() const { return step_tree(made_.read()); }

 private:
  MadeTrace made_;
  double host_ = 0, card_ = 0;
  int next_step_ = 3;
};

using Step = std::function<void(MadeRun&)>;

constexpr const char* small = "[[8,4],[4,16]]";
constexpr const char* large = "[[64,4],[4,16]]";

StepTree run_of(const Step& step, int steps = 4) { return MadeRun().steps(steps, step).tree(); }

TraceDiff diff_of_steps(const Step& before, const Step& after, int steps = 4) {
  return diff_of(run_of(before, steps), run_of(after, steps));
}

void expect_sums(const TraceDiff& diff) {
  for (const DiffSide* side : {&diff.before, &diff.after}) {
    const StepSplit& split = side->split;
    double sum = split.compute + split.exposed_communication + split.exposed_copy;
    for (const double idle : split.idle) sum += idle;
    EXPECT_NEAR(sum, split.span, 1e-6) << side->file;
  }
  double rows = 0;
  for (const DiffRow& row : diff.rows) rows += row.difference_us();
  EXPECT_NEAR(rows, diff.difference_us(), 1e-3);
  EXPECT_NEAR(diff.rest_us(), 0, 1e-3);
}

// The kinds of the rows of work, with their paths and differences.
std::vector<std::string> told(const TraceDiff& diff) {
  std::vector<std::string> rows;
  for (const DiffRow& row : diff.rows)
    rows.push_back(
        fmt::format("{} {} {:.0f}", diff_kind_name(row.kind), row.path, row.difference_us()));
  return rows;
}

void layers(MadeRun& run, double gemm = 100, const char* shape = small,
            const char* kernel = "gemm") {
  run.operation("aten::linear", small, {},
                [&](MadeRun& r) {
                  r.operation("aten::addmm", shape, {{kernel, gemm}});
                })
      .operation("aten::relu", "[[8,16]]", {{"relu", 50}})
      .operation("aten::sum", "[[8,16]]", {{"sum", 40}});
}

TEST(TraceDiff, IsNothingBetweenEqualTraces) {
  const Step step = [](MadeRun& run) { layers(run); };
  const TraceDiff diff = diff_of_steps(step, step);
  EXPECT_TRUE(diff.rows.empty()) << ::testing::PrintToString(told(diff));
  EXPECT_EQ(diff.difference_us(), 0);
  EXPECT_EQ(diff.before.span_us.size(), 3U) << "the last step has no end";
  EXPECT_DOUBLE_EQ(diff.before.split.span, 190);
  EXPECT_THAT(diff_text({diff}, 10), HasSubstr("do the same in the same time"));
}

TEST(TraceDiff, FindsASlowerKernel) {
  const TraceDiff diff =
      diff_of_steps([](MadeRun& run) { layers(run); }, [](MadeRun& run) { layers(run, 200); });
  EXPECT_THAT(told(diff), ::testing::ElementsAre("slower aten::linear > aten::addmm 100"));
  EXPECT_DOUBLE_EQ(diff.difference_us(), 100);
  EXPECT_DOUBLE_EQ(diff.after.split.compute - diff.before.split.compute, 100);
  EXPECT_EQ(diff.rows[0].kernel_before, "gemm");
  EXPECT_DOUBLE_EQ(diff.rows[0].ran_after_us, 200);
  EXPECT_EQ(judge(diff, 10).verdict, Verdict::slower);
  EXPECT_EQ(judge(diff, 60).verdict, Verdict::not_slower);
  expect_sums(diff);
  EXPECT_THAT(told(diff_of_steps([](MadeRun& run) { layers(run, 200); },
                                 [](MadeRun& run) { layers(run); })),
              ::testing::ElementsAre("faster aten::linear > aten::addmm -100"));
}

TEST(TraceDiff, FindsWhatAppearedAndVanished) {
  const Step less = [](MadeRun& run) { layers(run); };
  const Step more = [](MadeRun& run) {
    run.operation("aten::dropout", "[[8,4]]", {{"dropout", 30}});
    layers(run);
  };
  EXPECT_THAT(told(diff_of_steps(less, more)), ::testing::ElementsAre("appeared aten::dropout 30"));
  EXPECT_THAT(told(diff_of_steps(more, less)),
              ::testing::ElementsAre("vanished aten::dropout -30"));
}

// All kernels of an operator that only one trace has are one row.
TEST(TraceDiff, SumsUpAnOperatorThatAppeared) {
  const TraceDiff diff =
      diff_of_steps([](MadeRun& run) { layers(run); },
                    [](MadeRun& run) {
                      layers(run);
                      run.operation("Fused", small, {{"a", 10}, {"b", 60}, {"a", 10}});
                    });
  EXPECT_THAT(told(diff), ::testing::ElementsAre("appeared Fused 80"));
  EXPECT_EQ(diff.rows[0].kernels, 2U);
  EXPECT_EQ(diff.rows[0].kernel_after, "b");
  EXPECT_EQ(diff.rows[0].calls_after, 3);
  EXPECT_THAT(diff_text({diff}, 10), HasSubstr("b, and 1 kernel more"));
}

TEST(TraceDiff, FindsMoreCalls) {
  const TraceDiff diff = diff_of_steps([](MadeRun& run) { layers(run); },
                                       [](MadeRun& run) {
                                         layers(run);
                                         layers(run);
                                       });
  ASSERT_EQ(diff.rows.size(), 3U);
  for (const DiffRow& row : diff.rows) {
    EXPECT_EQ(row.kind, DiffKind::more_calls);
    EXPECT_EQ(row.calls_before, 1);
    EXPECT_EQ(row.calls_after, 2);
  }
  expect_sums(diff);
}

TEST(TraceDiff, FindsAChangedShape) {
  const TraceDiff diff = diff_of_steps([](MadeRun& run) { layers(run); },
                                       [](MadeRun& run) { layers(run, 180, large, "other"); });
  EXPECT_THAT(told(diff), ::testing::ElementsAre("changed_shape aten::linear > aten::addmm 80"));
  EXPECT_EQ(diff.rows[0].shape_before, small);
  EXPECT_EQ(diff.rows[0].shape_after, large);
  EXPECT_EQ(diff.rows[0].kernel_after, "other");
}

TEST(TraceDiff, KnowsNoChangedShapesIfOneTraceHasNone) {
  const TraceDiff diff = diff_of_steps(
      [](MadeRun& run) {
        run.operation("aten::mm", small, {{"gemm", 10}});
      },
      [](MadeRun& run) {
        run.operation("aten::mm", "[]", {{"gemm", 30}});
      });
  EXPECT_THAT(told(diff), ::testing::ElementsAre("slower aten::mm 20"));
}

TEST(TraceDiff, FindsAChangedKernel) {
  const TraceDiff diff = diff_of_steps([](MadeRun& run) { layers(run); },
                                       [](MadeRun& run) { layers(run, 130, small, "other"); });
  EXPECT_THAT(told(diff), ::testing::ElementsAre("changed_kernel aten::linear > aten::addmm 30"));
  EXPECT_EQ(diff.rows[0].kernel_before, "gemm");
  EXPECT_EQ(diff.rows[0].kernel_after, "other");
}

TEST(TraceDiff, FindsIdleTimeOfItem) {
  const TraceDiff diff =
      diff_of_steps([](MadeRun& run) { layers(run); },
                    [](MadeRun& run) {
                      layers(run);
                      run.operation("aten::item", "[[]]", {{"Memcpy DtoH (Device -> Pageable)", 2}},
                                    [](MadeRun& r) { r.synchronize(20); });
                    });
  ASSERT_FALSE(diff.rows.empty());
  EXPECT_EQ(diff.rows[0].kind, DiffKind::more_idle);
  EXPECT_EQ(diff.rows[0].path, "aten::item");
  EXPECT_EQ(diff.rows[0].idle, IdleCause::synchronization);
  EXPECT_GE(diff.rows[0].difference_us(), 20);
  EXPECT_THAT(told(diff), ::testing::Contains("appeared aten::item 2"));
  EXPECT_DOUBLE_EQ(diff.after.split.exposed_copy, 2);
  expect_sums(diff);
}

TEST(TraceDiff, FindsTheDataLoaderThatTheCardWaitsFor) {
  const auto step = [](double loading) {
    return [loading](MadeRun& run) {
      run.synchronize(0).annotation("enumerate(DataLoader)",
                                    [&](MadeRun& r) { r.synchronize(loading); });
      layers(run);
    };
  };
  const TraceDiff diff = diff_of_steps(step(50), step(300));
  ASSERT_EQ(diff.rows.size(), 1U) << ::testing::PrintToString(told(diff));
  EXPECT_EQ(diff.rows[0].path, "enumerate(DataLoader)");
  EXPECT_NEAR(diff.difference_us(), 250, 1e-6);
}

TEST(TraceDiff, TakesNoOffenceAtOrder) {
  const auto first = [](MadeRun& run) { run.operation("aten::mul", small, {{"mul", 10}}); };
  const auto second = [](MadeRun& run) { run.operation("aten::sin", small, {{"sin", 20}}); };
  const TraceDiff diff = diff_of_steps(
      [&](MadeRun& run) {
        first(run);
        layers(run);
        second(run);
      },
      [&](MadeRun& run) {
        second(run);
        layers(run);
        first(run);
      });
  EXPECT_TRUE(diff.rows.empty()) << ::testing::PrintToString(told(diff));
}

// An annotation is no work, and neither is a number in its name.
TEST(TraceDiff, LooksThroughAnnotations) {
  int count = 0;
  const Step plain = [](MadeRun& run) { layers(run); };
  const Step numbered = [&](MadeRun& run) {
    run.annotation(fmt::format("batch {}", ++count), [](MadeRun& r) { layers(r); });
  };
  EXPECT_TRUE(diff_of_steps(plain, numbered).rows.empty());
  EXPECT_TRUE(diff_of_steps(numbered, numbered).rows.empty());
  EXPECT_EQ(run_of(numbered).nodes.size(), run_of(plain).nodes.size() + 1);
}

TEST(TraceDiff, LooksIntoOperatorsThatOnlyOneTraceHas) {
  const Step inner = [](MadeRun& run) { run.operation("aten::mm", small, {{"gemm", 30}}); };
  const TraceDiff diff =
      diff_of_steps([&](MadeRun& run) { run.operation("aten::matmul", small, {}, inner); },
                    [&](MadeRun& run) { run.operation("aten::linear", small, {}, inner); });
  EXPECT_TRUE(diff.rows.empty()) << ::testing::PrintToString(told(diff));
}

TEST(TraceDiff, KeepsApartWhatMovedAndWhatVanished) {
  const auto run = [](const std::string& name,
                      std::vector<std::pair<std::string, double>> kernels) {
    return [=](MadeRun& r) {
      r.annotation(name, [&](MadeRun& inner) {
        for (const auto& [kernel, duration] : kernels) inner.launch(kernel, duration);
      });
    };
  };
  const TraceDiff diff = diff_of_steps(run("old", {{"a", 30}, {"b", 20}}), run("new", {{"a", 40}}));
  EXPECT_THAT(told(diff), ::testing::ElementsAre("vanished old -20", "slower old 10"));
}

TEST(TraceDiff, LeavesKernelsWithTheirOperators) {
  const TraceDiff diff = diff_of_steps(
      [](MadeRun& run) {
        run.operation("aten::add", small, {{"add", 30}});
      },
      [](MadeRun& run) {
        run.operation("Compiled", small, {{"add", 40}});
      });
  EXPECT_THAT(told(diff), ::testing::ElementsAre("appeared Compiled 40", "vanished aten::add -30"));
}

// A captured graph's kernels have one launch and no operator.
TEST(TraceDiff, AlignsKernelsWithoutOperators) {
  const auto graph = [](const std::vector<std::string>& kernels) {
    return [kernels](MadeRun& run) {
      for (const std::string& kernel : kernels) run.launch(kernel, 10);
    };
  };
  const TraceDiff diff =
      diff_of_steps(graph({"a", "b", "c", "d"}), graph({"a", "x", "c", "d", "e"}));
  EXPECT_THAT(told(diff), ::testing::UnorderedElementsAre("changed_kernel  0", "appeared  10"));
  EXPECT_THAT(told(diff_of_steps(graph({"a", "x", "c"}), graph({"a", "y", "z", "c"}))),
              ::testing::UnorderedElementsAre("vanished  -10", "appeared  10", "appeared  10"))
      << "which of two it has become cannot be told";
}

TEST(TraceDiff, ComparesTracesWithoutSteps) {
  MadeRun before, after;
  layers(before);
  layers(after, 150);
  const TraceDiff diff = diff_of(before.tree(), after.tree());
  EXPECT_TRUE(diff.before.steps.empty());
  EXPECT_THAT(told(diff), ::testing::ElementsAre("slower aten::linear > aten::addmm 50"));
  EXPECT_EQ(judge(diff, 1).verdict, Verdict::undecided);
  EXPECT_THAT(diff_text({diff}, 10), HasSubstr("The whole trace takes"));
}

TEST(TraceDiff, ComparesTheHostsOperatorsWhereThereIsNoCard) {
  const auto run = [](double mm) {
    MadeTrace made;
    for (int i = 0; i < 4; ++i) {
      const double at = 1000 * i;
      made.step(i, at, 1000)
          .operation("aten::linear", at, mm + 20)
          .operation("aten::mm", at + 10, mm)
          .operation("aten::relu", at + 500, 30);
    }
    return step_tree(made.read());
  };
  const TraceDiff diff = diff_of(run(100), run(160));
  EXPECT_TRUE(diff.of_host);
  EXPECT_THAT(told(diff), ::testing::Contains("slower aten::linear > aten::mm 60"));
  EXPECT_DOUBLE_EQ(diff.before.split.compute, 150);
  expect_sums(diff);
}

// Time belongs to both kernels that run at once; computing hides communication.
TEST(TraceDiff, DividesTimeAmongWhatRunsAtOnce) {
  const auto run = [](double collective) {
    MadeTrace made;
    made.launched("a", 0, 100, 100)
        .launched("b", 1, 150, 100, 8)
        .launched("ncclDevKernel_AllReduce", 2, 200, collective, 9);
    return step_tree(made.read());
  };
  const TraceDiff diff = diff_of(run(80), run(110));
  EXPECT_DOUBLE_EQ(diff.before.split.compute, 150);
  EXPECT_DOUBLE_EQ(diff.before.split.exposed_communication, 30);
  ASSERT_EQ(diff.rows.size(), 1U);
  EXPECT_DOUBLE_EQ(diff.rows[0].before_us, 30);
  EXPECT_DOUBLE_EQ(diff.rows[0].after_us, 60);
  EXPECT_DOUBLE_EQ(diff.rows[0].ran_after_us, 110);
  const TraceDiff other = diff_of(run(80), step_tree(MadeTrace().launched("a", 0, 0, 100).read()));
  const auto b = std::ranges::find(other.rows, "b", &DiffRow::kernel_before);
  ASSERT_NE(b, other.rows.end());
  EXPECT_DOUBLE_EQ(b->before_us, 75);
}

TEST(TraceDiff, SumsAddUpOnRandomPairs) {
  std::mt19937 random(7);
  const auto number = [&](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  const auto made = [&] {
    MadeTrace trace;
    trace.launched("before the first step", -50, -20, 30 + number(2000), 5);
    for (int step = 0; step < 4; ++step) {
      const int at = 1000 * step;
      trace.step(step, at, 990);
      for (int i = 0; i < 20; ++i) {
        const int begin = at + number(900);
        trace.operation(fmt::format("op{}", number(4)), begin, 1 + number(80),
                        fmt::format("[[{}]]", number(3)));
        const int launch = at + number(900);
        trace.launched(number(4) == 0 ? "ncclKernel" : fmt::format("k{}", number(5)), launch,
                       launch + number(1500), 1 + number(60), number(3),
                       number(5) == 0 ? "gpu_memcpy" : "kernel");
        if (number(8) == 0) trace.call("cudaStreamSynchronize", at + number(900), number(90));
      }
    }
    return step_tree(trace.read());
  };
  for (int round = 0; round < 40; ++round) {
    const StepTree before = made(), after = made();
    const TraceDiff diff = diff_of(before, after);
    expect_sums(diff);
    EXPECT_FALSE(diff.rows.empty());
    EXPECT_TRUE(diff_of(before, before).rows.empty());
  }
}

TEST(TraceDiff, TakesStepsThatBothHave) {
  const Step step = [](MadeRun& run) { layers(run); };
  const TraceDiff diff = diff_of(run_of(step, 4), run_of(step, 7));
  EXPECT_EQ(diff.after.steps, (std::vector<std::int64_t>{3, 4, 5}));
  const TraceDiff few = diff_of(run_of(step, 2), run_of(step, 7));
  EXPECT_EQ(few.before.steps.size(), 1U);
  EXPECT_EQ(few.after.steps.size(), 6U);
  EXPECT_EQ(judge(few, 1).verdict, Verdict::undecided);
}

TEST(TraceDiff, IsUnsureOfStepsThatScatter) {
  const auto scattered = [](std::vector<double> gemms) {
    MadeRun run;
    for (const double gemm : gemms) run.step([&](MadeRun& r) { layers(r, gemm); });
    return run.tree();
  };
  const TraceDiff diff =
      diff_of(scattered({100, 140, 90, 120, 100}), scattered({130, 100, 150, 90, 100}));
  ASSERT_TRUE(diff.interval_us);
  EXPECT_GT(diff.difference_us(), 0);
  EXPECT_LT(diff.interval_us->low, 0);
  EXPECT_EQ(judge(diff, 0).verdict, Verdict::not_slower);
}

TEST(TraceDiff, RefusesWhatCannotBeCompared) {
  const StepTree card = step_tree(MadeTrace().launched("a", 0, 5, 5).read());
  const StepTree host = step_tree(MadeTrace().operation("aten::mm", 0, 5).read());
  const StepTree empty = step_tree(read_text("[]", "empty.json"));
  EXPECT_THROW(diff_of(card, host), FormatError);
  EXPECT_THROW(diff_of(card, empty), FormatError);
}

TEST(TraceDiff, IsCompleteAsJsonAndTellsAsText) {
  const TraceDiff diff = diff_of_steps([](MadeRun& run) { layers(run); },
                                       [](MadeRun& run) { layers(run, 200, small, "other"); });
  const auto json = nlohmann::json::parse(diff_json({diff}));
  EXPECT_EQ(json["schema"], "ridge-trace-diff/1");
  const auto& rank = json["ranks"].at(0);
  EXPECT_EQ(rank["difference_us"], 100);
  EXPECT_EQ(rank["before"]["steps"], nlohmann::json({3, 4, 5}));
  EXPECT_EQ(rank["before"]["span_us"], 190);
  EXPECT_EQ(rank["rows"].at(0)["kind"], "changed_kernel");
  EXPECT_EQ(rank["rows"].at(0)["input_dims_before"], nlohmann::json({{8, 4}, {4, 16}}));
  EXPECT_EQ(rank["rows"].at(0)["part"], 1);
  bool found = false;
  for (const auto& one : rank["operators"])
    if (one["name"] == "aten::addmm")
      found = one["calls_before"] == 1 && one["device_after_us"] == 200;
  EXPECT_TRUE(found);
  const std::string text = diff_text({diff}, 10);
  for (const char* part : {"A step takes 190.0 µs before and 290.0 µs after: +100.0 µs, +52.6 %",
                           "steps 3 to 5", "computing", "changed kernel", "gemm -> other",
                           "aten::linear > aten::addmm", "What differs, largest first (1 row)"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(TraceDiff, ShowsHostileNamesAsText) {
  const auto run = [](double duration) {
    MadeTrace made;
    made.operation(R"(\u001b[2Jevil)", 0, 50).launched(R"(\u001b]0;title\u0007)", 1, 10, duration);
    return step_tree(made.read());
  };
  const std::string text = diff_text({diff_of(run(5), run(50))}, 10);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("\\x1b"));
}

}  // namespace
}  // namespace ridge::trace
