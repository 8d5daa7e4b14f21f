// The gradient by a pixel of the weights is a product of two matrices, as deep as there are
// positions in a line of the image (split_window.h): of the gradient of the results, with zeros
// where there is none, and of the image, from the pixel's distance on. A word of the right operand
// is a pair of positions 16 apart; one is kept for each position, so that a tile may begin at any
// of them.
//
// A task has some output and some input channels of a group, and a part of the positions. It goes
// through these in chunks, each of which it splits and multiplies for all pixels of the weights;
// sums stay in the second-level cache. Parts are added up at the end, in order.

#include "ridge/cpu/split_window_grad.h"

#include <algorithm>
#include <vector>

#include "ridge/base/ceil_div.h"
#include "ridge/base/error.h"
#include "ridge/cpu/add_parts.h"
#include "ridge/cpu/amx.h"
#include "ridge/cpu/range.h"
#include "ridge/cpu/scratch.h"
#include "ridge/cpu/split_conv.h"
#include "ridge/cpu/split_kernel.h"
#include "ridge/cpu/split_window.h"

namespace ridge {

bool has_split_window_grad(const ConvShape& s) {
  constexpr std::int64_t least_channels = 16, most_taps = 25;
  const ConvGeometry& g = s.geometry;
  return s.kind == ConvShape::Kind::weight_grad && s.dtype == DType::f32 && !s.int8 &&
         g.layout == ImageLayout::nhwc && s.weight_layout == ImageLayout::nhwc &&
         s.weight.c >= least_channels && s.y.c / g.groups >= least_channels &&
         s.weight.pixels() <= most_taps && !has_split_conv(s) && may_multiply_split();
}

#if defined(__AVX512BF16__)

namespace {

// Channels of a task are at most so many strips.
constexpr std::int64_t most_out_strips = 4, most_in_strips = 2;
// A part of fewer steps would be added more often than is worth it.
constexpr std::int64_t least_steps_of_part = 64;

class SplitWindowGrad final : public Conv {
 public:
  explicit SplitWindowGrad(const ConvShape& shape)
      : shape_(shape),
        lines_(shape.x, shape.y, shape.weight, shape.geometry.stride, shape.geometry.dilation,
               shape.geometry.padding),
        groups_(shape.geometry.groups),
        out_channels_(shape.y.c / groups_),
        in_channels_(shape.weight.c),
        steps_(ceil_div(lines_.positions(), step_k)),
        out_strips_(ceil_div(out_channels_, strip_width)),
        in_strips_(ceil_div(in_channels_, strip_width)),
        out_blocks_(ceil_div(out_strips_, most_out_strips)),
        in_blocks_(ceil_div(in_strips_, most_in_strips)) {
    constexpr std::int64_t wanted = 64;  // for as many processors
    parts_ = std::clamp<std::int64_t>(std::min(ceil_div(wanted, groups_ * out_blocks_ * in_blocks_),
                                               steps_ / least_steps_of_part),
                                      1, wanted);
  }

  std::size_t workspace() const override {
    return static_cast<std::size_t>((parts_ - 1) * weights()) * sizeof(float);
  }
  void run(ThreadPool& pool, const ConvOperands& o, void* workspace) const override;

 private:
  struct Task {
    std::int64_t group;
    Range out, in, steps;  // strips of the group's channels; steps of positions
    float* weights;
    // Scratch memory of one chunk, which reaches over so many positions of each line.
    std::int64_t positions;
    float* sums;           // [pixel of the weights][out][in][strip_width, strip_width]
    std::uint32_t* left;   // [out][step][step_words]
    std::uint32_t* right;  // [phase][tile of in][part][position][row_words]
  };

  std::int64_t weights() const { return shape_.weight.n * shape_.weight.pixels() * in_channels_; }
  void split_gradient(const Task& task, const float* dy, Range steps) const;
  void split_image(const Task& task, const float* x, Range steps) const;
  void multiply_chunk(const Task& task, Range steps) const;
  void write_weights(const Task& task) const;
  void run_task(const ConvOperands& o, Task task) const;

  ConvShape shape_;
  WindowLines lines_;
  std::int64_t groups_, out_channels_, in_channels_;  // of a group
  std::int64_t steps_, out_strips_, in_strips_, out_blocks_, in_blocks_, parts_ = 1;
};

void SplitWindowGrad::split_gradient(const Task& task, const float* dy, Range steps) const {
  alignas(64) float pixels[step_k][strip_width];
  for (std::int64_t step = steps.begin; step < steps.end; ++step) {
    std::int64_t results[step_k];
    lines_.each_result(step * step_k, step_k,
                       [&](std::int64_t i, std::int64_t result) { results[i] = result; });
    for (std::int64_t strip = task.out.begin; strip < task.out.end; ++strip) {
      const std::int64_t channels = std::min(strip_width, out_channels_ - strip * strip_width);
      const float* const from = dy + task.group * out_channels_ + strip * strip_width;
      for (std::int64_t i = 0; i < step_k; ++i) {
        std::int64_t there = 0;
        if (results[i] >= 0) {
          std::copy_n(from + results[i] * shape_.y.c, channels, pixels[i]);
          there = channels;
        }
        std::fill(pixels[i] + there, pixels[i] + strip_width, 0.0f);
      }
      split_strip(
          {.data = pixels, .stride = strip_width, .k_runs_along_rows = false, .k = step_k}, 0,
          strip_width, OperandSide::left,
          task.left + ((strip - task.out.begin) * steps.size() + step - steps.begin) * step_words);
    }
  }
}

void SplitWindowGrad::split_image(const Task& task, const float* x, Range steps) const {
  const std::int64_t count = steps.size() * step_k + lines_.reach();
  const std::int64_t first = steps.begin * step_k + lines_.first();
  const std::int64_t tiles = 2 * task.in.size(), part_words = task.positions * row_words;
  std::vector<const float*> pixels(static_cast<std::size_t>(count));
  for (std::int64_t phase = 0; phase < lines_.phases(); ++phase) {
    lines_.each_pixel(phase, first, count, [&](std::int64_t i, std::int64_t pixel) {
      pixels[static_cast<std::size_t>(i)] =
          pixel < 0 ? nullptr : x + pixel * shape_.x.c + task.group * in_channels_;
    });
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t channel = task.in.begin * strip_width + tile * tile_width;
      const std::int64_t channels = std::min(tile_width, in_channels_ - channel);
      if (channels <= 0) continue;
      std::uint32_t* words = task.right + (phase * tiles + tile) * 3 * part_words;
      for (std::int64_t i = 0; i + tile_width < count; ++i, words += row_words) {
        const float *one = pixels[static_cast<std::size_t>(i)],
                    *other = pixels[static_cast<std::size_t>(i + tile_width)];
        split_pair(one ? one + channel : nullptr, other ? other + channel : nullptr, channels,
                   words, part_words);
      }
    }
  }
}

void SplitWindowGrad::multiply_chunk(const Task& task, Range steps) const {
  const std::int64_t part_words = task.positions * row_words, tiles = 2 * task.in.size();
  SplitBlock block{.rows = strip_width,
                   .steps = steps.size(),
                   .right_part = part_words,
                   .right_tile = 3 * part_words,
                   .adds = steps.begin > task.steps.begin,
                   .to = task.sums,
                   .stride = strip_width};
  for (std::int64_t tap = 0; tap < shape_.weight.pixels(); ++tap) {
    const auto [phase, distance] = lines_.window_pixel(tap);
    for (std::int64_t out = 0; out < task.out.size(); ++out)
      for (std::int64_t in = 0; in < task.in.size(); ++in, block.to += strip_sums) {
        const std::int64_t channels = in_channels_ - (task.in.begin + in) * strip_width;
        block.columns = channels > tile_width ? strip_width : tile_width;
        for (std::int64_t step = 0; step < block.steps; ++step) {
          const auto at = static_cast<std::size_t>(step);
          block.left[at] = task.left + (out * block.steps + step) * step_words;
          block.right[at] = task.right + (phase * tiles + 2 * in) * 3 * part_words +
                            (distance + step * step_k) * row_words;
        }
        multiply_split(block);
      }
  }
}

void SplitWindowGrad::write_weights(const Task& task) const {
  const float* sums = task.sums;
  for (std::int64_t tap = 0; tap < shape_.weight.pixels(); ++tap)
    for (std::int64_t out = task.out.begin; out < task.out.end; ++out)
      for (std::int64_t in = task.in.begin; in < task.in.end; ++in, sums += strip_sums)
        for (std::int64_t i = 0; i < std::min(strip_width, out_channels_ - out * strip_width);
             ++i) {
          const std::int64_t row = task.group * out_channels_ + out * strip_width + i;
          std::copy_n(sums + i * strip_width,
                      std::min(strip_width, in_channels_ - in * strip_width),
                      task.weights + (row * shape_.weight.pixels() + tap) * in_channels_ +
                          in * strip_width);
        }
}

void SplitWindowGrad::run_task(const ConvOperands& o, Task task) const {
  const std::int64_t chunks = ceil_div(task.steps.size(), most_block_steps);
  const std::int64_t strips = task.out.size() * task.in.size();
  task.positions = most_block_steps * step_k + lines_.reach();
  const std::int64_t sum_words = shape_.weight.pixels() * strips * strip_sums;
  const std::int64_t left_words = task.out.size() * most_block_steps * step_words;
  const std::int64_t right_words =
      lines_.phases() * 2 * task.in.size() * 3 * task.positions * row_words;
  task.sums = static_cast<float*>(scratch_memory(
      static_cast<std::size_t>(sum_words + left_words + right_words) * sizeof(float)));
  task.left = reinterpret_cast<std::uint32_t*>(task.sums + sum_words);
  task.right = task.left + left_words;
  const AmxTiles tiles;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const Range steps = part_of(task.steps, chunk, chunks);
    split_gradient(task, static_cast<const float*>(o.y), steps);
    split_image(task, static_cast<const float*>(o.x), steps);
    multiply_chunk(task, steps);
  }
  write_weights(task);
}

void SplitWindowGrad::run(ThreadPool& pool, const ConvOperands& o, void* workspace) const {
  auto* const result = static_cast<float*>(o.weight);
  auto* const others = static_cast<float*>(workspace);  // the parts behind the first
  const std::int64_t blocks = out_blocks_ * in_blocks_;
  pool.run(parts_ * groups_ * blocks, [&](std::int64_t i) {
    const std::int64_t part = i / (groups_ * blocks);
    run_task(o, {.group = i / blocks % groups_,
                 .out = part_of({0, out_strips_}, i / in_blocks_ % out_blocks_, out_blocks_),
                 .in = part_of({0, in_strips_}, i % in_blocks_, in_blocks_),
                 .steps = part_of({0, steps_}, part, parts_),
                 .weights = part == 0 ? result : others + (part - 1) * weights()});
  });
  add_parts(pool, others, weights(), parts_ - 1, weights(), result);
}

}  // namespace

ConvPtr make_split_window_grad(const ConvShape& shape) {
  return std::make_unique<SplitWindowGrad>(shape);
}

#else

ConvPtr make_split_window_grad(const ConvShape&) {
  throw Error("no gradient by the weights of split operands");
}

#endif

}  // namespace ridge
