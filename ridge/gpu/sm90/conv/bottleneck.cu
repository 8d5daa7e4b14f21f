// A residual network's bottleneck of 64 channels behind its reduction: a convolution 3 x 3, the
// expansion of its result with a residual, and the reduction that the next bottleneck begins with;
// 16 bits, channels last. What lies between the three never leaves the multiprocessor: the
// accumulators of one product, packed, are the operand of the next. Where the residual is a
// projection of another image, its product is added to the expansion's.
//
// All weights stay in shared memory. A block goes through tiles of the result, some rows of an
// image. A patch of the image, with a border of zeros or neighbors, is loaded once, and read nine
// times (see conv_patch.cu): rows of the operands are its pixels, border included. What is computed
// for the border is not written. The sums, 64 channels, become the operand of an expansion of 64
// channels at a time, a panel; and panels that of the reduction, which is summed over them.
// Residuals come into boxes of shared memory, from which results leave.
//
// Besides the warpgroups that multiply, 64 pixels each, there are three warps that move things: one
// loads weights and patches, one residuals, one stores results.

#include <algorithm>

#include "ridge/gpu/sm90/conv/bottleneck.h"
#include "ridge/gpu/sm90/epilogue.h"
#include "ridge/gpu/sm90/launch.h"
#include "ridge/gpu/sm90/tensor_map.h"
#include "ridge/gpu/sm90/tile.h"

namespace ridge::gpu::sm90 {
namespace {

constexpr int taps = 9, panel = sm90_bottleneck_channels;
constexpr int most_panels = sm90_bottleneck_expanded / panel;
constexpr int pixel_bytes = panel * 2;
constexpr int moving_warps = 3;
constexpr std::size_t most_shared = sm90_shared_per_block;

template <class Element, int Warpgroups, int Boxes, bool Projects, bool Reduces>
struct Config {
  using T = Element;
  static constexpr int warpgroups = Warpgroups, boxes = Boxes;
  static constexpr bool projects = Projects, reduces = Reduces;
  static constexpr int pixels = warpgroups * warpgroup_rows;
  static constexpr int consumer_threads = warpgroups * warpgroup_threads;
  static constexpr int threads = consumer_threads + moving_warps * warp_threads;
  // The pixels of a patch: two rows or one of 58 pixels, and the two rows beside them.
  static constexpr int patch_pixels = warpgroups == 2 ? 232 : 176;
  using Weight = Tile<T, panel, panel>;
  using Box = Tile<T, pixels, panel>;
  // Where parts of the weights lie: of the convolution, and a panel's each of the others.
  static constexpr int expansion = taps, projection = expansion + most_panels;
  static constexpr int reduction = projection + (projects ? most_panels : 0);
  static constexpr int weights = reduction + (reduces ? most_panels : 0);
};

template <class C>
struct Shared {
  alignas(1024) unsigned char patch[C::patch_pixels * pixel_bytes];
  // Behind the patch: what lies beyond a patch is read, for pixels of the border.
  alignas(1024) unsigned char box[C::boxes][C::Box::bytes];
  alignas(1024) unsigned char weight[C::weights][C::Weight::bytes];
  alignas(1024) unsigned char projected[C::projects ? C::Box::bytes : 16];
  std::uint64_t patch_full, patch_empty, projected_full, projected_empty;
  std::uint64_t box_full[C::boxes], box_done[C::boxes], box_empty[C::boxes];
  std::uint64_t weight_full[C::weights];
};

struct Arguments {
  CUtensorMap x, residual, y, reduced;  // residual: or what is projected
  CUtensorMap weight, expansion, projection, reduction;
  const void *bias, *expansion_bias, *projection_bias, *reduction_bias;
  int width, rows, down;  // of a patch with its border; rows of a tile; tiles of an image
  int tiles, panels;
  int patch_bytes, box_bytes;
};

// Calls f(image, first row) for the tiles of this block.
template <class F>
__device__ void each_tile(const Arguments& a, const F& f) {
  for (int tile = static_cast<int>(blockIdx.x); tile < a.tiles; tile += static_cast<int>(gridDim.x))
    f(tile / a.down, tile % a.down * a.rows);
}

// Calls f(map, first column, first row, where in shared memory) for each part of the weights, in
// the order in which they are used first.
template <class C, class F>
__device__ void each_weight(const Arguments& a, const F& f) {
  for (int tap = 0; tap < taps; ++tap) f(&a.weight, tap * panel, 0, tap);
  for (int p = 0; p < a.panels; ++p) {
    f(&a.expansion, 0, p * panel, C::expansion + p);
    if constexpr (C::projects) f(&a.projection, 0, p * panel, C::projection + p);
    if constexpr (C::reduces) f(&a.reduction, p * panel, 0, C::reduction + p);
  }
}

template <class C>
__device__ void load_patches(Shared<C>& shared, const Arguments& a) {
  Ring<1> ring;
  bool first = true;
  each_tile(a, [&](int image, int row) {
    ptx::barrier_wait(&shared.patch_empty, ring.parity ^ 1);
    ptx::barrier_arrive_expect(&shared.patch_full, a.patch_bytes);
    ptx::load_box(shared.patch, &a.x, &shared.patch_full, 0, -1, row - 1, image);
    if (first)
      each_weight<C>(a, [&](const CUtensorMap* map, int column, int from, int at) {
        std::uint64_t* const loaded = &shared.weight_full[at];
        ptx::barrier_arrive_expect(loaded, C::Weight::bytes);
        ptx::load_box(shared.weight[at], map, loaded, column, from);
      });
    first = false;
    if constexpr (C::projects) {
      ptx::barrier_wait(&shared.projected_empty, ring.parity ^ 1);
      ptx::barrier_arrive_expect(&shared.projected_full, a.box_bytes);
      ptx::load_box(shared.projected, &a.residual, &shared.projected_full, 0, 0, row, image);
    }
    ring.advance();
  });
}

// Boxes whose results need no residual are handed on as they are.
template <class C>
__device__ void load_residuals(Shared<C>& shared, const Arguments& a) {
  Ring<C::boxes> ring;
  each_tile(a, [&](int image, int row) {
    for (int p = 0; p < a.panels + C::reduces; ++p, ring.advance()) {
      std::uint64_t* const full = &shared.box_full[ring.stage];
      ptx::barrier_wait(&shared.box_empty[ring.stage], ring.parity ^ 1);
      if (C::projects || p == a.panels) {
        ptx::barrier_arrive(full);
        continue;
      }
      ptx::barrier_arrive_expect(full, a.box_bytes);
      ptx::load_box(shared.box[ring.stage], &a.residual, full, p * panel, 0, row, image);
    }
  });
}

template <class C>
__device__ void store_results(Shared<C>& shared, const Arguments& a) {
  Ring<C::boxes> ring;
  const auto store = [&](const CUtensorMap* map, int channel, int row, int image) {
    ptx::barrier_wait(&shared.box_done[ring.stage], ring.parity);
    ptx::store_box(map, shared.box[ring.stage], channel, 0, row, image);
    ptx::store_commit();
    ptx::store_wait_read<0>();
    ptx::barrier_arrive(&shared.box_empty[ring.stage]);
    ring.advance();
  };
  each_tile(a, [&](int image, int row) {
    for (int p = 0; p < a.panels; ++p) store(&a.y, p * panel, row, image);
    if constexpr (C::reduces) store(&a.reduced, 0, row, image);
  });
  ptx::store_wait<0>();
}

// The thread's biases of 64 channels.
using Biases = float[panel / 4];

template <class C>
class Consumer {
 public:
  using T = typename C::T;
  using Weight = typename C::Weight;
  using Box = typename C::Box;
  // 64 pixels x 64 channels of a warpgroup: sums, and packed, as an operand.
  using Sums = float[panel / 2];
  using Packed = std::uint32_t[panel / 16][4];

  __device__ Consumer(Shared<C>& shared, const Arguments& a, int warpgroup)
      : shared_(shared), a_(a), warpgroup_(warpgroup) {}

  __device__ void run() {
    Biases bias;
    load_biases(a_.bias, 0, bias);
    each_tile(a_, [&](int, int) {
      Packed inner;
      convolve(bias, inner);
      if constexpr (C::projects) ptx::barrier_wait(&shared_.projected_full, tile_.parity);
      Sums reduced;
      for (int p = 0; p < a_.panels; ++p) {
        Packed y;
        expand(p, inner, y);
        if constexpr (C::reduces) multiply(y, C::reduction + p, reduced, p != 0, [] {});
      }
      if constexpr (C::projects) release(&shared_.projected_empty);
      if constexpr (C::reduces) {
        Biases of_reduction;
        load_biases(a_.reduction_bias, 0, of_reduction);
        Packed y;
        finish<false>(reduced, of_reduction, y);
      }
      first_ = false;
      tile_.advance();
    });
  }

 private:
  // A part of the weights, once it is there.
  __device__ std::uint32_t weight(int at) const {
    if (first_) ptx::barrier_wait(&shared_.weight_full[at], 0);
    return ptx::shared_address(shared_.weight[at]);
  }

  static __device__ void load_biases(const void* from, int channel, Biases& bias) {
#pragma unroll
    for (int j = 0; j < panel / 8; ++j) {
      const std::uint32_t word = __ldg(reinterpret_cast<const std::uint32_t*>(
          static_cast<const T*>(from) + channel + 8 * j + first_column()));
      bias[2 * j] = half_of_word<T>(word, 0);
      bias[2 * j + 1] = half_of_word<T>(word, 1);
    }
  }

  static __device__ float biased(const Sums& sums, const Biases& bias, int i) {
    return sums[i] + bias[i / 4 * 2 + i % 2];
  }

  __device__ void convolve(const Biases& bias, Packed& inner) {
    const std::uint32_t pixels =
        ptx::shared_address(shared_.patch) + warpgroup_ * warpgroup_rows * pixel_bytes;
    Sums sums;
    ptx::barrier_wait(&shared_.patch_full, tile_.parity);
#pragma unroll
    for (int tap = 0; tap < taps; ++tap) {
      const std::uint32_t with = weight(tap);
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < panel / 16; ++step)
        ptx::wgmma<T, panel, false, false>(
            sums,
            ptx::operand<pixel_bytes>(pixels + (tap / 3 * a_.width + tap % 3) * pixel_bytes +
                                      step * 32),
            Weight::along_columns(with, step), tap != 0 || step != 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::pin(sums);
    release(&shared_.patch_empty);
#pragma unroll
    for (int i = 0; i < panel / 2; i += 2)
      inner[i / 8][i / 2 % 4] =
          relu_of_word<T>(ptx::pack<T>(biased(sums, bias, i), biased(sums, bias, i + 1)));
  }

  // sums (+)= x times a part of the weights, and what further products, more(), add to them.
  template <class F>
  __device__ void multiply(Packed& x, int part, Sums& sums, bool adds, const F& more) {
    const std::uint32_t with = weight(part);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < panel / 16; ++step)
      ptx::wgmma<T, panel, false>(sums, x[step], Weight::along_columns(with, step),
                                  adds || step != 0);
    more();
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::pin(sums);
#pragma unroll
    for (int step = 0; step < panel / 16; ++step) ptx::pin(x[step]);
  }

  __device__ void expand(int p, Packed& inner, Packed& y) {
    Biases bias;
    load_biases(a_.expansion_bias, p * panel, bias);
    Sums sums;
    if constexpr (C::projects) {
      Biases also;
      load_biases(a_.projection_bias, p * panel, also);
#pragma unroll
      for (int i = 0; i < panel / 4; ++i) bias[i] += also[i];
      const std::uint32_t image = ptx::shared_address(shared_.projected);
      const std::uint32_t with = weight(C::projection + p);
      multiply(inner, C::expansion + p, sums, false, [&] {
#pragma unroll
        for (int step = 0; step < panel / 16; ++step)
          ptx::wgmma<T, panel, false, false>(
              sums, Box::along_columns(image, step, warpgroup_ * warpgroup_rows),
              Weight::along_columns(with, step), true);
      });
    } else {
      multiply(inner, C::expansion + p, sums, false, [] {});
    }
    finish<!C::projects>(sums, bias, y);
  }

  // Leaves relu of the sums with bias and, where the box has one, residual in the box, and in y.
  template <bool HasResidual>
  __device__ void finish(const Sums& sums, const Biases& bias, Packed& y) {
    const std::uint32_t box = ptx::shared_address(shared_.box[box_.stage]);
    const int lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads;
    const int own_row = warpgroup_ * warpgroup_rows + first_row();
    ptx::barrier_wait(&shared_.box_full[box_.stage], box_.parity);
#pragma unroll
    for (int step = 0; step < panel / 16; ++step) {
      std::uint32_t words[4] = {};
      if constexpr (HasResidual) {
#pragma unroll
        for (int w = 0; w < 4; ++w)
          words[w] = ptx::load_word(Box::chunk(box, own_row + 8 * (w % 2), 2 * step + w / 2) +
                                    2 * first_column());
        __syncwarp();  // other lanes write where these words were
      }
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int i = 8 * step + 2 * w;
        y[step][w] =
            relu_of_word<T>(ptx::pack<T>(biased(sums, bias, i) + half_of_word<T>(words[w], 0),
                                         biased(sums, bias, i + 1) + half_of_word<T>(words[w], 1)));
      }
      ptx::store_matrices(Box::chunk(box, warp * 16 + (lane & 15), 2 * step + (lane >> 4)),
                          y[step][0], y[step][1], y[step][2], y[step][3]);
    }
    ptx::fence_shared_for_async();
    release(&shared_.box_done[box_.stage]);
    box_.advance();
  }

  Shared<C>& shared_;
  const Arguments& a_;
  const int warpgroup_;
  Ring<1> tile_;
  Ring<C::boxes> box_;
  bool first_ = true;  // tile
};

template <class C>
__global__ void __launch_bounds__(C::threads, 1)
    bottleneck_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<C>*>(memory);
  constexpr int releases = C::consumer_threads / warp_threads * warp_releases;
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / warp_threads, 0);
  const int mover = warp - C::consumer_threads / warp_threads;
  if (threadIdx.x == 0) {
    for (std::uint64_t* const full : {&shared.patch_full, &shared.projected_full})
      ptx::barrier_init(full, 1);
    for (std::uint64_t* const empty : {&shared.patch_empty, &shared.projected_empty})
      ptx::barrier_init(empty, releases);
    for (int i = 0; i < C::boxes; ++i) {
      ptx::barrier_init(&shared.box_full[i], 1);
      ptx::barrier_init(&shared.box_done[i], releases);
      ptx::barrier_init(&shared.box_empty[i], 1);
    }
    for (int i = 0; i < C::weights; ++i) ptx::barrier_init(&shared.weight_full[i], 1);
    ptx::barrier_init_fence();
    ptx::prefetch_map(&a.x);
    ptx::prefetch_map(&a.residual);
    ptx::prefetch_map(&a.y);
    ptx::prefetch_map(&a.weight);
    ptx::prefetch_map(&a.expansion);
    if constexpr (C::projects) ptx::prefetch_map(&a.projection);
    if constexpr (C::reduces) {
      ptx::prefetch_map(&a.reduced);
      ptx::prefetch_map(&a.reduction);
    }
  }
  // Blocks share out what all need of the weights, which no image has to wait for. Only as far as
  // the L2 cache: should the kernel before have yet to write one, what is loaded later is right.
  if (mover == 0 && ptx::elect_one())
    each_weight<C>(a, [&](const CUtensorMap* map, int column, int row, int at) {
      if (at % gridDim.x == blockIdx.x) ptx::prefetch_box(map, column, row);
    });
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  if (mover < 0) return Consumer<C>(shared, a, warp / 4).run();
  if (!ptx::elect_one()) return;
  if (mover == 0) return load_patches(shared, a);
  if (mover == 1) return load_residuals(shared, a);
  store_results(shared, a);
}

// How an image is cut into tiles of so many pixels.
struct Cut {
  int width, rows, down;

  Cut(const ImageShape& x, int pixels, int patch_pixels)
      : width(static_cast<int>(x.w) + 2),
        rows(static_cast<int>(
            std::min<std::int64_t>({x.h, pixels / width, patch_pixels / width - 2}))),
        down(rows < 1 ? 0 : (static_cast<int>(x.h) + rows - 1) / rows) {}
};

template <class C>
Cut cut_of(const ImageShape& x) {
  return Cut(x, C::pixels, C::patch_pixels);
}

template <class C>
void run(const BottleneckProblem& p, const BottleneckPointers& o, int multiprocessors,
         cudaStream_t stream) {
  const Cut cut = cut_of<C>(p.x);
  const int panels = static_cast<int>(p.expanded) / panel;
  const auto image = [&](const void* base, std::int64_t channels, int rows) {
    return box_map(base, {channels, p.x.w, p.x.h, p.x.n}, {panel, cut.width, rows, 1});
  };
  const auto matrix = [](const void* base, std::int64_t columns, std::int64_t rows) {
    return box_map(base, {columns, rows}, {panel, panel});
  };
  Arguments a{};
  a.x = image(o.x, panel, cut.rows + 2);
  a.residual = image(o.residual, C::projects ? panel : p.expanded, cut.rows);
  a.y = image(o.y, p.expanded, cut.rows);
  a.weight = matrix(o.weight, taps * panel, panel);
  a.expansion = matrix(o.expansion, panel, p.expanded);
  a.bias = o.bias;
  a.expansion_bias = o.expansion_bias;
  if (C::projects) {
    a.projection = matrix(o.projection, panel, p.expanded);
    a.projection_bias = o.projection_bias;
  }
  if (C::reduces) {
    a.reduced = image(o.reduced, panel, cut.rows);
    a.reduction = matrix(o.reduction, p.expanded, panel);
    a.reduction_bias = o.reduction_bias;
  }
  a.width = cut.width;
  a.rows = cut.rows;
  a.down = cut.down;
  a.tiles = static_cast<int>(p.x.n) * cut.down;
  a.panels = panels;
  a.patch_bytes = (cut.rows + 2) * cut.width * pixel_bytes;
  a.box_bytes = cut.rows * cut.width * pixel_bytes;
  constexpr std::size_t bytes = sizeof(Shared<C>);
  static_assert(bytes <= most_shared);
  const auto kernel = bottleneck_kernel<C>;
  allow_shared_memory(kernel, bytes);
  launch_early(kernel, dim3(static_cast<unsigned>(std::min(a.tiles, multiprocessors))), C::threads,
               bytes, stream, a);
  check(last_error(), "a bottleneck");
}

// As many boxes as there is room for. With a projection and a reduction there is none for large
// tiles.
template <class T, bool Projects, bool Reduces>
using Large = Config<T, 2,
                     Reduces    ? 3
                     : Projects ? 2
                                : 5,
                     Projects, Reduces>;
template <class T, bool Projects, bool Reduces>
using Small = Config<T, 1, Projects ? 3 : 5, Projects, Reduces>;

// Whether enough of what is computed is of use.
template <class C>
bool fills_tiles(const ImageShape& x) {
  const Cut cut = cut_of<C>(x);
  return cut.down > 0 && 5 * x.pixels() >= 3 * static_cast<std::int64_t>(cut.down) * C::pixels;
}

}  // namespace

bool bottleneck_fits(const BottleneckProblem& p, BottleneckTiles tiles) {
  if (p.size != 3 || p.x.c != panel || p.inner != panel || p.expanded % panel != 0 ||
      p.expanded > most_panels * panel || (p.reduced != 0 && p.reduced != panel) ||
      (p.projected != 0 && p.projected != panel))
    return false;
  using Element = Float16;
  if (tiles == BottleneckTiles::small) return fills_tiles<Small<Element, false, false>>(p.x);
  return fills_tiles<Large<Element, false, false>>(p.x) && (p.projected == 0 || p.reduced == 0);
}

std::int64_t bottleneck_tiles(const BottleneckProblem& p) {
  return p.x.n * cut_of<Large<Float16, false, false>>(p.x).down;
}

void bottleneck(const BottleneckProblem& p, BottleneckTiles tiles, const BottleneckPointers& o,
                int multiprocessors, Stream stream) {
  dispatch_16_bit(p.dtype, [&]<class T>() {
    const auto call = [&]<bool Projects, bool Reduces>() {
      if (tiles == BottleneckTiles::small)
        run<Small<T, Projects, Reduces>>(p, o, multiprocessors, stream);
      else if constexpr (!Projects || !Reduces)
        run<Large<T, Projects, Reduces>>(p, o, multiprocessors, stream);
    };
    if (p.projected > 0 && p.reduced > 0) return call.template operator()<true, true>();
    if (p.projected > 0) return call.template operator()<true, false>();
    if (p.reduced > 0) return call.template operator()<false, true>();
    call.template operator()<false, false>();
  });
}

}  // namespace ridge::gpu::sm90
