#pragma once

// The closed set of operators: the only list of them there is.

#include <variant>

#include "ridge/ops/activation.h"
#include "ridge/ops/attention.h"
#include "ridge/ops/batch_norm.h"
#include "ridge/ops/binary.h"
#include "ridge/ops/collective.h"
#include "ridge/ops/conv.h"
#include "ridge/ops/cross_entropy.h"
#include "ridge/ops/dropout.h"
#include "ridge/ops/embedding.h"
#include "ridge/ops/fill.h"
#include "ridge/ops/heads.h"
#include "ridge/ops/int8.h"
#include "ridge/ops/join.h"
#include "ridge/ops/layer_norm.h"
#include "ridge/ops/layout.h"
#include "ridge/ops/linear.h"
#include "ridge/ops/linear_swiglu.h"
#include "ridge/ops/loss_scale.h"
#include "ridge/ops/matmul.h"
#include "ridge/ops/optimizer.h"
#include "ridge/ops/pairwise_sum.h"
#include "ridge/ops/pointwise.h"
#include "ridge/ops/pool.h"
#include "ridge/ops/quantize.h"
#include "ridge/ops/reduce.h"
#include "ridge/ops/reduce_all.h"
#include "ridge/ops/relu.h"
#include "ridge/ops/residual_bottleneck.h"
#include "ridge/ops/resize.h"
#include "ridge/ops/rms_norm.h"
#include "ridge/ops/rope.h"
#include "ridge/ops/scaled_matmul.h"
#include "ridge/ops/silu.h"
#include "ridge/ops/softmax.h"
#include "ridge/ops/squeeze_excitation.h"
#include "ridge/ops/swiglu.h"
#include "ridge/ops/unary.h"
#include "ridge/ops/window_attention.h"

namespace ridge {

using OpVariant = std::variant<  //
    Accumulate, Activation, ActivationGrad, AdamW, AdamWAll, AdaptiveAvgPool2d,
    AdaptiveAvgPool2dGrad, Add, AddRmsNorm, AddRmsNormGrad, AllGather, AllReduce, Arithmetic,
    Attention, AttentionGrad, AvgPool2d, AvgPool2dGrad, BatchNorm, BatchNormGrad, BatchNormTrain,
    Cast, CausalMask, Concat, Conv2d, Conv2dInputGrad, Conv2dWeightGrad, CrossEntropy,
    CrossEntropyGrad, Dropout, Embedding, EmbeddingGrad, Fill, GlobalNorm, IndexAdd, Int8Conv2d,
    Int8Quantize, Int8Weights, LayerNorm, LayerNormGrad, Linear, LinearSwiGlu, LinearSwiGluGrad,
    MaskedSoftmax, MaskedSoftmaxGrad, MatMul, MaxPool2d, MaxPool2dGrad, MergeHeads, Mul,
    PairwiseSum, Permute, Pointwise, Quantize, QuantizeSwiGlu, ReduceAll, ReduceScatter, Relu,
    ReluGrad, Reshape, ResidualBottleneck, Resize, ResizeGrad, RmsNorm, RmsNormGrad, Roll, Rope,
    Scale, ScaledMatMul, Sgd, SgdAll, Silu, SiluGrad, Slice, Softmax, SoftmaxGrad, SplitHeads,
    SqueezeExcitation, SumTo, SwiGlu, SwiGluGrad, UpdateLossScale, Window, WindowAttention,
    WindowAttentionGrad>;

// A named struct, so that the graph can speak of "an operator" without knowing which there are. It
// is copied, moved and destroyed in op.cpp alone: each is a switch over all operators, which every
// file that holds an Op would compile again.
struct Op : OpVariant {
  using OpVariant::OpVariant;
  Op(const Op&);
  Op(Op&&) noexcept;
  Op& operator=(const Op&);
  Op& operator=(Op&&) noexcept;
  ~Op();
  const OpVariant& variant() const { return *this; }
};

}  // namespace ridge
