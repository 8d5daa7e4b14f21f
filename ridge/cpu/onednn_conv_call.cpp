#include "ridge/cpu/onednn_conv_call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/cpu/scratch.h"

namespace ridge {
namespace {

using dnnl::memory;
using Kind = ConvShape::Kind;

memory::desc image_desc(const ImageShape& s, ImageLayout layout, DType dtype) {
  return {{s.n, s.c, s.h, s.w},
          onednn_type(dtype),
          layout == ImageLayout::nchw ? memory::format_tag::nchw : memory::format_tag::nhwc};
}

memory::dims weight_dims(const ConvShape& s, std::int64_t kernels) {
  const std::int64_t groups = s.geometry.groups;
  if (groups == 1) return {kernels, s.weight.c, s.weight.h, s.weight.w};
  return {groups, kernels / groups, s.weight.c, s.weight.h, s.weight.w};
}

memory::desc any_weights(const ConvShape& s, std::int64_t kernels) {
  // Partial sums of a gradient are f32.
  const DType dtype = s.kind == Kind::weight_grad ? DType::f32 : s.dtype;
  return {weight_dims(s, kernels), onednn_type(dtype), memory::format_tag::any};
}

dnnl::primitive_attr attributes_of(const ConvShape& s, const memory::desc& y) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  if (s.residual) ops.append_binary(dnnl::algorithm::binary_add, y);
  auto append = [&](dnnl::algorithm algorithm, float alpha, float beta) {
#if DNNL_VERSION_MAJOR >= 3
    ops.append_eltwise(algorithm, alpha, beta);
#else
    ops.append_eltwise(1.0f, algorithm, alpha, beta);
#endif
  };
  switch (s.epilogue) {
    case Epilogue::none:
      break;
    case Epilogue::relu:
      append(dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
      break;
    case Epilogue::relu6:
      append(dnnl::algorithm::eltwise_clip, 0.0f, 6.0f);
      break;
    case Epilogue::silu:
      append(dnnl::algorithm::eltwise_swish, 1.0f, 0.0f);
      break;
    case Epilogue::hard_swish:
      append(dnnl::algorithm::eltwise_hardswish, 1.0f / 6, 0.5f);
      break;
    case Epilogue::gelu:
      append(dnnl::algorithm::eltwise_gelu_erf, 0.0f, 0.0f);
      break;
  }
  attributes.set_post_ops(ops);
  return attributes;
}

DType dtype_of_results(const ConvShape& s) {
  if (s.dtype == DType::s8) return DType::i32;
  return s.f32_result ? DType::f32 : s.dtype;
}

// What the call of a part computes, as a convolution of its own.
ConvShape shape_of_part(ConvShape s, const ConvPart& part) {
  if (part.channels == s.y.c) return s;
  s.y.c = s.weight.n = part.channels;
  s.residual = false;
  s.epilogue = Epilogue::none;
  s.f32_result = true;
  return s;
}

}  // namespace

SeenRows rows_seen(const ConvShape& s, const ConvPart& part) {
  const ConvGeometry& g = s.geometry;
  const std::int64_t first = part.row * g.stride[0] - g.padding[0];
  const std::int64_t end =
      first + (part.rows - 1) * g.stride[0] + g.dilation[0] * (s.weight.h - 1) + 1;
  const std::int64_t below = std::max<std::int64_t>(0, end - s.x.h);
  if (part.rows == s.y.h) return {0, s.x.h, g.padding[0], below};
  const std::int64_t begin = std::max<std::int64_t>(first, 0);
  return {begin, std::min(end, s.x.h) - begin, begin - first, below};
}

memory::desc plain_weights(const ConvShape& s, std::int64_t kernels) {
  using tag = memory::format_tag;
  const bool nchw = s.weight_layout == ImageLayout::nchw;
  const tag order =
      s.geometry.groups == 1 ? (nchw ? tag::oihw : tag::ohwi) : (nchw ? tag::goihw : tag::gohwi);
  return {weight_dims(s, kernels), onednn_type(s.dtype), order};
}

ConvPrimitive::ConvPrimitive(const ConvShape& shape, const ConvPart& part,
                             const memory::desc* weights)
    : kind_(shape.kind) {
  const SingleThreaded single;
  const ConvShape s = shape_of_part(shape, part);
  const SeenRows seen = rows_seen(s, part);
  const ConvGeometry& g = s.geometry;
  x_ = image_desc({part.images, s.x.c, seen.count, s.x.w}, g.layout, s.dtype);
  y_ = image_desc({part.images, s.y.c, part.rows, s.y.w}, g.layout, dtype_of_results(s));
  if (s.bias) bias_ = memory::desc({s.y.c}, onednn_type(s.dtype), memory::format_tag::x);
  residual_ = s.residual;
  const std::int64_t right =
      (s.y.w - 1) * g.stride[1] - g.padding[1] + g.dilation[1] * (s.weight.w - 1) + 1 - s.x.w;
  const memory::dims strides{g.stride[0], g.stride[1]};
  const memory::dims dilations{g.dilation[0] - 1, g.dilation[1] - 1};
  const memory::dims before{seen.above, g.padding[1]};
  const memory::dims after{seen.below, std::max<std::int64_t>(0, right)};
  const dnnl::primitive_attr attributes = attributes_of(s, y_);
  const memory::desc any = any_weights(s, s.weight.n), &wanted = weights ? *weights : any;
  constexpr auto inference = dnnl::prop_kind::forward_inference;
  constexpr auto direct = dnnl::algorithm::convolution_direct;
  const auto forward = [&](const memory::desc& w) {
    using Forward = dnnl::convolution_forward;
#if DNNL_VERSION_MAJOR >= 3
    return Forward::primitive_desc(cpu_engine(), inference, direct, x_, w, bias_, y_, strides,
                                   dilations, before, after, attributes);
#else
    return Forward::primitive_desc(
        {inference, direct, x_, w, bias_, y_, strides, dilations, before, after}, attributes,
        cpu_engine());
#endif
  };
  if (s.kind == Kind::forward) {
    // Where kernels reach beyond edges, version 2.6 forgets what it adds to signed operands, unless
    // it multiplies in AMX's tiles, which take them as they are. Another implementation is right,
    // and all parts of a convolution use the same one, because they share its packed weights.
    const bool pads = g.padding[0] > 0 || g.padding[1] > 0 || right > 0 || seen.below > 0;
    auto desc = forward(wanted);
    const auto how = [](const auto& chosen) { return std::string(chosen.impl_info_str()); };
    const auto is_wrong = [&] {
      return s.dtype == DType::s8 && pads && how(desc).starts_with("brgconv:") &&
             how(desc).find("amx") == std::string::npos;
    };
    while (is_wrong())
      if (!desc.next_impl())
        throw DeviceError("oneDNN's only convolution of s8 for this shape is known to be wrong");
    weights_ = desc.weights_desc();
    scratch_ = desc.scratchpad_desc();
    is_reference_ = how(desc).starts_with("ref");
    call_ = dnnl::convolution_forward(desc);
    return;
  }
  // The gradients ask for a forward convolution as a hint.
  const auto hint =
      forward({weight_dims(s, s.weight.n), onednn_type(s.dtype), memory::format_tag::any});
  const auto backward = [&]<class Backward>() {
#if DNNL_VERSION_MAJOR >= 3
    const typename Backward::primitive_desc desc(cpu_engine(), direct, x_, wanted, y_, strides,
                                                 dilations, before, after, hint, attributes);
#else
    const typename Backward::primitive_desc desc(
        {direct, x_, wanted, y_, strides, dilations, before, after}, attributes, cpu_engine(),
        hint);
#endif
    scratch_ = desc.scratchpad_desc();
    call_ = Backward(desc);
    return desc;
  };
  if (s.kind == Kind::input_grad)
    weights_ = backward.template operator()<dnnl::convolution_backward_data>().weights_desc();
  else
    weights_ =
        backward.template operator()<dnnl::convolution_backward_weights>().diff_weights_desc();
}

ConvCall::ConvCall(const ConvPrimitive& p) : call_(p.call_) {
  const bool forward = p.kind_ == Kind::forward;
  const auto add = [&](Place place, int argument, const memory::desc& desc) {
    memories_[place] = memory(desc, cpu_engine(), DNNL_MEMORY_NONE);
    arguments_.push_back({argument, memories_[place].get()});
  };
  add(x, p.kind_ == Kind::input_grad ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, p.x_);
  add(weights, p.kind_ == Kind::weight_grad ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, p.weights_);
  add(y, forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, p.y_);
  add(scratch_memory, DNNL_ARG_SCRATCHPAD, p.scratch_);
  if (p.bias_.get_size() > 0) add(bias, DNNL_ARG_BIAS, p.bias_);
  if (p.residual_) add(residual, DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, p.y_);
}

void ConvCall::run(const ConvOperands& o, void* scratch) const {
  // Memories of operands that there are not exist neither.
  const std::array<const void*, places> now{o.x, o.weight, o.y, scratch, o.bias, o.residual};
  try {
    thread_local dnnl::stream stream(cpu_engine());
    for (std::size_t i = 0; i < places; ++i)
      if (memories_[i].get(true) && now[i] != addresses_[i]) {
        memories_[i].set_data_handle(const_cast<void*>(now[i]));
        addresses_[i] = now[i];
      }
    const SingleThreaded single;
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(call_.get(), stream.get(), static_cast<int>(arguments_.size()),
                               arguments_.data()),
        "it could not be executed");
    stream.wait();
  } catch (const dnnl::error& error) {
    throw DeviceError("a oneDNN convolution failed: {}", error.what());
  }
}

WeightReorder::WeightReorder(const memory::desc& from, const memory::desc& to) {
  constexpr std::int64_t most_pieces = 16;
  const SingleThreaded single;
  const memory::dims dims = from.dims();
  // Behind weights of 8 bits the library keeps sums of all of them.
  const bool cuts = to.data_type() != memory::data_type::s8;
  const std::int64_t step =
      cuts ? ((dims[0] + most_pieces - 1) / most_pieces + 63) / 64 * 64 : dims[0];
  try {
    for (std::int64_t begin = 0; begin < dims[0]; begin += step) {
      memory::dims part = dims, offsets(dims.size(), 0);
      part[0] = std::min(step, dims[0] - begin);
      offsets[0] = begin;
      add(from.submemory_desc(part, offsets), to.submemory_desc(part, offsets));
    }
  } catch (const dnnl::error&) {  // an order that pads its last kernels cannot be cut
    pieces_.clear();
    add(from, to);
  }
}

void WeightReorder::add(const memory::desc& from, const memory::desc& to) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc desc(cpu_engine(), from, cpu_engine(), to, attributes);
  pieces_.push_back({from, to, desc.scratchpad_desc(), dnnl::reorder(desc)});
}

void WeightReorder::run(std::int64_t i, const void* from, void* to) const {
  const Piece& piece = pieces_[static_cast<std::size_t>(i)];
  const SingleThreaded single;
  void* const scratch = ridge::scratch_memory(piece.scratch.get_size());
  try {
    dnnl::stream stream(cpu_engine());
    piece.copy.execute(stream, {{DNNL_ARG_FROM, onednn_memory(piece.from, from)},
                                {DNNL_ARG_TO, onednn_memory(piece.to, to)},
                                {DNNL_ARG_SCRATCHPAD, onednn_memory(piece.scratch, scratch)}});
    stream.wait();
  } catch (const dnnl::error& error) {
    throw DeviceError("oneDNN could not bring weights into its order: {}", error.what());
  }
}

}  // namespace ridge
