// Linear layers with their bias, residual and activation in the product's epilogue.

#include "ridge/gpu/sm90/epilogue.h"
#include "ridge/gpu/sm90/product/product_kernel.h"
#include "ridge/gpu/sm90/product/products.h"

namespace ridge::gpu::sm90 {
namespace {

// Calls function(f) with the activation's function f, for results of T. Around loops over elements,
// not within: the same for all of a kernel, it costs a jump then.
template <class T, class F>
__device__ void with_activation(Epilogue activation, const F& function) {
  switch (activation) {
    case Epilogue::none:
      return function([](float x) { return x; });
    case Epilogue::relu:
      return function(ReluOf());
    case Epilogue::relu6:
      return function(Relu6Of());
    case Epilogue::silu:
      return function(ShortSilu());
    case Epilogue::hard_swish:
      return function(HardSwishOf());
    case Epilogue::gelu:
      return function(ShortGelu<T>());
  }
}

// y = activation(product + bias + residual). The residual's boxes come through the slots while the
// tile is multiplied, and y leaves from the same place.
template <class Config, bool WithResidual>
class WriteLinear {
  using Element = typename Config::Element;

 public:
  struct Arguments {
    CUtensorMap y, residual;
    const Element* bias;  // may be null
    int n;
    Epilogue activation;
  };
  // The boxes of a tile, and for how many the residual is loaded ahead.
  __device__ static constexpr int parts() { return Config::blocks * Config::panels; }
  __device__ static constexpr int ahead() {
    return parts() < Config::slots ? parts() : Config::slots;
  }

  __device__ static int b_start(const Arguments&, int tile, int box) {
    return tile * Config::columns + box * box_extent;
  }
  __device__ WriteLinear(ProductShared<Config>& shared, const Arguments& out, int warpgroup)
      : shared_(shared), writer_(shared, warpgroup), out_(out), warpgroup_(warpgroup) {}

  __device__ void begin(int row, int tile) {
    stage_bias(tile);
    if constexpr (WithResidual) {
      if (!leads_warp()) return;
      ptx::store_wait_read<0>();
#pragma unroll
      for (int part = 0; part < ahead(); ++part) load_residual(part, row, tile);
    }
  }

  __device__ void write(const typename Config::Accumulators& d, int row, int tile) {
    with_activation<Element>(out_.activation, [&](const auto& activation) {
#pragma unroll
      for (int panel = 0; panel < Config::panels; ++panel) {
        const auto bias = [&](int j) { return bias_[32 * panel + 4 * j + first_column() / 2]; };
        if constexpr (WithResidual) {
#pragma unroll
          for (int i = 0; i < Config::blocks; ++i)
            add_residual([&](int at) { return d[i][32 * panel + at]; }, bias, activation,
                         panel * Config::blocks + i, row, tile);
        } else {
          write_boxes([&](int i, int at) { return d[i][32 * panel + at]; }, bias, activation, panel,
                      row, tile);
        }
      }
    });
  }

 private:
  __device__ static bool leads_warp() { return threadIdx.x % warp_threads == 0; }
  __device__ static int warp() { return threadIdx.x / warp_threads % 4; }
  // The warp's rows of a slot.
  __device__ unsigned char* slot(int i) const {
    return shared_.slots[warpgroup_][i] + warp() * (Box::bytes / warpgroup_warps);
  }
  __device__ static int row_of(int part, int row) {
    return row + part % Config::blocks * box_extent;
  }
  __device__ int column_of(int part, int tile) const {
    return b_start(out_, tile, part / Config::blocks);
  }

  // Stages a tile's bias while the other warpgroup multiplies. Whoever writes the other of the
  // two places next has read this one.
  __device__ void stage_bias(int tile) {
    turn_ ^= 1;
    std::uint32_t* const to = shared_.pairs[warpgroup_][turn_];
    const int pair = static_cast<int>(threadIdx.x) % warpgroup_threads;
    const int column = b_start(out_, tile, 0) + 2 * pair;
    if (pair < Config::columns / 2)
      to[pair] = out_.bias != nullptr && column < out_.n
                     ? __ldg(reinterpret_cast<const std::uint32_t*>(out_.bias + column))
                     : 0;
    ptx::named_sync(1 + consumers + warpgroup_, warpgroup_threads);
    bias_ = to;
  }

  __device__ void load_residual(int part, int row, int tile) {
    const int at = part % ahead();
    std::uint64_t* const full = &shared_.side[warpgroup_][at][warp()];
    ptx::barrier_arrive_expect(full, Box::bytes / warpgroup_warps);
    ptx::load_box(slot(at), &out_.residual, full, column_of(part, tile),
                  row_of(part, row) + warp() * warp_rows);
  }

  template <class Sums, class Bias, class F>
  __device__ void write_boxes(const Sums& sum, const Bias& bias_of, const F& activation, int panel,
                              int row, int tile) {
    std::uint32_t bias[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) bias[j] = bias_of(j);
    writer_.template write<Config::blocks>(
        &out_.y,
        [&](int i) {
          const int part = panel * Config::blocks + i;
          return BoxPlace{row_of(part, row), column_of(part, tile)};
        },
        [&](int i, int j, int half) {
          const auto result = [&](int e) {
            return activation(sum(i, 4 * j + 2 * half + e) + half_of_word<Element>(bias[j], e));
          };
          return ptx::pack<Element>(result(0), result(1));
        });
  }

  template <class Sums, class Bias, class F>
  __device__ void add_residual(const Sums& sum, const Bias& bias_of, const F& activation, int part,
                               int row, int tile) {
    const int own = part % ahead();
    const std::uint32_t box = ptx::shared_address(slot(own));
    ptx::barrier_wait(&shared_.side[warpgroup_][own][warp()], parity_ >> own & 1);
    parity_ ^= 1u << own;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const std::uint32_t bias = bias_of(j);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int within = static_cast<int>(threadIdx.x) % warp_threads / 4 + 8 * half;
        const std::uint32_t at = Box::chunk(box, within, j) + 2 * first_column();
        const std::uint32_t residual = ptx::load_word(at);
        const auto result = [&](int e) {
          return activation(sum(4 * j + 2 * half + e) + half_of_word<Element>(bias, e) +
                            half_of_word<Element>(residual, e));
        };
        ptx::store_word(at, ptx::pack<Element>(result(0), result(1)));
      }
    }
    ptx::fence_shared_for_async();
    __syncwarp();
    if (!leads_warp()) return;
    ptx::store_box(&out_.y, slot(own), column_of(part, tile),
                   row_of(part, row) + warp() * warp_rows);
    ptx::store_commit();
    if (part + ahead() >= parts()) return;
    ptx::store_wait_read<0>();
    load_residual(part + ahead(), row, tile);
  }

  ProductShared<Config>& shared_;
  BoxWriter<Config> writer_;
  const Arguments& out_;
  const int warpgroup_;
  std::uint32_t parity_ = 0;  // of each slot's round, a bit for each
  int turn_ = 0;
  const std::uint32_t* bias_ = nullptr;  // of the tile
};

struct Operands {
  const void *x, *weight, *bias, *residual;
  void* y;
};

template <class Config, bool WithResidual>
void run(const LinearProduct& s, const Operands& o, int multiprocessors, cudaStream_t stream) {
  using Epilogue = WriteLinear<Config, WithResidual>;
  const auto map = [&](const void* base) { return matrix_map(base, s.m, s.n, warp_rows); };
  const CUtensorMap y = map(o.y);
  const typename Epilogue::Arguments out{y, WithResidual ? map(o.residual) : y,
                                         static_cast<const typename Config::Element*>(o.bias),
                                         static_cast<int>(s.n), s.epilogue};
  launch_product<Config, Stored<false, true>, Epilogue>(
      matrix_map(o.x, s.m, s.k), matrix_map(o.weight, s.n, s.k), out,
      TileOrder::of<Config>(s.m, s.n, s.k, Config::columns), multiprocessors, stream);
}

// The most stages that leave the slots: for up to four of the residual's boxes, or for two to write
// by turns.
template <class T, int Columns, Pairs Neighbors>
void run(const LinearProduct& s, const Operands& o, int multiprocessors, cudaStream_t stream) {
  constexpr int boxes = Columns / 64;  // of b in a stage
  constexpr int residual_slots = std::min(2 * boxes, 4);
  constexpr int budget = 28;  // boxes of 8 KiB that fit into shared memory beside the barriers
  const auto run_with = [&]<int Slots, bool WithResidual>() {
    constexpr int stages = (budget - consumers * Slots) / (2 + boxes);
    run<ProductConfig<stages, Slots, T, Columns, Neighbors>, WithResidual>(s, o, multiprocessors,
                                                                           stream);
  };
  if (o.residual)
    run_with.template operator()<residual_slots, true>();
  else
    run_with.template operator()<2, false>();
}

template <class T>
void run(const LinearProduct& s, const LinearTiles& tiles, const Operands& o, int multiprocessors,
         cudaStream_t stream) {
  if (tiles.columns == 192) return run<T, 192, Pairs::along_n>(s, o, multiprocessors, stream);
  if (tiles.columns == 64) return run<T, 64, Pairs::along_m>(s, o, multiprocessors, stream);
  if (tiles.side_by_side) return run<T, 128, Pairs::along_n>(s, o, multiprocessors, stream);
  return run<T, 128, Pairs::along_m>(s, o, multiprocessors, stream);
}

}  // namespace

void linear_product(const LinearProduct& shape, const LinearTiles& tiles, const void* x,
                    const void* weight, const void* bias, const void* residual, void* y,
                    int multiprocessors, cudaStream_t stream) {
  const Operands operands{x, weight, bias, residual, y};
  dispatch_16_bit(shape.dtype,
                  [&]<class T>() { run<T>(shape, tiles, operands, multiprocessors, stream); });
}

}  // namespace ridge::gpu::sm90
