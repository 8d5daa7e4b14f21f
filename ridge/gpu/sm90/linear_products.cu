// Linear layers with their bias, residual and activation in the product's epilogue.

#include "ridge/gpu/sm90/epilogue.h"
#include "ridge/gpu/sm90/product_kernel.h"
#include "ridge/gpu/sm90/products.h"

namespace ridge::gpu::sm90 {
namespace {

// Calls function(f) with the activation's function f. Around loops over elements, not within: the
// same for all of a kernel, it costs a jump then.
template <class F>
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
      return function(ShortGelu());
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
    if constexpr (WithResidual) {
      if (!writer_.leads()) return;
      ptx::store_wait_read<0>();
#pragma unroll
      for (int part = 0; part < ahead(); ++part) load_residual(part, row, tile);
    }
  }

  __device__ void write(const typename Config::Accumulators& d, int row, int tile) {
    with_activation(out_.activation, [&](const auto& activation) {
#pragma unroll
      for (int panel = 0; panel < Config::panels; ++panel) {
        std::uint32_t bias[8];
        load_bias(bias, b_start(out_, tile, panel));
#pragma unroll
        for (int i = 0; i < Config::blocks; ++i) {
          const int part = panel * Config::blocks + i;
          const auto sum = [&](int at) { return d[i][32 * panel + at]; };
          if constexpr (WithResidual)
            add_residual(sum, bias, activation, part, row, tile);
          else
            writer_.write(&out_.y, row_of(part, row), column_of(part, tile), [&](int j, int half) {
              const int at = 4 * j + 2 * half;
              return ptx::pack<Element>(
                  activation(sum(at) + half_of_word<Element>(bias[j], 0)),
                  activation(sum(at + 1) + half_of_word<Element>(bias[j], 1)));
            });
        }
      }
    });
  }

 private:
  __device__ unsigned char* slot(int i) const { return shared_.slots[warpgroup_][i]; }
  __device__ static int row_of(int part, int row) {
    return row + part % Config::blocks * box_extent;
  }
  __device__ int column_of(int part, int tile) const {
    return b_start(out_, tile, part / Config::blocks);
  }

  __device__ void load_residual(int part, int row, int tile) {
    const int at = part % ahead();
    std::uint64_t* const full = &shared_.side[warpgroup_][at];
    ptx::barrier_arrive_expect(full, Box::bytes);
    ptx::load_box(slot(at), &out_.residual, full, column_of(part, tile), row_of(part, row));
  }

  // Of this thread's pairs of columns of a box that begins at `column`.
  __device__ void load_bias(std::uint32_t (&bias)[8], int column) const {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int c = column + 8 * j + first_column();
      bias[j] = out_.bias != nullptr && c < out_.n
                    ? __ldg(reinterpret_cast<const unsigned*>(out_.bias + c))
                    : 0;
    }
  }

  template <class Products, class F>
  __device__ void add_residual(const Products& sum, const std::uint32_t (&bias)[8],
                               const F& activation, int part, int row, int tile) {
    const int own = part % ahead();
    const std::uint32_t box = ptx::shared_address(slot(own));
    ptx::barrier_wait(&shared_.side[warpgroup_][own], parity_ >> own & 1);
    parity_ ^= 1u << own;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const std::uint32_t at = Box::chunk(box, first_row() + 8 * half, j) + 2 * first_column();
        const std::uint32_t residual = ptx::load_word(at);
        const auto result = [&](int i) {
          return activation(sum(4 * j + 2 * half + i) + half_of_word<Element>(bias[j], i) +
                            half_of_word<Element>(residual, i));
        };
        ptx::store_word(at, ptx::pack<Element>(result(0), result(1)));
      }
    ptx::fence_shared_for_async();
    writer_.sync();
    if (!writer_.leads()) return;
    ptx::store_box(&out_.y, slot(own), column_of(part, tile), row_of(part, row));
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
};

struct Operands {
  const void *x, *weight, *bias, *residual;
  void* y;
};

template <class Config, bool WithResidual>
void run(const LinearProduct& s, const Operands& o, int multiprocessors, cudaStream_t stream) {
  using Epilogue = WriteLinear<Config, WithResidual>;
  const CUtensorMap y = matrix_map(o.y, s.m, s.n);
  const typename Epilogue::Arguments out{y, WithResidual ? matrix_map(o.residual, s.m, s.n) : y,
                                         static_cast<const typename Config::Element*>(o.bias),
                                         static_cast<int>(s.n), s.epilogue};
  launch_product<Config, Stored<false, true>, Epilogue>(
      matrix_map(o.x, s.m, s.k), matrix_map(o.weight, s.n, s.k), out,
      TileOrder::of<Config>(s.m, s.n, s.k, Config::columns), multiprocessors, stream);
}

// The most stages that leave the slots: for up to four of the residual's boxes, or for two to write
// by turns.
template <class T, int Columns, Pairs Neighbours>
void run(const LinearProduct& s, const Operands& o, int multiprocessors, cudaStream_t stream) {
  constexpr int boxes = Columns / 64;  // of b in a stage
  constexpr int residual_slots = std::min(2 * boxes, 4);
  constexpr int budget = 28;  // boxes of 8 KiB that fit into shared memory beside the barriers
  const auto run_with = [&]<int Slots, bool WithResidual>() {
    constexpr int stages = (budget - consumers * Slots) / (2 + boxes);
    run<ProductConfig<stages, Slots, T, Columns, Neighbours>, WithResidual>(s, o, multiprocessors,
                                                                            stream);
  };
  if (o.residual)
    run_with.template operator()<residual_slots, true>();
  else
    run_with.template operator()<2, false>();
}

template <class T>
void run(const LinearProduct& s, int way, const Operands& o, int multiprocessors,
         cudaStream_t stream) {
  switch (way) {
    case 1:
      return run<T, 128, Pairs::along_m>(s, o, multiprocessors, stream);
    case 2:
      return run<T, 64, Pairs::along_m>(s, o, multiprocessors, stream);
    case 3:
      return run<T, 192, Pairs::along_n>(s, o, multiprocessors, stream);
    default:
      return run<T, 128, Pairs::along_n>(s, o, multiprocessors, stream);
  }
}

}  // namespace

void linear_product(const LinearProduct& shape, int way, const void* x, const void* weight,
                    const void* bias, const void* residual, void* y, int multiprocessors,
                    cudaStream_t stream) {
  const Operands operands{x, weight, bias, residual, y};
  if (shape.dtype == DType::f16)
    run<Float16>(shape, way, operands, multiprocessors, stream);
  else
    run<BFloat16>(shape, way, operands, multiprocessors, stream);
}

}  // namespace ridge::gpu::sm90
