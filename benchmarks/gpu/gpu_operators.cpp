// How fast the GPU's operators are, attention apart: microseconds a launch inside a captured graph,
// as in a training step, and how much of the bandwidth of a large copy they reach; of products, how
// many TFLOP/s, by the plan that the library expects to be the fastest.
// Operands rotate over more memory than the card's cache holds. Bytes are those of Op::cost: each
// operand read once and each result written once.
//
//   gpu_operators [only rows that contain one of these texts ...]

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/exit_status.h"
#include "ridge/analyze/operator_timing.h"
#include "ridge/base/statistics.h"
#include "ridge/gpu/device.h"

namespace ridge {
namespace {

using Case = OperatorCase;

double measure(Device& device, const Case& c) {
  return statistics_of(time_operator(device, c)).median;
}

struct Size {
  const char* name;
  std::int64_t batch, seq, hidden, intermediate, heads, kv_heads, layers;
  std::int64_t tokens() const { return batch * seq; }
};

constexpr Size sizes[] = {{"tiny", 8, 128, 256, 512, 8, 4, 4},
                          {"readme", 8, 128, 512, 2048, 8, 4, 8},
                          {"medium", 16, 512, 1024, 4096, 16, 8, 12},
                          {"large", 8, 1024, 2048, 8192, 16, 8, 16}};
constexpr std::int64_t vocab = 1000;

// By generated kernels; with RIDGE_GENERATED_KERNELS=off by the interpreter.
void add_chains(std::vector<Case>& cases, const Size& s, DType dtype) {
  using Code = Pointwise::Code;
  using Step = Pointwise::Step;
  const TensorType wide{dtype, {s.tokens(), s.intermediate}}, row{dtype, {s.intermediate}};
  const auto add = [&](std::string_view what, const std::vector<TensorType>& in,
                       const Pointwise& op) {
    cases.push_back({fmt::format("pointwise {} {} {}", what, name_of(dtype), s.name), op, in});
  };
  const Step gelu{.code = Code::activation, .a = 2, .kind = ActivationKind::gelu};
  const Step hard_swish{.code = Code::activation, .a = 10, .kind = ActivationKind::hard_swish};
  add("silu*", {wide, wide}, {{{Code::silu, 0}, {Code::mul, 2, 1}}, {{3, dtype}}});
  add("bias gelu", {wide, row}, {{{Code::add, 0, 1}, gelu}, {{3, dtype}}});
  add("5 steps", {wide, wide, wide},
      {{{Code::silu, 0},
        {Code::mul, 3, 1},
        {Code::scale, 4, 0, 0.5f},
        {Code::add, 5, 2},
        {Code::silu_grad, 6, 0}},
       {{6, dtype}, {7, dtype}}});
  add("10 steps", {wide, row, wide},
      {{{Code::add, 0, 1},
        {Code::relu, 3},
        {Code::mul, 4, 2},
        {Code::add, 5, 0},
        {Code::silu, 6},
        {Code::scale, 7, 0, 0.7f},
        {Code::add, 8, 1},
        {Code::mul, 9, 2},
        hard_swish,
        {Code::relu, 11}},
       {{12, dtype}}});
}

void add_elementwise(std::vector<Case>& cases, const Size& s, DType dtype) {
  const auto row = [&](std::string_view what) {
    return fmt::format("{} {} {}", what, name_of(dtype), s.name);
  };
  const TensorType x{dtype, {s.tokens(), s.hidden}}, wide{dtype, {s.tokens(), s.intermediate}};
  cases.push_back({row("add"), Add{}, {x, x}});
  cases.push_back({row("add a row"), Add{}, {wide, {dtype, {s.intermediate}}}});
  cases.push_back({row("add a column"), Add{}, {wide, {dtype, {s.tokens(), 1}}}});
  cases.push_back({row("mul"), Mul{}, {wide, wide}});
  cases.push_back({row("fill"), Fill{.type = wide, .value = 1.5f}, {}});
  add_chains(cases, s, dtype);
}

void add_moving(std::vector<Case>& cases, const Size& s, DType dtype) {
  const auto row = [&](std::string_view what) {
    return fmt::format("{} {} {}", what, name_of(dtype), s.name);
  };
  const std::int64_t head_dim = s.hidden / s.heads;
  const HeadLayout layout{s.heads, s.kv_heads, head_dim, 10000.0f};
  const TensorType packed{dtype, {s.batch, s.seq, layout.columns()}};
  const TensorType q{dtype, {s.batch, s.heads, s.seq, head_dim}};
  const TensorType k{dtype, {s.batch, s.kv_heads, s.seq, head_dim}};
  const TensorType scores{dtype, {s.batch, s.heads, s.seq, s.seq}};
  const TensorType wide{dtype, {s.tokens(), s.intermediate}};
  cases.push_back({row("split heads"), SplitHeads{layout}, {packed}});
  cases.push_back({row("merge heads"), MergeHeads{layout}, {q, k, k}});
  cases.push_back({row("permute heads"), Permute{{0, 2, 1, 3}}, {q}});
  cases.push_back({row("transpose"), Permute{{1, 0}}, {wide}});
  cases.push_back({row("transpose odd"), Permute{{1, 0}}, {{dtype, {s.tokens() - 1, 1001}}}});
  cases.push_back({row("causal mask"), CausalMask{}, {scores}});
  cases.push_back({row("sum rows"), SumTo{{s.intermediate}}, {wide}});
  cases.push_back({row("sum columns"), SumTo{{s.tokens(), 1}}, {wide}});
  cases.push_back({row("sum all"), SumTo{{}}, {wide}});
}

void add_embedding(std::vector<Case>& cases, const Size& s, DType dtype, std::int64_t rows) {
  const auto row = [&](std::string_view what) {
    return fmt::format("{} {} {} {}", what, rows, name_of(dtype), s.name);
  };
  const TensorType table{dtype, {rows, s.hidden}}, ids{DType::i32, {s.batch, s.seq}};
  const TensorType dy{dtype, {s.batch, s.seq, s.hidden}};
  cases.push_back({row("embedding"), Embedding{}, {table, ids}});
  cases.push_back({row("embedding grad"), EmbeddingGrad{rows}, {dy, ids}});
  cases.push_back({.label = row("embedding grad skewed"),
                   .op = EmbeddingGrad{rows},
                   .in = {dy, ids},
                   .id_skew = 3.0});
}

// Operators of whole rows as a model in `dtype` has them: the residual stream and the weights of
// norms are in f32. And attention, whose share says nothing: memory does not bound it.
void add_rows(std::vector<Case>& cases, const Size& s, DType dtype) {
  const auto row = [&](std::string_view what) {
    return fmt::format("{} {} {}", what, name_of(dtype), s.name);
  };
  const TensorType x{DType::f32, {s.tokens(), s.hidden}}, y{dtype, {s.tokens(), s.hidden}};
  const TensorType weight{DType::f32, {s.hidden}}, rstd{DType::f32, {s.tokens()}};
  AddRmsNormGrad add_norm_grad;
  if (dtype != DType::f32) add_norm_grad.round_delta = dtype;
  cases.push_back({row("norm"), RmsNorm{.out = dtype}, {x, weight}});
  cases.push_back({row("norm grad"), RmsNormGrad{}, {y, x, weight, rstd}});
  cases.push_back({row("add norm"), AddRmsNorm{.out = dtype}, {x, y, weight}});
  cases.push_back({row("add norm grad"), add_norm_grad, {x, y, x, weight, rstd}});
  const TensorType packed{dtype, {s.tokens(), 2 * s.intermediate}};
  const TensorType wide{dtype, {s.tokens(), s.intermediate}};
  cases.push_back({row("swiglu"), SwiGlu{}, {packed}});
  cases.push_back({row("swiglu grad"), SwiGluGrad{.in_place = true}, {wide, packed}});
  const TensorType logits{dtype, {s.tokens(), vocab}}, targets{DType::i32, {s.tokens()}};
  const TensorType loss{DType::f32, {}};
  cases.push_back({row("cross entropy"), CrossEntropy{}, {logits, targets}});
  cases.push_back({row("cross entropy grad"), CrossEntropyGrad{}, {loss, logits, targets, rstd}});
  const std::int64_t head_dim = s.hidden / s.heads;
  const AttentionHeads heads{s.heads,  s.kv_heads,
                             head_dim, 1.0f / std::sqrt(static_cast<float>(head_dim)),
                             true,     10000.0f};
  const TensorType qkv{dtype, {s.batch, s.seq, s.hidden + 2 * heads.kv_dim()}};
  const TensorType out{dtype, {s.batch, s.seq, s.hidden}};
  const TensorType lse{DType::f32, {s.batch, s.heads, s.seq}};
  cases.push_back({row("attention"), Attention{heads}, {qkv}});
  cases.push_back({row("attention grad"), AttentionGrad{heads}, {out, out, lse, qkv}});
}

// The parameters of a model of this size, as the passes pack them.
std::vector<Shape> parameters_of(const Size& s) {
  std::vector<Shape> shapes{{vocab, s.hidden}};
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    shapes.push_back({s.hidden});
    shapes.push_back({s.hidden + 2 * (s.hidden / s.heads * s.kv_heads), s.hidden});
    shapes.push_back({s.hidden, s.hidden});
    shapes.push_back({s.hidden});
    shapes.push_back({2 * s.intermediate, s.hidden});
    shapes.push_back({s.hidden, s.intermediate});
  }
  shapes.push_back({s.hidden});
  shapes.push_back({vocab, s.hidden});
  return shapes;
}

void add_optimizer(std::vector<Case>& cases, const Size& s) {
  const std::vector<Shape> shapes = parameters_of(s);
  std::vector<TensorType> gradients, operands{{DType::f32, {3}}, {DType::f32, {}}};
  for (const Shape& shape : shapes) {
    gradients.push_back({DType::f32, shape});
    for (int i = 0; i < 4; ++i) operands.push_back({DType::f32, shape});
  }
  cases.push_back({fmt::format("global norm {}", s.name), GlobalNorm{}, gradients});
  const AdamW each{.max_norm = 1.0};
  const TensorType first = operands[2 + 4 * 5];
  cases.push_back({fmt::format("adamw {}", s.name),
                   each,
                   {first, first, first, first, operands[0], operands[1]}});
  cases.push_back({fmt::format("adamw all {}", s.name), AdamWAll{.each = each}, operands});
  cases.push_back({fmt::format("adamw all, zero {}", s.name),
                   AdamWAll{.each = each, .zero_grad = true}, operands});
  for (const Shape& shape : shapes) operands.push_back({DType::bf16, shape});
  cases.push_back({fmt::format("adamw all, bf16 {}", s.name),
                   AdamWAll{.each = each, .copied = std::vector<bool>(shapes.size(), true)},
                   operands});
  operands.resize(operands.size() - shapes.size());
  for (std::size_t p = 2; p < operands.size(); p += 4) operands[p].dtype = DType::split_f32;
  cases.push_back(
      {fmt::format("adamw all, in halves {}", s.name), AdamWAll{.each = each}, operands});
  cases.push_back({fmt::format("accumulate {}", s.name), Accumulate{}, {first, first}});
}

// The linear layers of a block, their gradients, and in 8 bits what goes into them.
void add_products(std::vector<Case>& cases, const Size& s) {
  const std::int64_t columns = s.hidden + 2 * (s.hidden / s.heads * s.kv_heads);
  const auto quantize = [&](std::string_view what, DType to, Shape shape) {
    cases.push_back({fmt::format("quantize {} {} {}", what, name_of(to), s.name),
                     Quantize{.to = to, .transposed = true},
                     {{DType::bf16, shape}}});
  };
  for (const auto& [what, width] : {std::pair{"hidden", s.hidden},
                                    {"ffn", s.intermediate},
                                    {"qkv", columns},
                                    {"gate-up", 2 * s.intermediate}}) {
    quantize(what, DType::f8e4m3, {s.tokens(), width});
    quantize(what, DType::f8e5m2, {s.tokens(), width});
    quantize(fmt::format("{} weight", what), DType::f8e4m3, {width, s.hidden});
  }
  const TensorType packed{DType::bf16, {s.tokens(), 2 * s.intermediate}};
  const TensorType dy{DType::bf16, {s.tokens(), s.intermediate}};
  cases.push_back({fmt::format("swiglu bf16 {}", s.name), SwiGlu{}, {packed}});
  cases.push_back({fmt::format("quantize swiglu {}", s.name),
                   QuantizeSwiGlu{{.to = DType::f8e4m3, .transposed = true}},
                   {packed}});
  cases.push_back({fmt::format("swiglu grad bf16 {}", s.name), SwiGluGrad{}, {dy, packed}});
  cases.push_back({fmt::format("quantize swiglu grad {}", s.name),
                   QuantizeSwiGlu{{.to = DType::f8e5m2, .transposed = true}, true},
                   {dy, packed}});
  const TensorType scale{DType::f32, {}};
  const auto product = [&](std::string_view what, Shape a, Shape b, bool gradient, DType out) {
    const DType left = gradient ? DType::f8e5m2 : DType::f8e4m3;
    cases.push_back({fmt::format("product {} fp8 {}", what, s.name),
                     ScaledMatMul{.out = out, .fast_accumulation = !gradient},
                     {{left, a}, {DType::f8e4m3, b}, scale, scale}});
    if (gradient)
      cases.push_back({fmt::format("product {} fp8 fast {}", what, s.name),
                       ScaledMatMul{.out = out, .fast_accumulation = true},
                       {{left, a}, {DType::f8e4m3, b}, scale, scale}});
  };
  for (const auto& [what, in, out] : {std::tuple{"qkv", s.hidden, columns},
                                      {"o", s.hidden, s.hidden},
                                      {"gate-up", s.hidden, 2 * s.intermediate},
                                      {"down", s.intermediate, s.hidden}}) {
    const Shape x{s.tokens(), in}, y{s.tokens(), out}, w{out, in};
    const auto row = [&](std::string_view part) {
      return fmt::format("product {} {} bf16 {}", what, part, s.name);
    };
    product(fmt::format("{} y", what), x, w, false, DType::bf16);
    cases.push_back({row("y"), MatMul{.trans_b = true}, {{DType::bf16, x}, {DType::bf16, w}}});
    product(fmt::format("{} dx", what), y, {in, out}, true, DType::bf16);
    cases.push_back({row("dx"), MatMul{}, {{DType::bf16, y}, {DType::bf16, w}}});
    product(fmt::format("{} dw", what), {out, s.tokens()}, {in, s.tokens()}, true, DType::f32);
    cases.push_back({row("dw"),
                     MatMul{.trans_a = true, .out = DType::f32},
                     {{DType::bf16, y}, {DType::bf16, x}}});
  }
}

// Operators on 64 images, channels last: as in ResNet, MobileNet, EfficientNet, ConvNeXt, DenseNet,
// ViT and Swin.
void add_images(std::vector<Case>& cases, DType dtype) {
  constexpr ImageLayout layout = ImageLayout::nhwc;
  const auto row = [&](std::string_view what, const TensorType& type) {
    return fmt::format("{} {}", what, type.to_string());
  };
  const auto image = [&](std::int64_t pixels, std::int64_t channels) {
    return TensorType{dtype, {64, pixels, pixels, channels}};
  };
  const auto channels = [](std::int64_t n) { return TensorType{DType::f32, {n}}; };
  for (const auto& [x, n] : {std::pair{image(56, 256), 256}, std::pair{image(14, 1024), 1024}}) {
    const TensorType c = channels(n);
    cases.push_back({row("batch norm", x), BatchNorm{.layout = layout}, {x, c, c, c, c}});
    cases.push_back(
        {row("batch norm train", x), BatchNormTrain{.layout = layout}, {x, c, c, c, c}});
    cases.push_back({row("batch norm grad", x), BatchNormGrad{layout}, {x, x, c, c, c}});
    cases.push_back({row("batch norm train, residual, relu", x),
                     BatchNormTrain{.layout = layout, .residual = true, .epilogue = Epilogue::relu},
                     {x, c, c, c, c, x}});
    cases.push_back({row("batch norm grad of relu", x),
                     BatchNormGrad{.layout = layout, .epilogue = Epilogue::relu},
                     {x, x, c, c, c, c}});
    cases.push_back(
        {row("batch norm grad of a sum, residual, relu", x),
         BatchNormGrad{
             .layout = layout, .summed = true, .residual = true, .epilogue = Epilogue::relu},
         {x, x, x, c, c, c, x}});
  }
  const PoolWindows pool{{3, 3}, {2, 2}, {1, 1}, false, layout};
  const TensorType first = image(112, 64);
  cases.push_back({row("max pool", first), MaxPool2d{pool}, {first}});
  cases.push_back({row("max pool grad", first), MaxPool2dGrad{pool}, {image(56, 64), first}});
  for (const auto& [pixels, n] : {std::pair{7, 2048}, std::pair{112, 32}, std::pair{14, 672}}) {
    const TensorType x = image(pixels, n);
    cases.push_back({row("global mean", x), AdaptiveAvgPool2d{{1, 1}, layout}, {x}});
    cases.push_back(
        {row("global mean grad", x), AdaptiveAvgPool2dGrad{layout, x.shape}, {image(1, n)}});
  }
  cases.push_back({row("avg pool", image(56, 128)),
                   AvgPool2d{{{2, 2}, {2, 2}, {0, 0}, false, layout}},
                   {image(56, 128)}});
  cases.push_back(
      {row("resize to 224", image(28, 24)), Resize{{224, 224}, layout}, {image(28, 24)}});
  for (const auto& [rows, n] : {std::pair{64 * 197, 768}, std::pair{64 * 3136, 96}}) {
    const TensorType x{dtype, {rows, n}}, c = channels(n), r = channels(rows);
    cases.push_back({row("layer norm", x), LayerNorm{}, {x, c, c}});
    cases.push_back({row("layer norm grad", x), LayerNormGrad{}, {x, x, c, r, r}});
  }
  const TensorType hidden{dtype, {64 * 197, 3072}};
  for (const ActivationKind kind : {ActivationKind::gelu, ActivationKind::hard_swish}) {
    const std::string_view name = element_function(kind).name;
    cases.push_back({row(name, hidden), Activation{kind}, {hidden}});
    cases.push_back(
        {row(fmt::format("{} grad", name), hidden), ActivationGrad{kind}, {hidden, hidden}});
  }
  cases.push_back({row("concat + 32", image(28, 256)), Concat{3}, {image(28, 256), image(28, 32)}});
  cases.push_back({row("concat 12", image(28, 32)), Concat{3}, std::vector(12, image(28, 32))});
  // A layer of a dense block reads all before it; 14 of the third block's 24.
  std::vector<TensorType> joined{image(14, 256)};
  while (joined.size() < 15) joined.push_back(image(14, 32));
  const TensorType all = channels(256 + 14 * 32);
  for (int k = 0; k < 4; ++k) joined.push_back(all);
  cases.push_back({row("batch norm 15", image(14, 256)),
                   BatchNorm{.layout = layout, .parts = 15, .relu = true}, joined});
  // Images as they come, the channels of ShuffleNet's halves in turn, and what segments.
  const TensorType pictures{DType::f32, {64, 3, 224, 224}};
  cases.push_back({row("to channels last", pictures), Permute{{0, 2, 3, 1}, dtype}, {pictures}});
  const TensorType shuffled{dtype, {64, 28, 28, 2, 58}}, classes{dtype, {8, 224, 224, 21}};
  cases.push_back({row("shuffle", shuffled), Permute{{0, 1, 2, 4, 3}}, {shuffled}});
  cases.push_back({row("to channels first", classes), Permute{{0, 3, 1, 2}}, {classes}});
  for (const auto& [n, squeezed] : {std::pair{96, 4}, std::pair{672, 28}, std::pair{1152, 48}}) {
    const auto of = [&](const Shape& shape) { return TensorType{dtype, shape}; };
    cases.push_back({row("squeeze and excitation", of({squeezed, n})),
                     SqueezeExcitation{.inner = Epilogue::silu},
                     {of({64, n}), of({squeezed, n}), of({squeezed}), of({squeezed, n}), of({n})}});
  }
  cases.push_back({row("window 32", image(28, 256)), Window{3, 64, 32}, {image(28, 256)}});
  cases.push_back({row("roll", image(56, 96)), Roll{1, -3}, {image(56, 96)}});
  cases.push_back({row("dropout", hidden), Dropout{.rate = 0.1f}, {hidden, {DType::i32, {}}}});
  struct Depthwise {
    std::int64_t pixels, channels, size, stride;
  };
  for (const Depthwise& d :
       {Depthwise{112, 32, 3, 1}, Depthwise{112, 96, 3, 2}, Depthwise{14, 576, 3, 1},
        Depthwise{14, 672, 5, 1}, Depthwise{28, 240, 5, 2}, Depthwise{56, 96, 7, 1}}) {
    const ConvGeometry g{.stride = {d.stride, d.stride},
                         .padding = {d.size / 2, d.size / 2},
                         .groups = d.channels,
                         .layout = layout};
    const TensorType x = image(d.pixels, d.channels), y = image(d.pixels / d.stride, d.channels);
    const TensorType weight{dtype, {d.channels, d.size, d.size, 1}};
    const std::string what = fmt::format("depthwise {} / {}", d.size, d.stride);
    cases.push_back({row(what + " + silu", x),
                     Conv2d{g, true, false, Epilogue::silu},
                     {x, weight, {dtype, {d.channels}}}});
    cases.push_back({row(what, x), Conv2d{g}, {x, weight}});
    cases.push_back({row(what + " dx", x), Conv2dInputGrad{g, x.shape}, {y, weight}});
    cases.push_back({row(what + " dw", x), Conv2dWeightGrad{g, weight.shape}, {y, x}});
  }
}

// Convolutions of ResNet-50, of 32 images, channels last.
void add_convolutions(std::vector<Case>& cases, DType dtype) {
  struct Layer {
    std::int64_t in, pixels, out, size, stride;
  };
  for (const Layer& l :
       {Layer{3, 224, 64, 7, 2}, Layer{64, 56, 64, 1, 1}, Layer{64, 56, 64, 3, 1},
        Layer{64, 56, 256, 1, 1}, Layer{256, 56, 64, 1, 1}, Layer{128, 56, 128, 3, 2},
        Layer{256, 56, 512, 1, 2}, Layer{128, 28, 512, 1, 1}, Layer{256, 14, 256, 3, 1},
        Layer{1024, 14, 256, 1, 1}, Layer{512, 7, 512, 3, 1}, Layer{512, 7, 2048, 1, 1}}) {
    const ConvGeometry g{.stride = {l.stride, l.stride},
                         .padding = {l.size / 2, l.size / 2},
                         .layout = ImageLayout::nhwc};
    const TensorType x{dtype, {32, l.pixels, l.pixels, l.in}};
    const TensorType weight{dtype, {l.out, l.size, l.size, l.in}}, bias{dtype, {l.out}};
    const TensorType y = Conv2d{g}.infer(std::vector{x, weight})[0];
    const std::string what = fmt::format("conv {} {}@{} -> {} {}x{}/{}", name_of(dtype), l.in,
                                         l.pixels, l.out, l.size, l.size, l.stride);
    cases.push_back({what, Conv2d{g}, {x, weight}});
    cases.push_back({what + " relu", Conv2d{g, true, true, Epilogue::relu}, {x, weight, bias, y}});
    cases.push_back({what + " dx", Conv2dInputGrad{g, x.shape}, {y, weight}});
    cases.push_back({what + " dw", Conv2dWeightGrad{g, weight.shape}, {y, x}});
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    add_images(all, dtype);
    add_convolutions(all, dtype);
  }
  for (const Size& s : sizes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      add_elementwise(all, s, dtype);
      add_moving(all, s, dtype);
      add_rows(all, s, dtype);
      add_embedding(all, s, dtype, vocab);
      if (s.tokens() > 4096) add_embedding(all, s, dtype, 32000);
    }
    add_optimizer(all, s);
    add_products(all, s);
  }
  return all;
}

void run(std::span<const char* const> texts) {
  const std::unique_ptr<Device> device = open_gpu();
  const TensorType big{DType::f32, {1 << 27}};
  const double copied = 2.0 * static_cast<double>(big.bytes());
  const double rate = copied / measure(*device, {"copy", Cast{DType::f32}, {big}});
  fmt::print("{}: copies {:.2f} TB/s\n{:36} {:>9} {:>9} {:>6} {:>6}\n", device->hardware(),
             rate * 1e-12, "", "us", "GB/s", "share", "TFLOP/s");
  for (const Case& c : cases()) {
    const auto contained = [&](const char* text) {
      return c.label.find(text) != std::string::npos;
    };
    if (!texts.empty() && std::ranges::none_of(texts, contained)) continue;
    const double seconds = measure(*device, c);
    const Cost work = cost_of(c);
    const double bytes = static_cast<double>(work.bytes());
    fmt::print("{:36} {:9.2f} {:9.0f} {:5.0f}%", c.label, seconds * 1e6, bytes / seconds * 1e-9,
               100 * bytes / seconds / rate);
    const auto products = 2 * static_cast<double>(work.macs);
    if (products > 0) fmt::print(" {:6.1f} TFLOP/s", products / seconds * 1e-12);
    fmt::print("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  return ridge::exit_status_of([&] { ridge::run({argv + 1, argv + argc}); });
}
