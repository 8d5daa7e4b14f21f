#include "ridge/gpu/sm90/product/product_kernel.h"
#include "ridge/gpu/sm90/product/products.h"

namespace ridge::gpu::sm90 {
namespace {

// c in the operands' type, by the copy engine.
template <class Config>
class Write16Bit {
 public:
  struct Arguments {
    CUtensorMap c;
  };
  __device__ static int b_start(const Arguments&, int tile, int box) {
    return tile * Config::columns + box * box_extent;
  }
  __device__ Write16Bit(ProductShared<Config>& shared, const Arguments& out, int warpgroup)
      : writer_(shared, warpgroup), out_(out) {}
  __device__ void begin(int, int) {}
  __device__ void write(const typename Config::Accumulators& d, int row, int tile) {
#pragma unroll
    for (int panel = 0; panel < Config::panels; ++panel)
      writer_.template write<Config::blocks>(
          &out_.c,
          [&](int i) {
            return BoxPlace{row + i * box_extent, b_start(out_, tile, panel)};
          },
          [&](int i, int j, int half) {
            const int at = 32 * panel + 4 * j + 2 * half;
            return ptx::pack<typename Config::Element>(d[i][at], d[i][at + 1]);
          });
  }

 private:
  BoxWriter<Config> writer_;
  const Arguments& out_;
};

// c in f32, times the operands' scales if there are any, from registers: a quarter of a warp writes
// 32 bytes of a row.
template <class Config>
class WriteF32 {
 public:
  struct Arguments {
    float* c;
    int m, n;
    OperandScales scales;
  };
  __device__ static int b_start(const Arguments&, int tile, int box) {
    return tile * Config::columns + box * box_extent;
  }
  __device__ WriteF32(ProductShared<Config>&, const Arguments& out, int) : out_(out) {}
  __device__ void begin(int, int) {}
  __device__ void write(const typename Config::Accumulators& d, int row, int tile) {
    const int column = b_start(out_, tile, 0) + first_column();
    const float factor = out_.scales.a ? *out_.scales.a * *out_.scales.b : 1.0f;
#pragma unroll
    for (int i = 0; i < Config::blocks; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row + i * warpgroup_rows + first_row() + 8 * half;
        if (r >= out_.m) continue;
        float* c = out_.c + static_cast<std::int64_t>(r) * out_.n + column;
#pragma unroll
        for (int j = 0; j < Config::columns / 8; ++j)
          if (column + 8 * j < out_.n)
            *reinterpret_cast<float2*>(c + 8 * j) =
                make_float2(d[i][4 * j + 2 * half] * factor, d[i][4 * j + 2 * half + 1] * factor);
      }
  }

 private:
  const Arguments& out_;
};

template <class T, class Layout>
void run(const ProductShape& s, const void* a, const void* b, void* c, OperandScales scales,
         int multiprocessors, cudaStream_t stream) {
  using Config = ProductConfig<6, 2, T>;  // the most stages that leave two slots
  const CUtensorMap a_map = Layout::trans_a ? matrix_map(a, s.k, s.m) : matrix_map(a, s.m, s.k);
  const CUtensorMap b_map = Layout::trans_b ? matrix_map(b, s.n, s.k) : matrix_map(b, s.k, s.n);
  const TileOrder order = TileOrder::of<Config>(s.m, s.n, s.k, Config::columns);
  if (s.out == DType::f32)
    launch_product<Config, Layout, WriteF32<Config>>(
        a_map, b_map,
        {static_cast<float*>(c), static_cast<int>(s.m), static_cast<int>(s.n), scales}, order,
        multiprocessors, stream);
  else
    launch_product<Config, Layout, Write16Bit<Config>>(
        a_map, b_map, {matrix_map(c, s.m, s.n, warp_rows)}, order, multiprocessors, stream);
}

}  // namespace

void product(const ProductShape& s, const void* a, const void* b, void* c, OperandScales scales,
             int multiprocessors, cudaStream_t stream) {
  dispatch_16_bit(s.in, [&]<class T>() {
    dispatch_stored(s.trans_a, s.trans_b, [&]<class Layout>() {
      run<T, Layout>(s, a, b, c, scales, multiprocessors, stream);
    });
  });
}

}  // namespace ridge::gpu::sm90
