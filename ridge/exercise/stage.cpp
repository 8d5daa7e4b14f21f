#include "ridge/exercise/stage.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/exercise/defects.h"
#include "ridge/exercise/devices.h"

namespace ridge {
namespace {

void refuse_without_effect(std::string_view what, std::string_view instead) {
  throw UsageError("this stage changes nothing in a run of {}: {}", what, instead);
}

Defect unscaled_weights(const RunOptions&, Device&) {
  return {.hooks = {.rewrite = [](Graph& graph) { forget_weight_scale(graph); }}};
}

Defect strided_layout(const RunOptions& options, Device&) {
  if (options.seq_len == 1) refuse_without_effect("sequences of 1 token", "use a longer --seq-len");
  return {.hooks = {.rewrite = [](Graph& graph) { put_sequence_first(graph); }}};
}

Defect early_stopwatch(const RunOptions&, Device& device) {
  return {.device = std::make_unique<QueuedDevice>(device)};
}

Defect naive_product(const RunOptions& options, Device& device) {
  if (!options.schedule(device.target()).has("fuse-gate-up"))
    refuse_without_effect("a version without the pass fuse-gate-up", "use --version v2, v3 or v4");
  return {.device = std::make_unique<NaiveProductDevice>(device, 2 * options.intermediate_dim)};
}

Defect detached_loss(const RunOptions&, Device&) {
  return {.hooks = {.rewrite = [](Graph& graph) { detach_loss(graph); }}};
}

constexpr DebugStage stages[] = {
    {.number = 1,
     .title = "A loss in the hundreds",
     .symptom = "The loss starts in the hundreds, and the steps bring it nowhere.",
     .hint = "Which loss has a model that knows nothing, and takes each of V tokens for as likely "
             "as any other? Is this one worse than that before its first update? Then look at what "
             "the weights are at the start: add --verify.",
     .cause = "The initial weights were never brought to scale. Each matrix should be drawn with a "
              "standard deviation of 0.02; these have the square root of their number of columns, "
              "16 for 256, where its reciprocal would have been a usable choice too.",
     .evidence =
         "ln V is the loss of a model that takes all tokens for equally likely: 6.9 for 1000. Step "
         "1 prints a loss from before any update, so neither gradients nor the optimizer can be at "
         "fault: only the start is left. --verify lists the weights' size at the start beside that "
         "of a sound run: every matrix is hundreds of times too large, every norm is right.",
     .fix = "Draw the weights with the standard deviation that the model was designed for.",
     .apply = unscaled_weights},
    {.number = 2,
     .title = "Right, but slow",
     .symptom = "The losses are those of a sound run; the steps take several times as long.",
     .hint = "Does the run do more arithmetic than it has to, or move more data? Add --profile: "
             "which operators stand at the top of the table, how many FLOPs and how many bytes "
             "have they? Then ridge report, or ridge roofline --profile, on the profile directory.",
     .cause =
         "The rows of all products were laid out sequence first. A dense layer is one product of "
         "(batch x sequence) rows; here it is one little product of batch rows for each position, "
         "at a stride through memory, and each reads a copy of the weight of its own.",
     .evidence =
         "The operator table has permute and mul where a sound run has none: they move data and "
         "compute nothing that was not there. The products have the FLOPs they always had, at a "
         "fraction of the FLOPs per byte: on the roofline they have moved to the left, under the "
         "slope of memory. Bytes of a step and peak memory have multiplied.",
     .fix = "Keep batch and sequence together as the rows of one matrix; transpose nothing.",
     .apply = strided_layout},
    {.number = 3,
     .title = "Too good to be true",
     .symptom = "The steps are reported to take a small part of the time they should.",
     .hint = "How many FLOPs a second would that be? Add --flops, and compare with what ridge "
             "roofline measures as the most this machine can do. How long did you wait? Put time "
             "before the command.",
     .cause = "The stopwatch does not wait for the work. Kernels run on a thread of their own, and "
              "a launch only puts one into its queue; the times were taken when the last kernel of "
              "a phase was in the queue, not when it had run. On a GPU that is timing without a "
              "synchronization.",
     .evidence =
         "The run claims more FLOP/s than the machine can do: an utilization above 100 % proves "
         "the measurement wrong, whatever the run. On the roofline of its profile the products are "
         "above the roof. The steps of the profile, timed by another clock, are long, and nearly "
         "all of each lies outside of any operator. The losses are right: the work is done.",
     .fix = "Wait for the device before the clock is read, at both ends of what is timed.",
     .apply = early_stopwatch},
    {.number = 4,
     .title = "Right, but slow again",
     .symptom = "The losses are those of a sound run; the forward pass takes many times as long.",
     .hint = "Forward, backward or optimizer: which is it? Add --profile: which operator takes the "
             "time, and is it as slow at every place in the model? The bottleneck report has a "
             "table of nodes, with the time that each would take at this machine's ceilings.",
     .cause =
         "The product inside the fused gate-and-up projection is three loops, one multiplication "
         "after the other: no blocks that stay in a cache, no vectors, one thread.",
     .evidence =
         "The graph is that of a sound run: same operators, same FLOPs, same bytes. One product is "
         "slow in it, the forward one that writes both halves of the feed-forward layer; others of "
         "the same FLOPs are fast. Its intensity puts it under the flat part of the roof, and it "
         "reaches about 1 % of it: neither memory nor the peak holds it back, the kernel is bad.",
     .fix = "Use a product that blocks for registers and caches, and all threads.",
     .apply = naive_product},
    {.number = 5,
     .title = "Fast, and learns nothing",
     .symptom = "The first loss is right and the steps are quick, but the loss does not fall.",
     .hint = "What should the backward pass cost, beside the forward pass? What does it cost here? "
             "Ask which parameters have a gradient: add --verify.",
     .cause = "The gradient was cut off at the loss, as by a kernel that gives its result back "
              "without a rule for its gradient, or a forgotten detach(): every gradient is zero, "
              "and nothing is left to compute in the backward pass.",
     .evidence = "Backward has twice the forward pass's products and should take about twice its "
                 "time; here it takes next to none, which makes the step fast. --verify counts the "
                 "parameters without gradient. Those between the loss and a cut would have one, "
                 "all others none: as not one has, the cut is at the loss itself. A first loss "
                 "says nothing of gradients: compare curves.",
     .fix = "Give the kernel its gradient, and check it against a reference before timing it.",
     .apply = detached_loss},
};

}  // namespace

std::span<const DebugStage> debug_stages() { return stages; }

const DebugStage& debug_stage(std::int64_t number) {
  const auto* const found = std::ranges::find(stages, number, &DebugStage::number);
  if (found == std::end(stages))
    throw UsageError("--stage is {}; the exercise has stages 1 to {}", number, std::size(stages));
  return *found;
}

std::string sums_text() {
  std::string text;
  for (int a = 0; a < 60; ++a)
    for (int b = 0; b < 60; ++b) text += fmt::format("{} + {} = {}\n", a, b, a + b);
  return text;
}

}  // namespace ridge
