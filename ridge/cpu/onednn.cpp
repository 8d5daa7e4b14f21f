#include "ridge/cpu/onednn.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <unordered_map>

#include "ridge/base/error.h"
#include "ridge/cpu/onednn_engine.h"
#include "ridge/cpu/scratch.h"

namespace ridge {
namespace {

// One product on a tile of m x n: the operands are parts of larger matrices, whence the leading
// dimensions.
struct Tile {
  std::int64_t m, n;
  bool operator==(const Tile&) const = default;
};

struct LeadingDims {
  std::int64_t a, b, c;
};

LeadingDims leading_dims(const GemmShape& s) {
  return {s.trans_a ? s.m : s.k, s.trans_b ? s.k : s.n, s.n};
}

// A prepared product of one tile. Running it is thread-safe because each thread brings its own
// scratch memory: what the library would provide is shared by all threads that run the primitive.
class Primitive {
 public:
  Primitive(const GemmShape& s, Tile tile) {
    using dnnl::memory;
    const LeadingDims ld = leading_dims(s);
    a_ = memory::desc({tile.m, s.k}, onednn_type(s.in),
                      s.trans_a ? memory::dims{1, ld.a} : memory::dims{ld.a, 1});
    b_ = memory::desc({s.k, tile.n}, onednn_type(s.in),
                      s.trans_b ? memory::dims{1, ld.b} : memory::dims{ld.b, 1});
    c_ = memory::desc({tile.m, tile.n}, onednn_type(s.out), memory::dims{ld.c, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc desc(cpu_engine(), a_, b_, c_, attributes);
#else
    const dnnl::matmul::primitive_desc desc({a_, b_, c_}, attributes, cpu_engine());
#endif
    matmul_ = dnnl::matmul(desc);
    scratch_ = desc.scratchpad_desc();
  }

  void run(const void* a, const void* b, void* c) const {
    try {
      dnnl::stream stream(cpu_engine());
      matmul_.execute(stream, {{DNNL_ARG_SRC, onednn_memory(a_, a)},
                               {DNNL_ARG_WEIGHTS, onednn_memory(b_, b)},
                               {DNNL_ARG_DST, onednn_memory(c_, c)},
                               {DNNL_ARG_SCRATCHPAD,
                                onednn_memory(scratch_, scratch_memory(scratch_.get_size()))}});
      stream.wait();
    } catch (const dnnl::error& error) {
      throw DeviceError("a oneDNN product failed: {}", error.what());
    }
  }

 private:
  dnnl::memory::desc a_, b_, c_, scratch_;
  dnnl::matmul matmul_;
};

// A tile that leaves no edge one element wide: of a strided matrix of extent 1, oneDNN 3.7 computes
// wrong products.
std::int64_t without_edge_of_one(std::int64_t extent, std::int64_t tile) {
  while (extent > tile && extent % tile == 1) --tile;
  return tile;
}

// Wide tiles amortize the library's packing of B best: 256 x 512 runs within some 10 % of the peak
// rate. A product too small for 8 of them is cut into lower ones, then into narrower ones, so that
// a handful of cores finds work.
Tile choose_tile(const GemmShape& s) {
  Tile tile{std::min<std::int64_t>(s.m, 256), std::min<std::int64_t>(s.n, 512)};
  auto tiles = [&] {
    return s.batch * ((s.m + tile.m - 1) / tile.m) * ((s.n + tile.n - 1) / tile.n);
  };
  while (tiles() < 8 && tile.m > 64) tile.m = (tile.m / 2 + 15) / 16 * 16;
  while (tiles() < 8 && tile.n > 128) tile.n = (tile.n / 2 + 15) / 16 * 16;
  tile.m = without_edge_of_one(s.m, tile.m);
  tile.n = without_edge_of_one(s.n, tile.n);
  return tile;
}

// The same product with a layout that has no choice: one row or column is stored the same way
// transposed and not.
GemmShape canonical(GemmShape s) {
  if (s.m == 1) s.trans_a = false;
  if (s.n == 1) s.trans_b = false;
  return s;
}

class OnednnGemm final : public Gemm {
 public:
  explicit OnednnGemm(const GemmShape& shape);
  void run(ThreadPool& pool, const void* a, const void* b, void* c, void* workspace,
           const GemmTileDone& done) const override;

 private:
  void run_tile(std::int64_t batch, std::int64_t i, std::int64_t j, const char* a, const char* b,
                char* c) const;

  GemmShape shape_;
  Tile tile_;
  // Small products of a batch share a task, so that handing it over does not cost more than it.
  std::int64_t batches_per_task_ = 1;
  // Primitives for the full tile and the shorter ones at the lower, right and corner edges, by
  // [short in m][short in n].
  std::array<std::array<std::optional<Primitive>, 2>, 2> primitives_;
};

void OnednnGemm::run_tile(std::int64_t batch, std::int64_t i, std::int64_t j, const char* a,
                          const char* b, char* c) const {
  const GemmShape& s = shape_;
  const LeadingDims ld = leading_dims(s);
  const auto in = static_cast<std::int64_t>(size_of(s.in));
  const auto out = static_cast<std::int64_t>(size_of(s.out));
  a += in * (batch * s.m * s.k + (s.trans_a ? i : i * ld.a));
  b += in * (batch * s.k * s.n + (s.trans_b ? j * ld.b : j));
  c += out * (batch * s.m * s.n + i * ld.c + j);
  primitives_[s.m - i < tile_.m][s.n - j < tile_.n]->run(a, b, c);
}

OnednnGemm::OnednnGemm(const GemmShape& shape)
    : shape_(canonical(shape)), tile_(choose_tile(shape_)) {
  const Tile edge{shape.m % tile_.m, shape.n % tile_.n};
  constexpr std::int64_t least_work = std::int64_t{1} << 19;  // multiply-adds
  const std::int64_t work = shape.m * shape.n * shape.k;
  batches_per_task_ = std::max<std::int64_t>(1, least_work / work);
  const SingleThreaded single;
  try {
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) {
        const Tile t{i ? edge.m : tile_.m, j ? edge.n : tile_.n};
        if (t.m > 0 && t.n > 0) primitives_[i][j].emplace(shape_, t);
      }
  } catch (const dnnl::error& error) {
    throw DeviceError("oneDNN has no product of {} into {} on this CPU: {}", name_of(shape.in),
                      name_of(shape.out), error.what());
  }
}

void OnednnGemm::run(ThreadPool& pool, const void* a, const void* b, void* c, void*,
                     const GemmTileDone& done) const {
  const GemmShape& s = shape_;
  const Tile tile = tile_;
  const std::int64_t rows = (s.m + tile.m - 1) / tile.m, columns = (s.n + tile.n - 1) / tile.n;
  const std::int64_t group = batches_per_task_;
  const std::int64_t groups = (s.batch + group - 1) / group;
  pool.run(groups * rows * columns, [&](std::int64_t task) {
    const SingleThreaded single;
    const std::int64_t first = task / (rows * columns) * group;
    const std::int64_t i = task / columns % rows * tile.m, j = task % columns * tile.n;
    for (std::int64_t batch = first; batch < std::min(s.batch, first + group); ++batch) {
      run_tile(batch, i, j, static_cast<const char*>(a), static_cast<const char*>(b),
               static_cast<char*>(c));
      if (done) done({batch, i, std::min(tile.m, s.m - i), j, std::min(tile.n, s.n - j)});
    }
  });
}

}  // namespace

GemmPtr make_onednn_gemm(const GemmShape& shape) { return std::make_unique<OnednnGemm>(shape); }

bool onednn_supports_bf16() {
  static const bool supported = [] {
    try {
      const SingleThreaded single;
      const Primitive probe({.m = 16, .n = 16, .k = 16, .in = DType::bf16, .out = DType::bf16},
                            {16, 16});
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return supported;
}

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace ridge
