#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// How window attention and its gradient cut an image: into windows of side x side positions, among
// which there is attention. Position (i, j) of window (a, b) of R x C is the pixel
//   ((a side + i + shift_down) mod H, (b side + j + shift_across) mod W),
// or, if `spread`, (i R + a, j C + b): as many positions, evenly spread over the image. Windows
// that the shift puts together from both edges of the image keep the parts from either apart: a
// position sees those of its own part only.
struct WindowHeads {
  std::int64_t n_heads = 1;
  std::int64_t side = 1;
  std::int64_t shift_down = 0, shift_across = 0;  // at least 0, below `side`; 0 if `spread`
  bool spread = false;
  float scale = 1.0f;

  std::int64_t positions() const { return side * side; }
  bool operator==(const WindowHeads&) const = default;
};

// Attention within the windows of images (Liu et al., 2021), with a bias for each pair of
// positions, without cutting the images up or storing scores. With h a head, p and q positions of
// one window:
//   s[h, p, q] = scale * sum_c q[p, h, c] * k[q, h, c] + bias[h, p, q], -infinity where p does not
//                see q
//   y[p, h, c] = sum_q softmax(s[h, p, :])[q] * v[q, h, c]
// Takes images qkv[N, H, W, 3 n_heads d], queries, keys and values side by side, with H and W
// multiples of `side`, and bias[n_heads, side^2, side^2] in their type; gives y[N, H, W, n_heads
// d].
struct WindowAttention : WindowHeads {
  static constexpr std::string_view name = "window_attention";
  static constexpr WorkKind work = WorkKind::attention;

  RIDGE_OPERATOR(WindowAttention);
  std::vector<Value> grad(GradBuilder& builder) const;
};

// Takes (dy, qkv, bias) and gives dqkv and dbias. The probabilities p are computed again:
//   ds[p, q] = p[p, q] * (sum_c dy[p, c] v[q, c] - sum_r p[p, r] sum_c dy[p, c] v[r, c])
//   dq[p] = scale * sum_q ds[p, q] k[q];  dk[q] = scale * sum_p ds[p, q] q[p]
//   dv[q] = sum_p p[p, q] dy[p];          dbias = sum of ds over the windows of all images
struct WindowAttentionGrad : WindowHeads {
  static constexpr std::string_view name = "window_attention_grad";
  static constexpr WorkKind work = WorkKind::attention;

  RIDGE_OPERATOR(WindowAttentionGrad);
};

// The windows of a batch of images, for kernels on any device; plain numbers of 32 bits.
struct WindowGrid {
  int height = 0, width = 0;  // of an image, in pixels
  int rows = 0, columns = 0;  // of windows
  int side = 0, shift_down = 0, shift_across = 0;
  bool spread = false;

  WindowGrid() = default;
  // `image`: [N, H, W, ..].
  WindowGrid(const WindowHeads& heads, const Shape& image);

  constexpr int positions() const { return side * side; }
  constexpr int windows() const { return rows * columns; }  // of an image

  // Which pixel, counted by rows, position (i, j) of window (a, b) of an image is.
  constexpr int pixel(int a, int b, int i, int j) const {
    if (spread) return (i * rows + a) * width + j * columns + b;
    int y = a * side + i + shift_down, x = b * side + j + shift_across;
    if (y >= height) y -= height;
    if (x >= width) x -= width;
    return y * width + x;
  }
  // The same, both counted by rows.
  constexpr int pixel(int w, int p) const {
    return pixel(w / columns, w % columns, p / side, p % side);
  }
  // Which sides of the shift's seams position p is on, if there are any: a bit for each direction.
  constexpr int part(int p) const {
    return (p / side >= side - shift_down ? 1 : 0) | (p % side >= side - shift_across ? 2 : 0);
  }
  // Which seams go through window w: a bit for each direction. p sees q unless part(p) and part(q)
  // differ in one of these bits.
  constexpr int seams(int w) const {
    return (shift_down > 0 && w / columns == rows - 1 ? 1 : 0) |
           (shift_across > 0 && w % columns == columns - 1 ? 2 : 0);
  }
};

Value window_attention(Value qkv, Value bias, const WindowHeads& heads);

}  // namespace ridge
