#include "ridge/cpu/onednn_conv.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "ridge/base/ceil_div.h"
#include "ridge/base/error.h"
#include "ridge/cpu/add_parts.h"
#include "ridge/cpu/finish_rows.h"
#include "ridge/cpu/int8_conv.h"
#include "ridge/cpu/onednn_conv_call.h"
#include "ridge/cpu/scratch.h"

namespace ridge {
namespace {

using dnnl::memory;
using Kind = ConvShape::Kind;

std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
// What follows the sums and takes oneDNN 2.6 twice as long as us, or of integers has other rules in
// its later versions: we apply it, as soon as a call is done, to results that are still in the
// cache.
bool has_own_epilogue(const ConvShape& s) {
  return s.kind == Kind::forward &&
         (s.epilogue == Epilogue::silu || s.epilogue == Epilogue::gelu || s.int8.has_value());
}

// What calls compute: without an epilogue of our own, which takes sums before they are rounded.
ConvShape shape_of_calls(ConvShape s) {
  if (!has_own_epilogue(s)) return s;
  s.epilogue = Epilogue::none;
  if (s.dtype != DType::f32) {
    s.residual = false;
    s.f32_result = true;
  }
  return s;
}

// What one call does at most.
struct Step {
  std::int64_t images = 1, rows = 1, channels = 1;
};

// How long a forward convolution takes in such steps, in multiply-adds of a core, as the mean over
// some numbers of threads: the steps must not depend on it.
double cost(const ConvShape& s, const Step& step) {
  // Measured on a processor with AVX-512; only their order of magnitude matters. Read are weights
  // and images from a second-level cache, moved are results that lie by themselves first.
  constexpr double start_call = 60e3, read_weight = 3, read_element = 3, move_result = 4;
  const auto k = static_cast<double>(s.weight.c * s.weight.pixels());
  const auto pixels = static_cast<double>(step.images * step.rows * s.y.w);
  const auto channels = static_cast<double>(step.channels);
  const double seen = pixels * static_cast<double>(s.x.c * s.geometry.stride[0]);
  const double moved = step.channels < s.y.c ? pixels * channels : 0;
  const double task = pixels * channels * k + channels * k * read_weight + seen * read_element +
                      moved * move_result + start_call;
  const std::int64_t tasks =
      ceil_div(s.x.n, step.images) * ceil_div(s.y.h, step.rows) * ceil_div(s.y.c, step.channels);
  double sum = 0;
  for (const std::int64_t threads : {4, 8, 16})
    sum += static_cast<double>(ceil_div(tasks, threads) * threads) * task;
  return sum;
}

// Whether all parts of few rows see some of x.
bool cuts_rows(const ConvShape& s) {
  return s.geometry.padding[0] < s.geometry.dilation[0] * (s.weight.h - 1) + 1;
}

// Images are shared out in up to 16 parts. Where that makes too few, rows are, if x holds whole
// rows and each part sees some of them; and channels, if no fewer remain than make a product fast.
Step forward_step(const ConvShape& s) {
  constexpr std::int64_t many = 16, most_cuts = 256, least_channels = 32, cache_words = 1 << 17;
  const ConvGeometry& g = s.geometry;
  const Step whole{std::max<std::int64_t>(1, s.x.n / many), s.y.h, s.y.c};
  const bool own = has_own_epilogue(s);
  if (g.layout != ImageLayout::nhwc || (whole.images > 1 && !own)) return whole;
  const bool cuts_channels = g.groups == 1;
  Step best = whole;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t cuts = 1; cuts <= (cuts_rows(s) ? std::min(s.y.h, most_cuts) : 1); ++cuts) {
    const std::int64_t rows = ceil_div(s.y.h, cuts);
    for (std::int64_t parts = 1; parts == 1 || (cuts_channels && parts <= many); ++parts) {
      const std::int64_t channels = parts == 1 ? s.y.c : ceil_div(ceil_div(s.y.c, parts), 16) * 16;
      if (parts > 1 && channels < least_channels) break;
      if (own && cuts_rows(s) && rows > 1 && rows * s.y.w * channels > cache_words) continue;
      const Step step{1, rows, channels};
      if (const double c = cost(s, step); c < least) {
        least = c;
        best = step;
      }
    }
  }
  return best;
}

// The best steps first. The library may have nothing but its reference for the last rows of an
// image that is not cut evenly, in the order of weights that its first rows want: next come even
// cuts, and no cut.
std::vector<Step> steps_of(const ConvShape& s) {
  constexpr std::int64_t few = 8, many = 16;
  const std::int64_t images =
      s.kind == Kind::weight_grad ? ceil_div(s.x.n, few) : std::max<std::int64_t>(1, s.x.n / many);
  const Step whole{images, s.y.h, s.y.c};
  if (s.kind != Kind::forward) return {whole};
  const Step best = forward_step(s);
  if (best.rows == s.y.h) return {best};
  Step even = best;
  while (s.y.h % even.rows != 0) --even.rows;
  if (even.rows == best.rows) return {best, whole};
  return {best, even, whole};
}

// Parts with the same channels follow each other, for they share weights.
std::vector<ConvPart> parts_of(const ConvShape& s, const Step& step) {
  std::vector<ConvPart> parts;
  for (std::int64_t c = 0; c < s.y.c; c += step.channels)
    for (std::int64_t n = 0; n < s.x.n; n += step.images)
      for (std::int64_t i = 0; i < s.y.h; i += step.rows)
        parts.push_back({n, std::min(step.images, s.x.n - n), i, std::min(step.rows, s.y.h - i), c,
                         std::min(step.channels, s.y.c - c)});
  return parts;
}

class OnednnConv final : public Conv {
 public:
  explicit OnednnConv(const ConvShape& shape);

  std::size_t packed_bytes() const override { return packed_bytes_; }
  void pack(ThreadPool& pool, const void* weight, void* packed) const override;
  bool is_slow() const override { return is_slow_; }
  std::size_t workspace() const override {
    return shape_.kind == Kind::weight_grad ? tasks_.size() * gradient_bytes_ : 0;
  }
  void run(ThreadPool& pool, const ConvOperands& operands, void* workspace) const override;

 private:
  // The weights of some channels.
  struct Slice {
    memory::desc packed;
    std::size_t plain_offset = 0, packed_offset = 0;  // bytes
    std::optional<WeightReorder> reorder;             // none if they are in the library's order
  };
  struct Task {
    ConvPart part;
    std::int64_t first_row = 0;  // that it sees of x
    std::size_t slice = 0;
    std::size_t scratch_bytes = 0, result_bytes = 0;  // the latter if results lie by themselves
    ConvCall call;
  };

  void take_steps(const Step& step);
  void add_slice(const ConvPart& part, const memory::desc& packed);
  void add_task(const ConvPart& part, const ConvPrimitive& primitive);
  void run_task(const Task& task, const ConvOperands& o, void* weights) const;
  void run_gradient(ThreadPool& pool, const ConvOperands& o, void* workspace) const;
  template <class T>
  void finish(const ConvPart& part, const float* sums, const T* residual, T* y) const;

  ConvShape shape_;
  std::vector<Slice> slices_;
  std::vector<Task> tasks_;
  std::size_t packed_bytes_ = 0;
  bool is_slow_ = false;
  std::size_t gradient_bytes_ = 0;  // of a part's gradient of the weights
};

OnednnConv::OnednnConv(const ConvShape& shape) : shape_(shape) {
  try {
    const std::vector<Step> steps = steps_of(shape);
    for (const Step& step : steps) {
      take_steps(step);
      if (!is_slow_) return;
    }
    if (steps.size() > 1) take_steps(steps.front());  // what is slow in any steps
  } catch (const dnnl::error& error) {
    throw DeviceError("oneDNN has no convolution of {} in {} on this CPU: {}", name_of(shape.dtype),
                      name_of(shape.geometry.layout), error.what());
  }
}

// Parts that differ in nothing but where they are share a primitive, and those of the same number
// of channels the order of the weights.
void OnednnConv::take_steps(const Step& step) {
  using Form = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  std::map<std::pair<std::int64_t, Form>, ConvPrimitive> primitives;
  std::map<std::int64_t, memory::desc> orders;
  const ConvShape calls = shape_of_calls(shape_);
  slices_.clear();
  tasks_.clear();
  packed_bytes_ = gradient_bytes_ = 0;
  is_slow_ = false;
  for (const ConvPart& part : parts_of(shape_, step)) {
    const SeenRows seen = rows_seen(shape_, part);
    const Form form{part.images, part.rows, seen.count, seen.above, seen.below};
    auto found = primitives.find({part.channels, form});
    if (found == primitives.end()) {
      const auto order = orders.find(part.channels);
      const ConvPrimitive primitive(calls, part, order == orders.end() ? nullptr : &order->second);
      is_slow_ |= primitive.is_reference();
      orders.try_emplace(part.channels, primitive.weights());
      found = primitives.try_emplace({part.channels, form}, primitive).first;
    }
    if (part.image == 0 && part.row == 0) add_slice(part, orders.at(part.channels));
    add_task(part, found->second);
  }
}

void OnednnConv::add_slice(const ConvPart& part, const memory::desc& packed) {
  const std::int64_t kernel = shape_.weight.c * shape_.weight.pixels();
  Slice slice{
      .packed = packed,
      .plain_offset = static_cast<std::size_t>(part.channel * kernel) * size_of(shape_.dtype),
      .packed_offset = packed_bytes_};
  const memory::desc plain = plain_weights(shape_, part.channels);
  if (shape_.kind == Kind::weight_grad) {
    gradient_bytes_ = padded(packed.get_size());
    slice.reorder.emplace(packed, plain);
  } else if (packed != plain || part.channels < shape_.y.c) {
    slice.reorder.emplace(plain, packed);
    packed_bytes_ += padded(packed.get_size());
  }
  slices_.push_back(std::move(slice));
}

void OnednnConv::add_task(const ConvPart& part, const ConvPrimitive& primitive) {
  const bool apart =
      part.channels < shape_.y.c || (has_own_epilogue(shape_) && shape_.dtype != DType::f32);
  tasks_.push_back({.part = part,
                    .first_row = rows_seen(shape_, part).begin,
                    .slice = slices_.size() - 1,
                    .scratch_bytes = padded(primitive.scratch_bytes()),
                    .result_bytes = apart ? primitive.result_bytes() : 0,
                    .call = ConvCall(primitive)});
}

void OnednnConv::pack(ThreadPool& pool, const void* weight, void* packed) const {
  std::vector<std::pair<const Slice*, std::int64_t>> pieces;
  for (const Slice& slice : slices_)
    for (std::int64_t i = 0; i < slice.reorder->pieces(); ++i) pieces.emplace_back(&slice, i);
  pool.run(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i) {
    const auto& [slice, piece] = pieces[static_cast<std::size_t>(i)];
    slice->reorder->run(piece, static_cast<const char*>(weight) + slice->plain_offset,
                        static_cast<char*>(packed) + slice->packed_offset);
  });
}

void OnednnConv::run_task(const Task& task, const ConvOperands& o, void* weights) const {
  const ConvShape& s = shape_;
  const ConvPart& part = task.part;
  const ImageStrides xs(s.x, s.geometry.layout), ys(s.y, s.geometry.layout);
  const auto size = static_cast<std::int64_t>(size_of(s.dtype));
  const auto y_size = s.f32_result ? static_cast<std::int64_t>(sizeof(float)) : size;
  const auto moved = [](auto* memory, std::int64_t bytes) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(memory)>>,
                                    const char, char>;
    return memory ? static_cast<Byte*>(memory) + bytes : nullptr;
  };
  auto* const scratch = static_cast<char*>(scratch_memory(task.scratch_bytes + task.result_bytes));
  const std::int64_t y = y_size * ys.at(part.image, 0, part.row, 0);
  const bool apart = task.result_bytes > 0;
  const ConvOperands own{moved(o.x, size * xs.at(part.image, 0, task.first_row, 0)), weights,
                         apart ? scratch + task.scratch_bytes : moved(o.y, y),
                         moved(o.bias, size * part.channel), moved(o.residual, y)};
  task.call.run(own, scratch);
  if (s.int8)
    finish_int8(s, part, static_cast<const std::int32_t*>(own.y), o);
  else if (apart)
    dispatch_floating(s.f32_result ? DType::f32 : s.dtype, [&]<class T>() {
      finish(part, static_cast<const float*>(own.y), static_cast<const T*>(o.residual),
             static_cast<T*>(o.y));
    });
  else if (has_own_epilogue(s))
    finish(part, static_cast<const float*>(own.y), static_cast<const float*>(nullptr),
           static_cast<float*>(o.y));
}

// The part of y, from sums that lie by themselves or in y. The residual, if any, is all of it.
template <class T>
void OnednnConv::finish(const ConvPart& part, const float* sums, const T* residual, T* y) const {
  const ConvShape& s = shape_;
  const ImageStrides ys(s.y, s.geometry.layout);
  // Whole channels of whole rows are one run of memory, else each pixel is one.
  const std::int64_t pixels = part.images * part.rows * s.y.w;
  const bool whole = part.channels == s.y.c;
  const std::int64_t runs = whole ? 1 : pixels, length = (whole ? pixels : 1) * part.channels;
  const std::int64_t first = ys.at(part.image, part.channel, part.row, 0);
  for (std::int64_t run = 0; run < runs; ++run) {
    const std::int64_t at = first + run * s.y.c;
    finish_rows(s.epilogue, sums + run * length, residual ? residual + at : nullptr, length,
                y + at);
  }
}

void OnednnConv::run_gradient(ThreadPool& pool, const ConvOperands& o, void* workspace) const {
  pool.run(static_cast<std::int64_t>(tasks_.size()), [&](std::int64_t t) {
    const auto i = static_cast<std::size_t>(t);
    run_task(tasks_[i], o, static_cast<char*>(workspace) + i * gradient_bytes_);
  });
  auto* const partials = static_cast<float*>(workspace);
  const auto step = static_cast<std::int64_t>(gradient_bytes_ / sizeof(float));
  const auto floats = static_cast<std::int64_t>(slices_[0].packed.get_size() / sizeof(float));
  add_parts(pool, partials + step, step, static_cast<std::int64_t>(tasks_.size()) - 1, floats,
            partials);
  const WeightReorder& reorder = *slices_[0].reorder;
  pool.run(reorder.pieces(), [&](std::int64_t i) { reorder.run(i, workspace, o.weight); });
}

void OnednnConv::run(ThreadPool& pool, const ConvOperands& o, void* workspace) const {
  if (shape_.kind == Kind::weight_grad) return run_gradient(pool, o, workspace);
  pool.run(static_cast<std::int64_t>(tasks_.size()), [&](std::int64_t i) {
    const Task& task = tasks_[static_cast<std::size_t>(i)];
    const Slice& slice = slices_[task.slice];
    const std::size_t offset = packed_bytes_ > 0 ? slice.packed_offset : slice.plain_offset;
    run_task(task, o, static_cast<char*>(o.weight) + offset);
  });
}

}  // namespace

ConvPtr make_onednn_conv(const ConvShape& shape) { return std::make_unique<OnednnConv>(shape); }

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
