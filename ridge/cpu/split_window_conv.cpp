// A task has some positions of a group's line (split_window.h) and some strips of its output
// channels. It splits the part of the image that its windows reach, and goes through the products
// of a strip in blocks, each for all its positions; where weights are not split ahead, it splits
// those of a block before.

#include "ridge/cpu/split_window_conv.h"

#include <algorithm>

#include "ridge/base/ceil_div.h"
#include "ridge/base/error.h"
#include "ridge/cpu/amx.h"
#include "ridge/cpu/finish_rows.h"
#include "ridge/cpu/range.h"
#include "ridge/cpu/scratch.h"
#include "ridge/cpu/split_conv.h"
#include "ridge/cpu/split_kernel.h"
#include "ridge/cpu/split_window.h"

namespace ridge {
namespace {

using Kind = ConvShape::Kind;

// What is read and written. The gradient by x is a convolution of y with the window turned by half
// a circle.
struct WindowPass {
  ImageShape from, to;                      // with the channels of all groups
  std::int64_t from_channels, to_channels;  // of one group
  Pair stride, padding;
};

WindowPass window_pass_of(const ConvShape& s) {
  const ConvGeometry& g = s.geometry;
  if (s.kind == Kind::forward)
    return {s.x, s.y, s.x.c / g.groups, s.y.c / g.groups, g.stride, g.padding};
  return {s.y,
          s.x,
          s.y.c / g.groups,
          s.x.c / g.groups,
          {1, 1},
          {(s.weight.h - 1) * g.dilation[0] - g.padding[0],
           (s.weight.w - 1) * g.dilation[1] - g.padding[1]}};
}

}  // namespace

bool has_split_window_conv(const ConvShape& s) {
  const ConvGeometry& g = s.geometry;
  if (s.kind == Kind::weight_grad || s.dtype != DType::f32 || s.int8 || s.f32_result ||
      g.layout != ImageLayout::nhwc || s.weight_layout != ImageLayout::nhwc ||
      (s.kind == Kind::input_grad && g.stride != Pair{1, 1}))
    return false;
  // Of fewer channels most of a step would be zeros.
  constexpr std::int64_t least_channels = 16;
  const WindowPass pass = window_pass_of(s);
  return pass.from_channels >= least_channels && pass.padding[0] >= 0 && pass.padding[1] >= 0 &&
         !has_split_conv(s) && may_multiply_split();
}

#if defined(__AVX512BF16__)

namespace {

// Of the part of the image that a task splits.
constexpr std::int64_t image_cache_bytes = std::int64_t{3} << 18;
constexpr std::int64_t most_row_strips = 16;
// Of the whole image, where few rows read the weights.
constexpr std::int64_t few_rows_bytes = std::int64_t{2} << 20;

class SplitWindowConv final : public Conv {
 public:
  SplitWindowConv(const ConvShape& shape, SplitWeights weights)
      : shape_(shape),
        weights_(weights),
        pass_(window_pass_of(shape)),
        lines_(pass_.from, pass_.to, shape.weight, pass_.stride, shape.geometry.dilation,
               pass_.padding),
        channel_steps_(ceil_div(pass_.from_channels, step_k)),
        steps_(shape.weight.pixels() * channel_steps_),
        row_strips_(ceil_div(lines_.positions(), strip_width)),
        column_strips_(ceil_div(pass_.to_channels, strip_width)) {}

  bool has_few_rows() const {
    return (row_strips_ * strip_width + lines_.reach()) * bytes_of_position() <= few_rows_bytes;
  }

  std::size_t packed_bytes() const override {
    if (weights_ == SplitWeights::in_blocks) return 0;
    return static_cast<std::size_t>(shape_.geometry.groups * column_strips_ * steps_ * step_words) *
           sizeof(std::uint32_t);
  }
  std::size_t workspace() const override { return 0; }
  void pack(ThreadPool& pool, const void* weight, void* packed) const override;
  void run(ThreadPool& pool, const ConvOperands& o, void* workspace) const override;

 private:
  struct Task {
    std::int64_t group;
    Range rows, columns;   // strips of positions and of the group's output channels
    std::uint32_t* words;  // of the image, [phase][channel step][part][position]
    std::int64_t positions;
    float* sums;           // [strip of rows][strip_width, strip_width]
    std::uint32_t* block;  // of weights, [step][step_words], where they are not split ahead
  };

  std::int64_t words_of_position() const {
    return lines_.phases() * channel_steps_ * 3 * row_words;
  }
  std::int64_t bytes_of_position() const {
    return words_of_position() * static_cast<std::int64_t>(sizeof(std::uint32_t));
  }
  void split_image(const Task& task, const float* image) const;
  void split_weights(std::int64_t group, std::int64_t column, Range steps, const void* weight,
                     std::uint32_t* words) const;
  void multiply_strip(const Task& task, std::int64_t column, const void* weights) const;
  template <class F>
  void write_strip(const Task& task, std::int64_t column, const ConvOperands& o,
                   const F& function) const;
  void run_task(const Task& task, const ConvOperands& o) const;

  ConvShape shape_;
  SplitWeights weights_;
  WindowPass pass_;
  WindowLines lines_;
  std::int64_t channel_steps_, steps_, row_strips_, column_strips_;
};

// Some steps, [pixel of the window][channel step], of a strip of a group's output channels, from
// weights as they are stored: words [steps, step_words].
void SplitWindowConv::split_weights(std::int64_t group, std::int64_t column, Range steps,
                                    const void* weight, std::uint32_t* words) const {
  const bool forward = shape_.kind == Kind::forward;
  const std::int64_t taps = shape_.weight.pixels(), row = taps * shape_.weight.c;
  const std::int64_t first_row = group * (shape_.weight.n / shape_.geometry.groups);
  const std::int64_t first = column * strip_width;
  for (std::int64_t step = steps.begin; step < steps.end;) {
    const std::int64_t tap = step / channel_steps_;
    const std::int64_t end = std::min(steps.end, (tap + 1) * channel_steps_);
    const std::int64_t channel = (step - tap * channel_steps_) * step_k;
    const PackSource source{.data = static_cast<const float*>(weight) + first_row * row +
                                    (forward ? tap : taps - 1 - tap) * shape_.weight.c +
                                    channel * (forward ? 1 : row),
                            .stride = row,
                            .k_runs_along_rows = forward,
                            .k = std::min(pass_.from_channels - channel, (end - step) * step_k)};
    split_strip(source, first, std::min(strip_width, pass_.to_channels - first), OperandSide::right,
                words + (step - steps.begin) * step_words);
    step = end;
  }
}

// [group][strip of output channels][step][step_words].
void SplitWindowConv::pack(ThreadPool& pool, const void* weight, void* packed) const {
  const std::int64_t taps = shape_.weight.pixels();
  pool.run(shape_.geometry.groups * column_strips_ * taps, [&](std::int64_t i) {
    const std::int64_t tap = i % taps, strip = i / taps;
    split_weights(strip / column_strips_, strip % column_strips_,
                  {tap * channel_steps_, (tap + 1) * channel_steps_}, weight,
                  static_cast<std::uint32_t*>(packed) + i * channel_steps_ * step_words);
  });
}

void SplitWindowConv::split_image(const Task& task, const float* image) const {
  const std::int64_t part_words = task.positions * row_words;
  const std::int64_t first = task.rows.begin * strip_width + lines_.first();
  for (std::int64_t phase = 0; phase < lines_.phases(); ++phase) {
    std::uint32_t* const words = task.words + phase * channel_steps_ * 3 * part_words;
    lines_.each_pixel(phase, first, task.positions, [&](std::int64_t i, std::int64_t pixel) {
      const std::int64_t at = pixel * pass_.from.c + task.group * pass_.from_channels;
      split_row(pixel < 0 ? nullptr : image + at, pass_.from_channels, words + i * row_words,
                part_words, 3 * part_words);
    });
  }
}

// The sums of one strip of output channels.
void SplitWindowConv::multiply_strip(const Task& task, std::int64_t column,
                                     const void* weights) const {
  const std::int64_t blocks = ceil_div(steps_, most_block_steps);
  const std::int64_t columns = std::min(strip_width, pass_.to_channels - column * strip_width);
  SplitBlock block{.rows = strip_width,
                   .columns = ceil_div(columns, tile_width) * tile_width,
                   .left_part = task.positions * row_words,
                   .stride = strip_width};
  for (std::int64_t i = 0; i < blocks; ++i) {
    const Range steps = part_of({0, steps_}, i, blocks);
    block.steps = steps.size();
    block.adds = i > 0;
    const std::uint32_t* right = task.block;
    if (weights_ == SplitWeights::in_blocks)
      split_weights(task.group, column, steps, weights, task.block);
    else
      right = static_cast<const std::uint32_t*>(weights) +
              ((task.group * column_strips_ + column) * steps_ + steps.begin) * step_words;
    for (std::int64_t step = 0; step < block.steps; ++step) {
      const std::int64_t tap = (steps.begin + step) / channel_steps_;
      const std::int64_t channels = (steps.begin + step) % channel_steps_;
      const auto [phase, distance] = lines_.window_pixel(tap);
      const auto at = static_cast<std::size_t>(step);
      block.left[at] =
          task.words +
          ((phase * channel_steps_ + channels) * 3 * task.positions + distance) * row_words;
      block.right[at] = right + step * step_words;
    }
    block.to = task.sums;
    for (std::int64_t row = 0; row < task.rows.size(); ++row, block.to += strip_sums) {
      multiply_split(block);
      for (std::int64_t step = 0; step < block.steps; ++step)
        block.left[static_cast<std::size_t>(step)] += strip_width * row_words;
    }
  }
}

template <class F>
void SplitWindowConv::write_strip(const Task& task, std::int64_t column, const ConvOperands& o,
                                  const F& function) const {
  const ImageShape& s = pass_.to;
  const std::int64_t in_group = column * strip_width;
  const std::int64_t channel = task.group * pass_.to_channels + in_group;
  const std::int64_t columns = std::min(strip_width, pass_.to_channels - in_group);
  auto* const y = static_cast<float*>(shape_.kind == Kind::forward ? o.y : o.x);
  const auto* const bias = static_cast<const float*>(o.bias);
  const auto* const residual = static_cast<const float*>(o.residual);
  const auto write = [&](std::int64_t i, std::int64_t result) {
    if (result < 0) return;
    const std::int64_t at = result * s.c + channel;
    finish_row(task.sums + i * strip_width, bias ? bias + channel : nullptr,
               residual ? residual + at : nullptr, y + at, columns, function);
  };
  lines_.each_result(task.rows.begin * strip_width, task.rows.size() * strip_width, write);
}

void SplitWindowConv::run_task(const Task& task, const ConvOperands& o) const {
  const AmxTiles tiles;
  split_image(task, static_cast<const float*>(shape_.kind == Kind::forward ? o.x : o.y));
  with_epilogue(shape_.epilogue, [&](const auto& function) {
    for (std::int64_t column = task.columns.begin; column < task.columns.end; ++column) {
      multiply_strip(task, column, o.weight);
      write_strip(task, column, o, function);
    }
  });
}

// Each result is computed in one way, whichever task it is in: tasks may depend on the number of
// threads.
void SplitWindowConv::run(ThreadPool& pool, const ConvOperands& o, void*) const {
  const std::int64_t groups = shape_.geometry.groups;
  const std::int64_t wanted = ceil_div(2 * pool.size(), groups);
  const bool in_blocks = weights_ == SplitWeights::in_blocks;
  const std::int64_t most = std::clamp<std::int64_t>(
      (image_cache_bytes / bytes_of_position() - lines_.reach()) / strip_width, 1, most_row_strips);
  const std::int64_t blocks =
      in_blocks ? 1 : std::max(ceil_div(row_strips_, most), std::min(wanted, row_strips_));
  const std::int64_t parts = std::clamp<std::int64_t>(wanted / blocks, 1, column_strips_);
  const std::int64_t block_words = in_blocks ? most_block_steps * step_words : 0;
  pool.run(groups * blocks * parts, [&](std::int64_t i) {
    Task task{.group = i / parts / blocks,
              .rows = part_of({0, row_strips_}, i / parts % blocks, blocks),
              .columns = part_of({0, column_strips_}, i % parts, parts)};
    task.positions = task.rows.size() * strip_width + lines_.reach();
    const std::int64_t words = task.positions * words_of_position();
    task.block = static_cast<std::uint32_t*>(scratch_memory(
        static_cast<std::size_t>(block_words + words + task.rows.size() * strip_sums) *
        sizeof(float)));
    task.words = task.block + block_words;
    task.sums = reinterpret_cast<float*>(task.words + words);
    run_task(task, o);
  });
}

}  // namespace

bool has_few_rows(const ConvShape& shape) {
  return SplitWindowConv(shape, SplitWeights::in_blocks).has_few_rows();
}

ConvPtr make_split_window_conv(const ConvShape& shape, SplitWeights weights) {
  return std::make_unique<SplitWindowConv>(shape, weights);
}

#else

bool has_few_rows(const ConvShape&) { return false; }

ConvPtr make_split_window_conv(const ConvShape&, SplitWeights) {
  throw Error("no convolution of split operands");
}

#endif

}  // namespace ridge
