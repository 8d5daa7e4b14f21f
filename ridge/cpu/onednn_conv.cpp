#include "ridge/cpu/onednn_conv.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/cpu/activation.h"
#include "ridge/cpu/onednn_engine.h"
#include "ridge/cpu/scratch.h"

namespace ridge {
namespace {

using dnnl::memory;
using Kind = ConvShape::Kind;
using Arguments = std::unordered_map<int, memory>;

std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

memory::desc image_desc(const ImageShape& s, ImageLayout layout, DType dtype) {
  return {{s.n, s.c, s.h, s.w},
          onednn_type(dtype),
          layout == ImageLayout::nchw ? memory::format_tag::nchw : memory::format_tag::nhwc};
}

memory::dims weight_dims(const ConvShape& s) {
  const std::int64_t groups = s.geometry.groups;
  if (groups == 1) return {s.weight.n, s.weight.c, s.weight.h, s.weight.w};
  return {groups, s.weight.n / groups, s.weight.c, s.weight.h, s.weight.w};
}

// The weights as the operator has them.
memory::desc plain_weights(const ConvShape& s) {
  using tag = memory::format_tag;
  const bool nchw = s.weight_layout == ImageLayout::nchw;
  const tag order =
      s.geometry.groups == 1 ? (nchw ? tag::oihw : tag::ohwi) : (nchw ? tag::goihw : tag::gohwi);
  return {weight_dims(s), onednn_type(s.dtype), order};
}

// Copies weights from one order to another, in slices of kernels that threads share.
class Reorder {
 public:
  Reorder(const memory::desc& from, const memory::desc& to) {
    constexpr std::int64_t most_slices = 16;
    const memory::dims dims = from.dims();
    const std::int64_t step = ((dims[0] + most_slices - 1) / most_slices + 63) / 64 * 64;
    try {
      for (std::int64_t begin = 0; begin < dims[0]; begin += step) {
        memory::dims part = dims, offsets(dims.size(), 0);
        part[0] = std::min(step, dims[0] - begin);
        offsets[0] = begin;
        add(from.submemory_desc(part, offsets), to.submemory_desc(part, offsets));
      }
    } catch (const dnnl::error&) {  // an order that pads its last kernels cannot be cut
      slices_.clear();
      add(from, to);
    }
  }

  void run(ThreadPool& pool, const void* from, void* to) const {
    pool.run(static_cast<std::int64_t>(slices_.size()),
             [&](std::int64_t i) { run_slice(slices_[static_cast<std::size_t>(i)], from, to); });
  }
  // On the calling thread.
  void run_all(const void* from, void* to) const {
    for (const Slice& slice : slices_) run_slice(slice, from, to);
  }

 private:
  struct Slice {
    memory::desc from, to, scratch;
    dnnl::reorder copy;
  };

  static void run_slice(const Slice& slice, const void* from, void* to) {
    const SingleThreaded single;
    dnnl::stream stream(cpu_engine());
    slice.copy.execute(stream,
                       {{DNNL_ARG_FROM, onednn_memory(slice.from, from)},
                        {DNNL_ARG_TO, onednn_memory(slice.to, to)},
                        {DNNL_ARG_SCRATCHPAD,
                         onednn_memory(slice.scratch, scratch_memory(slice.scratch.get_size()))}});
    stream.wait();
  }

  void add(const memory::desc& from, const memory::desc& to) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::reorder::primitive_desc desc(cpu_engine(), from, cpu_engine(), to, attributes);
    slices_.push_back({from, to, desc.scratchpad_desc(), dnnl::reorder(desc)});
  }

  std::vector<Slice> slices_;
};

// A part of the work that one library call does: some images, and rows of y.
struct Part {
  std::int64_t image = 0, images = 1;
  std::int64_t row = 0, rows = 1;
};

// What the part sees of x: rows [begin, begin + count), with so many rows of padding around.
struct Seen {
  std::int64_t begin = 0, count = 0, above = 0, below = 0;
  bool operator<(const Seen& o) const {
    return std::tie(count, above, below) < std::tie(o.count, o.above, o.below);
  }
};

Seen seen_by(const ConvShape& s, const Part& part) {
  const ConvGeometry& g = s.geometry;
  const std::int64_t first = part.row * g.stride[0] - g.padding[0];
  const std::int64_t end =
      first + (part.rows - 1) * g.stride[0] + g.dilation[0] * (s.weight.h - 1) + 1;
  if (part.rows == s.y.h) return {0, s.x.h, g.padding[0], std::max<std::int64_t>(0, end - s.x.h)};
  const std::int64_t begin = std::max<std::int64_t>(first, 0);
  return {begin, std::min(end, s.x.h) - begin, begin - first,
          std::max<std::int64_t>(0, end - s.x.h)};
}

// Images are shared out in up to 16 parts; of few images, rows are, where x holds whole rows and
// each part sees some of them.
std::vector<Part> parts_of(const ConvShape& s) {
  constexpr std::int64_t few = 8, many = 16;
  std::int64_t images = std::max<std::int64_t>(1, s.x.n / many), rows = s.y.h;
  const bool can_cut = s.kind == Kind::forward && s.geometry.layout == ImageLayout::nhwc &&
                       s.geometry.padding[0] < s.geometry.dilation[0] * (s.weight.h - 1) + 1;
  if (s.kind == Kind::weight_grad) images = (s.x.n + few - 1) / few;
  if (s.x.n < few && can_cut) rows = (s.y.h + few / s.x.n - 1) / (few / s.x.n);
  std::vector<Part> parts;
  for (std::int64_t n = 0; n < s.x.n; n += images)
    for (std::int64_t i = 0; i < s.y.h; i += rows)
      parts.push_back({n, std::min(images, s.x.n - n), i, std::min(rows, s.y.h - i)});
  return parts;
}

// A library call for parts of one shape. Thread-safe, since each thread brings its own scratch
// memory.
class Primitive {
 public:
  // `weights` is any order, or the one that other primitives were made for.
  Primitive(const ConvShape& s, std::int64_t images, const Part& part, const Seen& seen,
            const memory::desc& weights);

  const memory::desc& weights() const { return weights_; }

  void run(const void* x, const void* weights, const void* y, const void* bias,
           const void* residual) const {
    const SingleThreaded single;
    const bool forward = kind_ == Kind::forward;
    Arguments arguments{
        {kind_ == Kind::input_grad ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, onednn_memory(x_, x)},
        {kind_ == Kind::weight_grad ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS,
         onednn_memory(weights_, weights)},
        {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, onednn_memory(y_, y)},
        {DNNL_ARG_SCRATCHPAD, onednn_memory(scratch_, scratch_memory(scratch_.get_size()))}};
    if (bias) arguments.emplace(DNNL_ARG_BIAS, onednn_memory(bias_, bias));
    if (residual)
      arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
                        onednn_memory(y_, residual));
    try {
      dnnl::stream stream(cpu_engine());
      call_.execute(stream, arguments);
      stream.wait();
    } catch (const dnnl::error& error) {
      throw DeviceError("a oneDNN convolution failed: {}", error.what());
    }
  }

 private:
  Kind kind_;
  memory::desc x_, weights_, y_, bias_, scratch_;
  dnnl::primitive call_;
};

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
    case ConvEpilogue::none:
      break;
    case ConvEpilogue::relu:
      append(dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
      break;
    case ConvEpilogue::relu6:
      append(dnnl::algorithm::eltwise_clip, 0.0f, 6.0f);
      break;
    case ConvEpilogue::silu:
      append(dnnl::algorithm::eltwise_swish, 1.0f, 0.0f);
      break;
    case ConvEpilogue::hard_swish:
      append(dnnl::algorithm::eltwise_hardswish, 1.0f / 6, 0.5f);
      break;
  }
  attributes.set_post_ops(ops);
  return attributes;
}

Primitive::Primitive(const ConvShape& s, std::int64_t images, const Part& part, const Seen& seen,
                     const memory::desc& weights)
    : kind_(s.kind) {
  const ConvGeometry& g = s.geometry;
  x_ = image_desc({images, s.x.c, seen.count, s.x.w}, g.layout, s.dtype);
  y_ = image_desc({images, s.y.c, part.rows, s.y.w}, g.layout, s.f32_result ? DType::f32 : s.dtype);
  if (s.bias) bias_ = memory::desc({s.y.c}, onednn_type(s.dtype), memory::format_tag::x);
  const std::int64_t right =
      (s.y.w - 1) * g.stride[1] - g.padding[1] + g.dilation[1] * (s.weight.w - 1) + 1 - s.x.w;
  const memory::dims strides{g.stride[0], g.stride[1]};
  const memory::dims dilations{g.dilation[0] - 1, g.dilation[1] - 1};
  const memory::dims before{seen.above, g.padding[1]};
  const memory::dims after{seen.below, std::max<std::int64_t>(0, right)};
  const dnnl::primitive_attr attributes = attributes_of(s, y_);
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
    const auto desc = forward(weights);
    weights_ = desc.weights_desc();
    scratch_ = desc.scratchpad_desc();
    call_ = dnnl::convolution_forward(desc);
    return;
  }
  // The gradients ask for a forward convolution as a hint.
  const auto hint = forward({weight_dims(s), onednn_type(s.dtype), memory::format_tag::any});
  const auto backward = [&]<class Backward>() {
#if DNNL_VERSION_MAJOR >= 3
    const typename Backward::primitive_desc desc(cpu_engine(), direct, x_, weights, y_, strides,
                                                 dilations, before, after, hint, attributes);
#else
    const typename Backward::primitive_desc desc(
        {direct, x_, weights, y_, strides, dilations, before, after}, attributes, cpu_engine(),
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

float applied(ConvEpilogue epilogue, float x) {
  switch (epilogue) {
    case ConvEpilogue::relu:
      return x < 0.0f ? 0.0f : x;
    case ConvEpilogue::relu6:
      return relu6(x);
    case ConvEpilogue::silu:
      return silu(x);
    case ConvEpilogue::hard_swish:
      return hard_swish(x);
    default:
      return x;
  }
}

// Of few images of few pixels: parts of rows would read all weights for too few of them each. So
// each task takes some channels of the result, orders their weights, and convolves all images with
// them, into memory of its own; from there it finishes the results and puts them where they belong.
class ChannelsConv final : public Conv {
 public:
  static bool suits(const ConvShape& s) {
    return s.kind == Kind::forward && s.geometry.layout == ImageLayout::nhwc &&
           s.geometry.groups == 1 && s.x.n < 8 && s.y.pixels() <= 64 && s.y.c >= 2 * least;
  }

  explicit ChannelsConv(const ConvShape& shape) : shape_(shape) {
    step_ = std::max(least, (shape.y.c / 16 + least - 1) / least * least);
    slices_.emplace_back(shape, step_);
    if (shape.y.c % step_ != 0) slices_.emplace_back(shape, shape.y.c % step_);
    tasks_ = (shape.y.c + step_ - 1) / step_;
  }

  std::size_t workspace() const override {
    return static_cast<std::size_t>(tasks_) * slices_[0].bytes();
  }

  void run(ThreadPool& pool, const ConvOperands& o, void* workspace) const override {
    pool.run(tasks_, [&](std::int64_t task) {
      const std::int64_t first = task * step_, count = std::min(step_, shape_.y.c - first);
      const Slice& slice = slices_[count == step_ ? 0 : 1];
      auto* memory =
          static_cast<char*>(workspace) + static_cast<std::size_t>(task) * slices_[0].bytes();
      const auto size = static_cast<std::int64_t>(size_of(shape_.dtype));
      const std::int64_t kernel = shape_.weight.c * shape_.weight.pixels();
      const auto* weights = static_cast<const char*>(o.weight) + first * kernel * size;
      const auto* bias = static_cast<const char*>(o.bias);
      const float* sums = slice.run(o.x, weights, bias ? bias + first * size : nullptr, memory);
      dispatch_floating(shape_.dtype, [&]<class T>() { finish<T>(o, sums, first, count); });
    });
  }

 private:
  static constexpr std::int64_t least = 64;  // channels of a task

  // The convolution of some channels.
  class Slice {
   public:
    Slice(const ConvShape& all, std::int64_t channels) {
      ConvShape s = all;
      s.y.c = s.weight.n = channels;
      s.residual = false;
      s.epilogue = ConvEpilogue::none;
      s.f32_result = true;
      const SingleThreaded single;
      try {
        const Part part{0, s.x.n, 0, s.y.h};
        const memory::desc any(weight_dims(s), onednn_type(s.dtype), memory::format_tag::any);
        conv_.emplace(s, s.x.n, part, seen_by(s, part), any);
        reorder_.emplace(plain_weights(s), conv_->weights());
      } catch (const dnnl::error& error) {
        throw DeviceError("oneDNN has no convolution of {} on this CPU: {}", name_of(s.dtype),
                          error.what());
      }
      weights_ = padded(conv_->weights().get_size());
      results_ = padded(static_cast<std::size_t>(s.y.n * s.y.c * s.y.pixels()) * sizeof(float));
    }

    std::size_t bytes() const { return weights_ + results_; }

    // The results, in `memory`.
    const float* run(const void* x, const void* weights, const void* bias, char* memory) const {
      reorder_->run_all(weights, memory);
      conv_->run(x, memory, memory + weights_, bias, nullptr);
      return reinterpret_cast<const float*>(memory + weights_);
    }

   private:
    std::optional<Primitive> conv_;
    std::optional<Reorder> reorder_;
    std::size_t weights_ = 0, results_ = 0;
  };

  template <class T>
  void finish(const ConvOperands& o, const float* sums, std::int64_t first,
              std::int64_t count) const {
    const ConvShape& s = shape_;
    const auto* residual = static_cast<const T*>(o.residual);
    auto* y = static_cast<T*>(o.y);
    for (std::int64_t pixel = 0; pixel < s.y.n * s.y.pixels(); ++pixel) {
      const float* from = sums + pixel * count;
      const std::int64_t at = pixel * s.y.c + first;
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c)
        store(&y[at + c],
              applied(s.epilogue, from[c] + (residual ? load(&residual[at + c]) : 0.0f)));
    }
  }

  ConvShape shape_;
  std::int64_t step_ = 0, tasks_ = 0;
  std::vector<Slice> slices_;  // of step_ channels, and of those that are left
};

class OnednnConv final : public Conv {
 public:
  explicit OnednnConv(const ConvShape& shape);

  std::size_t workspace() const override {
    const std::size_t copies = shape_.kind == Kind::weight_grad ? parts_.size() : 1;
    return copies * padded(weights_.get_size());
  }
  void run(ThreadPool& pool, const ConvOperands& o, void* workspace) const override;

 private:
  struct Call {
    Part part;
    Seen seen;
    std::size_t primitive = 0;
  };

  void run_part(const Call& call, const ConvOperands& o, const void* weights) const;
  void add_partials(ThreadPool& pool, float* partials) const;

  ConvShape shape_;
  std::vector<Call> parts_;
  std::vector<Primitive> primitives_;
  memory::desc weights_;          // as the library wants them
  std::vector<Reorder> reorder_;  // one, or none if that is how they are
};

OnednnConv::OnednnConv(const ConvShape& shape) : shape_(shape) {
  const SingleThreaded single;
  // Partial sums of a gradient are f32.
  const bool sums = shape.kind == Kind::weight_grad;
  const memory::desc plain = plain_weights(shape);
  weights_ = {weight_dims(shape), onednn_type(sums ? DType::f32 : shape.dtype),
              memory::format_tag::any};
  try {
    std::map<std::tuple<std::int64_t, std::int64_t, Seen>, std::size_t> known;
    for (const Part& part : parts_of(shape)) {
      const Seen seen = seen_by(shape, part);
      const auto [it, is_new] =
          known.try_emplace({part.images, part.rows, seen}, primitives_.size());
      if (is_new) {
        primitives_.emplace_back(shape, part.images, part, seen, weights_);
        weights_ = primitives_.back().weights();
      }
      parts_.push_back({part, seen, it->second});
    }
    if (sums)
      reorder_.emplace_back(weights_, plain);
    else if (weights_ != plain)
      reorder_.emplace_back(plain, weights_);
  } catch (const dnnl::error& error) {
    throw DeviceError("oneDNN has no convolution of {} in {} on this CPU: {}", name_of(shape.dtype),
                      name_of(shape.geometry.layout), error.what());
  }
}

void OnednnConv::run_part(const Call& call, const ConvOperands& o, const void* weights) const {
  const ConvShape& s = shape_;
  const auto size = static_cast<std::int64_t>(size_of(s.dtype));
  const ImageStrides xs(s.x, s.geometry.layout), ys(s.y, s.geometry.layout);
  const std::int64_t y = size * ys.at(call.part.image, 0, call.part.row, 0);
  const char* residual = static_cast<const char*>(o.residual);
  primitives_[call.primitive].run(
      static_cast<char*>(o.x) + size * xs.at(call.part.image, 0, call.seen.begin, 0), weights,
      static_cast<char*>(o.y) + y, o.bias, residual ? residual + y : nullptr);
}

// Adds the parts' gradients to the first, in order.
void OnednnConv::add_partials(ThreadPool& pool, float* partials) const {
  const std::size_t step = padded(weights_.get_size()) / sizeof(float);
  const auto n = static_cast<std::int64_t>(weights_.get_size() / sizeof(float));
  parallel_for(pool, n, 8192, [=, parts = parts_.size()](std::int64_t begin, std::int64_t end) {
    for (std::size_t p = 1; p < parts; ++p) {
      const float* part = partials + p * step;
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) partials[i] += part[i];
    }
  });
}

void OnednnConv::run(ThreadPool& pool, const ConvOperands& o, void* workspace) const {
  const auto parts = static_cast<std::int64_t>(parts_.size());
  if (shape_.kind == Kind::weight_grad) {
    const std::size_t step = padded(weights_.get_size());
    pool.run(parts, [&](std::int64_t p) {
      const auto i = static_cast<std::size_t>(p);
      run_part(parts_[i], o, static_cast<char*>(workspace) + i * step);
    });
    add_partials(pool, static_cast<float*>(workspace));
    reorder_[0].run(pool, workspace, o.weight);
    return;
  }
  if (!reorder_.empty()) reorder_[0].run(pool, o.weight, workspace);
  const void* weights = reorder_.empty() ? o.weight : workspace;
  pool.run(parts,
           [&](std::int64_t p) { run_part(parts_[static_cast<std::size_t>(p)], o, weights); });
}

}  // namespace

ConvPtr make_onednn_conv(const ConvShape& shape) {
  if (ChannelsConv::suits(shape)) return std::make_unique<ChannelsConv>(shape);
  return std::make_unique<OnednnConv>(shape);
}

bool onednn_convolves_bf16() {
  static const bool supported = [] {
    ConvShape probe{.geometry = {.padding = {1, 1}, .layout = ImageLayout::nhwc},
                    .x = {1, 16, 4, 4},
                    .y = {1, 16, 4, 4},
                    .weight = {16, 16, 3, 3},
                    .weight_layout = ImageLayout::nhwc,
                    .dtype = DType::bf16};
    try {
      for (const Kind kind : {Kind::forward, Kind::input_grad, Kind::weight_grad}) {
        probe.kind = kind;
        make_onednn_conv(probe);
      }
      return true;
    } catch (const DeviceError&) {
      return false;
    }
  }();
  return supported;
}

}  // namespace ridge
