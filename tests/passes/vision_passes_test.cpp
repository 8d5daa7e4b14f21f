// What channels-last and conv-epilogues make of the vision networks: what they compute stays the
// same, their work too, and what is left of moving data about is counted.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "ridge/cpu/device.h"
#include "ridge/models/vision/vision.h"
#include "ridge/ops/op.h"
#include "ridge/passes/autodiff.h"
#include "ridge/passes/passes.h"
#include "ridge/run/executor.h"
#include "ridge/session/session.h"
#include "tests/models/vision_rule.h"

namespace ridge {
namespace {

std::vector<std::string> names_of_all() {
  std::vector<std::string> names;
  for (const VisionNetwork& network : vision_networks()) names.emplace_back(network.name);
  return names;
}

// Whether all that goes into each value is persistent: it is computed from weights alone.
std::vector<bool> from_weights(const Graph& graph) {
  std::vector<bool> fixed(graph.value_count(), false);
  for (ValueId v = 0; v < graph.value_count(); ++v)
    fixed[v] = graph.info(v).persistent && graph.info(v).role != Role::input;
  for (const Node& node : graph.nodes())
    for (const ValueId out : node.outputs)
      fixed[out] = std::ranges::all_of(node.inputs, [&](ValueId in) { return fixed[in]; });
  return fixed;
}

// Permutes of anything but weights, which need not be permuted for every image.
std::size_t permutes_of_images(const Graph& graph) {
  const std::vector<bool> fixed = from_weights(graph);
  std::size_t count = 0;
  for (const Node& node : graph.nodes())
    count += std::holds_alternative<Permute>(node.op->variant()) && !fixed[node.outputs[0]];
  return count;
}

template <class T>
std::size_t count_of(const Graph& graph, bool (*which)(const T&) = nullptr) {
  std::size_t count = 0;
  for (const Node& node : graph.nodes()) {
    const T* op = std::get_if<T>(&node.op->variant());
    count += op && (!which || which(*op));
  }
  return count;
}

Cost work_of(const Graph& graph) {
  Cost cost = cost_of_step(graph, 1).total();
  cost.bytes_read = cost.bytes_written = 0;
  return cost;
}

std::size_t image_dropouts(const Graph& graph) {
  std::size_t count = 0;
  for (const Node& node : graph.nodes()) {
    const auto* op = std::get_if<Dropout>(&node.op->variant());
    count += op && op->block == 1 && graph.info(node.outputs[0]).type.shape.rank() == 4;
  }
  return count;
}

class VisionPasses : public ::testing::TestWithParam<std::string> {};

bool is_channels_first(const Conv2d& op) { return op.layout == ImageLayout::nchw; }

TEST_P(VisionPasses, LeaveNoMorePermutesThanThereWere) {
  for (const bool training : {false, true}) {
    Graph before, after;
    const VisionOptions options{.batch_size = 2, .training = training};
    build_vision(before, GetParam(), options);
    const Model model = build_vision(after, GetParam(), options);
    // Nothing of ViT is an image: its patches are products.
    EXPECT_EQ(channels_last(after) > 0, !GetParam().starts_with("vit"));
    EXPECT_EQ(work_of(after), work_of(before));
    EXPECT_EQ(count_of<Conv2d>(after, is_channels_first), 0u);
    EXPECT_EQ(count_of<Conv2d>(after), count_of<Conv2d>(before));
    // At the entrance; where all of an image is flattened, after pools to 6 x 6 or 7 x 7; and twice
    // where elements draw numbers in the order that is meant.
    const std::string name = GetParam();
    const std::size_t flattened = name.starts_with("vgg") || name == "alexnet";
    EXPECT_LE(permutes_of_images(after),
              permutes_of_images(before) + 1 + flattened + 2 * image_dropouts(before));
    EXPECT_EQ(after.find("logits").type(), before.find("logits").type());
    if (!training) continue;
    EXPECT_NO_THROW(gradients(model.loss, after.parameters()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, VisionPasses, ::testing::ValuesIn(names_of_all()),
                         [](const auto& named) { return named.param; });

void write_operands(const Model& model, Graph& graph, Executor& executor) {
  initialize_by_rule(graph, executor);
  std::vector<float> host(static_cast<std::size_t>(model.input.type().numel()));
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = rule_uniform(7, i) * 4.0f - 2.0f;
  executor.write(model.input, std::span<const float>(host));
  std::vector<std::int32_t> targets(static_cast<std::size_t>(model.targets.type().numel()));
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<std::int32_t>(i % 7);
  executor.write(model.targets, std::span<const std::int32_t>(targets));
  if (model.step) executor.write(model.step, std::span<const std::int32_t>(std::vector{3}));
}

double rms(const std::vector<float>& x) {
  double squares = 0;
  for (const float element : x) squares += double{element} * element;
  return std::sqrt(squares / static_cast<double>(x.size()));
}

// The root mean square of the difference, in units of that of what is wanted.
void expect_close(std::vector<float> got, const std::vector<float>& want, double limit,
                  const std::string& what, double noise = 0) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_TRUE(std::isfinite(rms(want)) && rms(want) > 0) << what;
  for (std::size_t i = 0; i < want.size(); ++i) got[i] -= want[i];
  EXPECT_LE(rms(got), limit * rms(want) + noise) << what;
}

std::vector<float> logits_of(const std::string& name, const VisionOptions& options,
                             std::initializer_list<std::size_t (*)(Graph&)> passes) {
  Graph graph;
  const Model model = build_vision(graph, name, options);
  for (const auto pass : passes) EXPECT_GT(pass(graph), 0u);
  CpuDevice device;
  Executor executor(graph, device, {.planned = true});
  write_operands(model, graph, executor);
  executor.run(Phase::forward);
  return executor.read_floats(model.logits);
}

class VisionFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(VisionFamilies, ComputeTheSameLogitsWithChannelsLast) {
  const std::string name = GetParam();
  const VisionOptions options{.batch_size = 2, .image_size = name == "maxvit_t" ? 224 : 96};
  const std::vector<float> want = logits_of(name, options, {});
  // Sums in another order.
  expect_close(logits_of(name, options, {channels_last}), want, 1e-4, name);
}

INSTANTIATE_TEST_SUITE_P(
    OneOfEach, VisionFamilies,
    ::testing::Values("alexnet", "convnext_tiny", "deeplabv3_mobilenet_v3_large", "densenet121",
                      "efficientnet_b0", "efficientnet_v2_s", "fcn_resnet50", "googlenet",
                      "inception_v3", "lraspp_mobilenet_v3_large", "maxvit_t", "mnasnet0_5",
                      "mobilenet_v2", "mobilenet_v3_small", "regnet_y_400mf", "resnet18",
                      "resnext50_32x4d", "shufflenet", "shufflenet_v2_x0_5", "squeezenet1_1",
                      "swin_t", "swin_v2_t", "vgg11_bn", "xception"),
    [](const auto& named) { return named.param; });

std::map<std::string, std::vector<float>> gradients_of(const std::string& name, bool rewritten) {
  Graph graph;
  const Model model =
      build_vision(graph, name, {.batch_size = 4, .image_size = 64, .training = true});
  if (rewritten) {
    EXPECT_GT(channels_last(graph), 0u);
    batch_norm_epilogues(graph);
  }
  const std::vector<Value> parameters = graph.parameters();
  const std::vector<Value> grads = gradients(model.loss, parameters);
  for (std::size_t i = 0; i < grads.size(); ++i)
    graph.keep(grads[i], graph.info(parameters[i].id).name + ".grad");
  if (rewritten) {
    batch_norm_gradients(graph);
    conv_epilogues(graph);
  }
  CpuDevice device;
  Executor executor(graph, device, {.planned = true});
  write_operands(model, graph, executor);
  executor.run(Phase::forward);
  executor.run(Phase::backward);
  std::map<std::string, std::vector<float>> found;
  for (std::size_t i = 0; i < grads.size(); ++i)
    found[graph.info(grads[i].id).name] = executor.read_floats(grads[i]);
  return found;
}

// Also of networks whose norms or convolutions take the activation into their kernels.
TEST(VisionGradients, AreTheSameWithChannelsLast) {
  for (const std::string name : {"resnet18", "mobilenet_v2", "squeezenet1_1"}) {
    const auto want = gradients_of(name, false), got = gradients_of(name, true);
    ASSERT_EQ(got.size(), want.size());
    // Behind a linear layer that is normalized again, gradients of biases are zero but for
    // rounding.
    double most = 0;
    for (const auto& [parameter, grad] : want) most = std::max(most, rms(grad));
    // An element beside a kink may fall on its other side.
    for (const auto& [parameter, grad] : want)
      expect_close(got.at(parameter), grad, 2e-2, name + ": " + parameter, 1e-5 * most);
  }
}

// Each block of a ResNet ends with a norm that adds what the block began with; the gradient behind
// it comes from the next block along two paths.
TEST(BatchNormEpilogues, TakeAllThatFollowsThemInResNet) {
  Graph graph;
  const Model model = build_vision(graph, "resnet50", {.training = true});
  const std::size_t norms = count_of<BatchNormTrain>(graph), adds = count_of<Add>(graph);
  EXPECT_EQ(batch_norm_epilogues(graph), 49u);
  EXPECT_EQ(count_of<BatchNormTrain>(graph), norms);
  EXPECT_EQ(count_of<Relu>(graph), 0u);
  EXPECT_EQ(count_of<Add>(graph), adds - 16);
  gradients(model.loss, graph.parameters());
  EXPECT_EQ(batch_norm_gradients(graph), 15u);
  EXPECT_EQ(count_of<BatchNormGrad>(graph, [](const BatchNormGrad& op) { return op.summed; }), 15u);
}

template <Epilogue epilogue>
bool ends_with(const BatchNormTrain& op) {
  return op.epilogue == epilogue;
}

TEST(BatchNormEpilogues, TakeActivationsOrResidualsOfOtherNetworks) {
  Graph mobilenet, efficientnet;
  build_vision(mobilenet, "mobilenet_v2", {.training = true});
  batch_norm_epilogues(mobilenet);
  EXPECT_EQ(count_of<BatchNormTrain>(mobilenet, ends_with<Epilogue::relu6>), 35u);
  EXPECT_EQ(
      count_of<BatchNormTrain>(mobilenet, [](const BatchNormTrain& op) { return op.residual; }),
      10u);
  build_vision(efficientnet, "efficientnet_b0", {.training = true});
  batch_norm_epilogues(efficientnet);
  EXPECT_EQ(count_of<BatchNormTrain>(efficientnet, ends_with<Epilogue::silu>), 33u);
}

// Of convolutions without batch norm, or with it folded into them.
TEST(ConvEpilogues, TakeActivationsOfWholeNetworks) {
  for (const std::string name : {"alexnet", "vgg16", "squeezenet1_0"}) {
    Graph before, after;
    build_vision(before, name, {});
    build_vision(after, name, {});
    conv_epilogues(after);
    const auto is_fused = [](const Conv2d& op) { return op.epilogue == Epilogue::relu; };
    EXPECT_EQ(count_of<Conv2d>(after, is_fused), count_of<Conv2d>(after)) << name;
    EXPECT_EQ(count_of<Relu>(after), count_of<Relu>(before) - count_of<Conv2d>(before)) << name;
    EXPECT_EQ(cost_of_step(after, 1).total().flops, cost_of_step(before, 1).total().flops) << name;
    if (name == "vgg16") continue;  // has too many weights to be quick
    const VisionOptions small{.batch_size = 2, .image_size = 64};
    expect_close(logits_of(name, small, {conv_epilogues, channels_last}),
                 logits_of(name, small, {}), 1e-5, name);
    expect_close(logits_of(name, small, {channels_last, conv_epilogues}),
                 logits_of(name, small, {}), 1e-4, name);
  }
}

// Channels-last first, so that the concatenation lies beside what it normalizes.
TEST(NormActivations, ReadWhatDenseBlocksJoin) {
  Graph after;
  build_vision(after, "densenet121", {});
  channels_last(after);
  const std::size_t joins = count_of<Concat>(after), norms = count_of<BatchNorm>(after);
  EXPECT_EQ(norm_activations(after), norms);
  EXPECT_EQ(count_of<Relu>(after), 0u);
  EXPECT_EQ(count_of<Concat>(after), 0u);
  const auto is_join = [](const BatchNorm& op) { return op.parts > 1; };
  EXPECT_EQ(count_of<BatchNorm>(after, is_join), joins);
  const VisionOptions small{.batch_size = 2, .image_size = 64};
  const std::vector<float> want = logits_of("densenet121", small, {});
  expect_close(logits_of("densenet121", small, {channels_last, norm_activations}), want, 1e-4, "");
  expect_close(logits_of("densenet121", small, {norm_activations}), want, 1e-5, "channels first");
}

// With channels first, or along another dimension, concatenations stay.
TEST(NormActivations, LeaveOtherConcatenations) {
  for (const auto& [layout, dim] :
       {std::pair{ImageLayout::nchw, 1u}, {ImageLayout::nchw, 3u}, {ImageLayout::nhwc, 2u}}) {
    Graph graph;
    const Value x = graph.input("x", {DType::f32, {2, 4, 4, 4}});
    const Value both = concat({{x, x}}, dim);
    const std::int64_t channels = ImageShape(both.shape(), layout).c;
    std::vector<Value> operands{both};
    for (const char* name : {"weight", "bias", "mean", "variance"})
      operands.push_back(graph.parameter(name, {channels}, Init::ones()));
    graph.keep(graph.apply(BatchNorm{.layout = layout}, operands)[0], "y");
    EXPECT_EQ(norm_activations(graph), 0u);
  }
}

constexpr std::int64_t most_weights = Target{}.most_squeeze_weights;
std::size_t squeezed(Graph& graph) { return squeeze_excitation(graph, most_weights); }

TEST(SqueezeExcitationPass, JoinsBothProducts) {
  struct Case {
    const char* name;
    std::size_t blocks;
    bool all;  // of them are small enough
  };
  for (const auto& [name, blocks, all] : {Case{"efficientnet_b0", 16, true},
                                          {"mobilenet_v3_small", 9, true},
                                          {"mobilenet_v3_large", 8, false}}) {
    Graph graph;
    build_vision(graph, name, {});
    const Cost before = work_of(graph);
    conv_epilogues(graph);
    channels_last(graph);
    const std::size_t convolutions = count_of<Conv2d>(graph);
    const std::size_t found = squeeze_excitation(graph, most_weights);
    EXPECT_EQ(found == blocks, all) << name;
    EXPECT_GT(2 * found, blocks) << name;
    EXPECT_EQ(count_of<Conv2d>(graph), convolutions - 2 * found) << name;
    EXPECT_EQ(work_of(graph), before) << name;
    const VisionOptions small{.batch_size = 2, .image_size = 64};
    const std::vector<float> want = logits_of(name, small, {});
    expect_close(logits_of(name, small, {conv_epilogues, channels_last, squeezed}), want, 1e-4,
                 name);
    expect_close(logits_of(name, small, {conv_epilogues, squeezed}), want, 1e-5, name);
  }
}

// What a kernel of sm90 holds.
constexpr BottleneckRules narrow{.channels = 64, .most_expanded = 256};
std::size_t joined_bottlenecks(Graph& graph) { return residual_bottlenecks(graph, narrow); }

// The first stage of a ResNet has three blocks, of which the first has a projection beside it, and
// the first two have a reduction to 64 channels behind them; in f32 no kernel holds the weights.
TEST(ResidualBottlenecks, AreFoundWhereTheyAreNarrow) {
  for (const auto& [name, compute, found] : {std::tuple{"resnet50", DType::f16, 3u},
                                             {"resnet101", DType::bf16, 3u},
                                             {"resnet50", DType::f32, 0u},
                                             {"wide_resnet50_2", DType::f16, 0u},
                                             {"resnet18", DType::f16, 0u},
                                             {"resnext50_32x4d", DType::f16, 0u}}) {
    Graph graph;
    build_vision(graph, name, {.compute = compute});
    fold_batch_norm(graph);
    channels_last(graph);
    conv_epilogues(graph);
    const Cost before = work_of(graph);
    const std::size_t convolutions = count_of<Conv2d>(graph);
    EXPECT_EQ(residual_bottlenecks(graph, narrow), found) << name;
    EXPECT_EQ(count_of<Conv2d>(graph), convolutions - (found > 0 ? 9 : 0)) << name;
    const auto reduces = [](const ResidualBottleneck& op) { return op.reduces; };
    const auto projects = [](const ResidualBottleneck& op) { return op.projects; };
    EXPECT_EQ(count_of<ResidualBottleneck>(graph, projects), found > 0 ? 1u : 0u) << name;
    EXPECT_EQ(count_of<ResidualBottleneck>(graph, reduces), found > 0 ? 2u : 0u) << name;
    EXPECT_EQ(work_of(graph), before) << name;
  }
}

// What no kernel holds would only be computed by the same convolutions in a worse order.
TEST(ResidualBottlenecks, AreLeftWhereNoKernelHoldsThem) {
  for (const BottleneckRules& rules :
       {BottleneckRules{}, BottleneckRules{.channels = 64, .most_expanded = 128},
        BottleneckRules{.channels = 32, .most_expanded = 256}}) {
    Graph graph;
    build_vision(graph, "resnet50", {.compute = DType::f16});
    fold_batch_norm(graph);
    channels_last(graph);
    conv_epilogues(graph);
    EXPECT_EQ(residual_bottlenecks(graph, rules), 0u);
  }
}

TEST(SqueezeExcitationPass, LeavesLargerWeightsToProducts) {
  Graph graph;
  build_vision(graph, "efficientnet_b0", {});
  conv_epilogues(graph);
  channels_last(graph);
  EXPECT_EQ(squeeze_excitation(graph, 10), 0u);
}

// But for which of the first block's two branches is rounded before the sum.
TEST(ResidualBottlenecks, ComputeWhatConvolutionsDid) {
  const VisionOptions small{.batch_size = 2, .image_size = 64, .compute = DType::bf16};
  const std::vector<float> want =
      logits_of("resnet50", small, {fold_batch_norm, channels_last, conv_epilogues});
  expect_close(logits_of("resnet50", small,
                         {fold_batch_norm, channels_last, conv_epilogues, joined_bottlenecks}),
               want, 1e-2, "resnet50");
}

// A graph of small convolutions to try patterns on.
struct Small {
  Graph graph;
  Value x = graph.input("x", {DType::f32, {1, 4, 3, 3}});

  Value conv(Value from, const char* name, bool bias = false) {
    const Scope scope(graph, name);
    const Value w = graph.parameter("weight", {4, 4, 1, 1}, Init::normal(0.5f));
    return conv2d(from, w, bias ? graph.parameter("bias", {4}, Init::normal(0.5f)) : Value{}, {});
  }
  // y, before and after the pass.
  std::vector<float> run() {
    CpuDevice device(1);
    Executor executor(graph, device);
    executor.initialize(1);
    std::vector<float> images(36);
    for (std::size_t i = 0; i < images.size(); ++i) images[i] = rule_uniform(3, i) * 2.0f - 1.0f;
    executor.write(x, std::span<const float>(images));
    executor.run(Phase::forward);
    return executor.read_floats(graph.find("y"));
  }
  // How many were found; what is computed must not change.
  std::size_t rewrite() {
    const std::vector<float> before = run();
    const std::size_t found = conv_epilogues(graph);
    expect_close(run(), before, 1e-6, "y");
    return found;
  }
  const Conv2d& op(std::size_t n) { return std::get<Conv2d>(graph.nodes()[n].op->variant()); }
  const std::string& scope(std::size_t n) { return graph.scope_name(graph.nodes()[n].scope); }
};

// What can be read after the run keeps its name and is computed, though it could go by another.
TEST(ChannelsLast, LeavesWhatIsReadAsItIsMeant) {
  Small small;
  const Value y = small.conv(small.x, "conv");
  small.graph.keep(permute(y, {0, 2, 3, 1}), "y");
  small.graph.keep(relu(y), "relu");
  const std::vector<float> before = small.run();
  EXPECT_GT(channels_last(small.graph), 0u);
  EXPECT_EQ(small.run(), before);
  EXPECT_EQ(small.graph.find("relu").shape(), (Shape{1, 4, 3, 3}));
}

TEST(ChannelsLast, FindsNothingWithoutImages) {
  Graph graph;
  const Value x = graph.input("x", {DType::f32, {2, 3, 4}});
  const Value bias = graph.parameter("bias", {3}, Init::ones());
  graph.keep(relu(add(permute(x, {0, 2, 1}), bias)), "y");
  EXPECT_EQ(channels_last(graph), 0u);
}

TEST(ConvEpilogues, TakeResidualAndActivation) {
  for (const bool swapped : {false, true}) {
    Small small;
    const Value y = small.conv(small.conv(small.x, "first"), "second", true);
    small.graph.keep(relu(swapped ? add(small.x, y) : add(y, small.x)), "y");
    EXPECT_EQ(small.rewrite(), 1u);
    ASSERT_EQ(small.graph.nodes().size(), 2u);
    const Conv2d& op = small.op(1);
    EXPECT_TRUE(op.bias && op.residual && op.epilogue == Epilogue::relu);
    EXPECT_EQ(small.scope(1), "second");
  }
}

TEST(ConvEpilogues, TakeEveryActivationThatThereIs) {
  const std::pair<Value (*)(Value), Epilogue> all[] = {
      {relu, Epilogue::relu},
      {silu, Epilogue::silu},
      {[](Value x) { return activation(x, ActivationKind::relu6); }, Epilogue::relu6},
      {[](Value x) { return activation(x, ActivationKind::hard_swish); }, Epilogue::hard_swish}};
  for (const auto& [apply, epilogue] : all) {
    Small small;
    small.graph.keep(apply(small.conv(small.x, "conv")), "y");
    EXPECT_EQ(small.rewrite(), 1u);
    EXPECT_EQ(small.graph.nodes().size(), 1u);
    EXPECT_EQ(small.op(0).epilogue, epilogue);
  }
  Small other;
  other.graph.keep(activation(other.conv(other.x, "conv"), ActivationKind::gelu), "y");
  EXPECT_EQ(other.rewrite(), 0u);
}

// Where a block's shortcut is a convolution too.
TEST(ConvEpilogues, GiveTheSumToTheLaterOfTwo) {
  for (const bool swapped : {false, true}) {
    Small small;
    const Value a = small.conv(small.x, "a"), b = small.conv(small.x, "b");
    small.graph.keep(relu(swapped ? add(b, a) : add(a, b)), "y");
    EXPECT_EQ(small.rewrite(), 1u);
    ASSERT_EQ(small.graph.nodes().size(), 2u);
    EXPECT_FALSE(small.op(0).residual);
    EXPECT_TRUE(small.op(1).residual);
    EXPECT_EQ(small.scope(1), "b");
  }
}

TEST(ConvEpilogues, LeaveWhatIsNeededItself) {
  {  // the sum, besides its activation
    Small small;
    const Value sum = add(small.conv(small.x, "conv"), small.x);
    small.graph.keep(add(relu(sum), sum), "y");
    EXPECT_EQ(small.rewrite(), 1u);
    EXPECT_TRUE(small.op(0).residual);
    EXPECT_EQ(small.op(0).epilogue, Epilogue::none);
  }
  {  // the result, by somebody else
    Small small;
    const Value y = small.conv(small.x, "conv");
    small.graph.keep(add(relu(y), scale(y, 2.0f)), "y");
    EXPECT_EQ(small.rewrite(), 0u);
  }
  {  // the result, after the run
    Small small;
    const Value y = small.conv(small.x, "conv");
    small.graph.keep(y, "kept");
    small.graph.keep(relu(y), "y");
    EXPECT_EQ(small.rewrite(), 0u);
  }
  {  // twice in one sum
    Small small;
    const Value y = small.conv(small.x, "conv");
    small.graph.keep(add(y, y), "y");
    EXPECT_EQ(small.rewrite(), 0u);
  }
  {  // a sum with something broadcast
    Small small;
    const Value row = small.graph.parameter("row", {1, 1, 1, 3}, Init::normal(1.0f));
    small.graph.keep(add(small.conv(small.x, "conv"), row), "y");
    EXPECT_EQ(small.rewrite(), 0u);
  }
}

// An image of 64 channels beside two of 2, which convolutions leave with channels last: one large
// permute costs more than two small ones.
TEST(ChannelsLast, MovesTheFewestElements) {
  Graph graph;
  const Value large = graph.input("large", {DType::f32, {1, 64, 8, 8}});
  const Value image = graph.input("image", {DType::f32, {1, 3, 8, 8}});
  const auto convolved = [&](const char* name) {
    return conv2d(image, graph.parameter(name, {2, 3, 1, 1}, Init::ones()), {}, {});
  };
  const Value joined = concat(std::vector{relu(large), convolved("first"), convolved("second")}, 1);
  graph.keep(joined, "joined");
  EXPECT_GT(channels_last(graph), 0u);
  for (const Node& node : graph.nodes()) {
    if (!std::holds_alternative<Permute>(node.op->variant())) continue;
    EXPECT_LE(graph.info(node.outputs[0]).type.numel(), 3 * 64) << "the image for the convolutions";
  }
}

}  // namespace
}  // namespace ridge
