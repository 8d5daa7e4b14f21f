#include "ridge/gpu/kernels/activation.h"
#include "ridge/gpu/sm90/product/product_kernel.h"
#include "ridge/gpu/sm90/product/products.h"

namespace ridge::gpu::sm90 {
namespace {

template <class T>
__device__ float low(std::uint32_t word) {
  return half_of_word<T>(word, 0);
}
template <class T>
__device__ float high(std::uint32_t word) {
  return half_of_word<T>(word, 1);
}

// Gate and up, whose columns are the left and the right half of a tile, and the result of SwiGLU.
template <class Config>
class WriteSwiGlu {
  using T = typename Config::Element;

 public:
  struct Arguments {
    CUtensorMap packed, y;
    int intermediate;
  };
  static constexpr int panels = Config::panels / 2;
  static constexpr int tile_columns = Config::columns / 2;

  __device__ static int b_start(const Arguments& out, int tile, int box) {
    const int column = tile * tile_columns + box % panels * box_extent;
    return box < panels ? column : out.intermediate + column;
  }
  __device__ WriteSwiGlu(ProductShared<Config>& shared, const Arguments& out, int warpgroup)
      : writer_(shared, warpgroup), out_(out) {}
  __device__ void begin(int, int) {}
  __device__ void write(const typename Config::Accumulators& d, int row, int tile) {
#pragma unroll
    for (int i = 0; i < Config::blocks; ++i)
#pragma unroll
      for (int panel = 0; panel < panels; ++panel) {
        const int column = b_start(out_, tile, panel), r = row + i * box_extent;
        if (column >= out_.intermediate) continue;  // what follows the gates are not gates
        const auto part = [&](int first, int j, int half) {
          const int at = 32 * first + 4 * j + 2 * half;
          return ptx::pack<T>(d[i][at], d[i][at + 1]);
        };
        const auto gate = [&](int j, int half) { return part(panel, j, half); };
        const auto up = [&](int j, int half) { return part(panels + panel, j, half); };
        const auto write = [&](const CUtensorMap* map, int to, const auto& word) {
          writer_.template write<1>(
              map,
              [&](int) {
                return BoxPlace{r, to};
              },
              [&](int, int j, int half) { return word(j, half); });
        };
        write(&out_.packed, column, gate);
        write(&out_.packed, out_.intermediate + column, up);
        // From the rounded values, which the gradient will see.
        write(&out_.y, column, [&](int j, int half) {
          const std::uint32_t g = gate(j, half), u = up(j, half);
          return ptx::pack<T>(low<T>(g) * sigmoid(low<T>(g)) * low<T>(u),
                              high<T>(g) * sigmoid(high<T>(g)) * high<T>(u));
        });
      }
  }

 private:
  BoxWriter<Config> writer_;
  const Arguments& out_;
};

// The gradient of SwiGLU from that of its result, which the accumulators hold. Gate and up come
// through the slots, two boxes at a time, while the tile is multiplied, and the gradients leave
// from the same place.
template <class Config, bool WithResult>
class WriteSwiGluGrad {
  using T = typename Config::Element;

 public:
  struct Arguments {
    CUtensorMap packed, dpacked, y;
    int intermediate;
  };
  static constexpr int parts = Config::blocks * Config::panels;   // boxes of the tile
  static constexpr int pairs = (Config::slots - WithResult) / 2;  // of slots: for gate and for up
  static_assert(pairs >= 1 && pairs <= parts);

  __device__ static int b_start(const Arguments&, int tile, int box) {
    return tile * Config::columns + box * box_extent;
  }
  __device__ WriteSwiGluGrad(ProductShared<Config>& shared, const Arguments& out, int warpgroup)
      : shared_(shared), out_(out), warpgroup_(warpgroup) {}

  __device__ void begin(int row, int tile) {
    if (!leads()) return;
    ptx::store_wait_read<0>();
#pragma unroll
    for (int part = 0; part < pairs; ++part) load(part, row, tile);
  }

  __device__ void write(const typename Config::Accumulators& d, int row, int tile) {
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const int pair = part % pairs;
      if constexpr (WithResult) sync();  // the slot of y has been read
      ptx::barrier_wait(shared_.side[warpgroup_][pair], parity_ >> pair & 1);
      parity_ ^= 1 << pair;
      const float(&dy)[Config::columns / 2] = d[part % Config::blocks];
      transform(dy, 32 * (part / Config::blocks), pair);
      ptx::fence_shared_for_async();
      sync();
      if (!leads()) continue;
      store(part, row, tile);
      if (WithResult || part + pairs < parts) ptx::store_wait_read<0>();
      if (part + pairs < parts) load(part + pairs, row, tile);
    }
  }

 private:
  __device__ bool leads() const { return threadIdx.x % warpgroup_threads == 0; }
  __device__ void sync() const { ptx::named_sync(1 + consumers + warpgroup_, warpgroup_threads); }
  __device__ unsigned char* slot(int i) const { return shared_.slots[warpgroup_][i]; }
  __device__ static int row_of(int part, int row) {
    return row + part % Config::blocks * box_extent;
  }
  __device__ int column_of(int part, int tile) const {
    return b_start(out_, tile, part / Config::blocks);
  }

  __device__ void load(int part, int row, int tile) {
    const int pair = part % pairs, r = row_of(part, row), column = column_of(part, tile);
    std::uint64_t* full = shared_.side[warpgroup_][pair];
    ptx::barrier_arrive_expect(full, 2 * Box::bytes);
    ptx::stream_in_box(slot(2 * pair), &out_.packed, full, column, r);
    ptx::stream_in_box(slot(2 * pair + 1), &out_.packed, full, out_.intermediate + column, r);
  }

  __device__ void store(int part, int row, int tile) {
    const int pair = part % pairs, r = row_of(part, row), column = column_of(part, tile);
    if (column >= out_.intermediate) return;
    ptx::stream_out_box(&out_.dpacked, slot(2 * pair), column, r);
    ptx::stream_out_box(&out_.dpacked, slot(2 * pair + 1), out_.intermediate + column, r);
    if constexpr (WithResult) ptx::stream_out_box(&out_.y, slot(2 * pairs), column, r);
    ptx::store_commit();
  }

  // 64 columns of dy, from accumulator `first` on, and a pair of slots: gradients over gate and up.
  // All are read before the first is needed: a warp has nobody to wait beside.
  template <int Count>
  __device__ void transform(const float (&dy)[Count], int first, int pair) {
    constexpr int words = Box::elements / warpgroup_threads / 2;
    const std::uint32_t gates = ptx::shared_address(slot(2 * pair));
    const std::uint32_t ups = ptx::shared_address(slot(2 * pair + 1));
    const auto at = [](int w) {
      return Box::chunk(0, first_row() + 8 * (w % 2), w / 2) + 2 * first_column();
    };
    std::uint32_t gate[words], up[words], y[words];
#pragma unroll
    for (int w = 0; w < words; ++w) {
      gate[w] = ptx::load_word(gates + at(w));
      up[w] = ptx::load_word(ups + at(w));
    }
#pragma unroll
    for (int w = 0; w < words; ++w) {
      const Gradients a = gradients(dy[first + 2 * w], low<T>(gate[w]), low<T>(up[w]));
      const Gradients b = gradients(dy[first + 2 * w + 1], high<T>(gate[w]), high<T>(up[w]));
      gate[w] = ptx::pack<T>(a.gate, b.gate);
      up[w] = ptx::pack<T>(a.up, b.up);
      y[w] = ptx::pack<T>(a.y, b.y);
    }
#pragma unroll
    for (int w = 0; w < words; ++w) {
      ptx::store_word(gates + at(w), gate[w]);
      ptx::store_word(ups + at(w), up[w]);
      if constexpr (WithResult) ptx::store_word(ptx::shared_address(slot(2 * pairs)) + at(w), y[w]);
    }
  }

  struct Gradients {
    float gate, up, y;
  };
  __device__ static Gradients gradients(float dy, float gate, float up) {
    const float s = sigmoid(gate), silu = gate * s;
    return {dy * up * (s + silu * (1.0f - s)), dy * silu, silu * up};
  }

  ProductShared<Config>& shared_;
  const Arguments& out_;
  const int warpgroup_;
  std::uint32_t parity_ = 0;  // a bit for each pair
};

template <class Config, bool WithResult>
void backward(const GateProduct& s, const void* g, const void* weight, const void* packed,
              void* dpacked, void* y, int multiprocessors, cudaStream_t stream) {
  const auto order = TileOrder::of<Config>(s.m, s.intermediate, s.k, Config::columns);
  const CUtensorMap to = matrix_map(dpacked, s.m, 2 * s.intermediate);
  launch_product<Config, Stored<false, false>, WriteSwiGluGrad<Config, WithResult>>(
      matrix_map(g, s.m, s.k), matrix_map(weight, s.k, s.intermediate),
      {matrix_map(packed, s.m, 2 * s.intermediate), to,
       WithResult ? matrix_map(y, s.m, s.intermediate) : to, static_cast<int>(s.intermediate)},
      order, multiprocessors, stream);
}

}  // namespace

void swiglu_product(const GateProduct& s, const void* x, const void* weight, void* packed, void* y,
                    int multiprocessors, cudaStream_t stream) {
  dispatch_16_bit(s.dtype, [&]<class T>() {
    using Config = ProductConfig<5, 4, T>;
    using Epilogue = WriteSwiGlu<Config>;
    const auto order = TileOrder::of<Config>(s.m, s.intermediate, s.k, Epilogue::tile_columns);
    launch_product<Config, Stored<false, true>, Epilogue>(
        matrix_map(x, s.m, s.k), matrix_map(weight, 2 * s.intermediate, s.k),
        {matrix_map(packed, s.m, 2 * s.intermediate, warp_rows),
         matrix_map(y, s.m, s.intermediate, warp_rows), static_cast<int>(s.intermediate)},
        order, multiprocessors, stream);
  });
}

void swiglu_grad_product(GradBuffers buffers, const GateProduct& s, const void* g,
                         const void* weight, const void* packed, void* dpacked, void* y,
                         int multiprocessors, cudaStream_t stream) {
  const auto run = [&]<class Config, bool WithResult>() {
    backward<Config, WithResult>(s, g, weight, packed, dpacked, y, multiprocessors, stream);
  };
  const bool ahead = buffers == GradBuffers::more_ahead;
  dispatch_16_bit(s.dtype, [&]<class T>() {
    if (y && ahead)
      run.template operator()<ProductConfig<4, 5, T>, true>();
    else if (y)
      run.template operator()<ProductConfig<5, 3, T>, true>();
    else if (ahead)
      run.template operator()<ProductConfig<5, 4, T>, false>();
    else
      run.template operator()<ProductConfig<6, 2, T>, false>();
  });
}

}  // namespace ridge::gpu::sm90
