// Products of integers small enough that every sum is exact, and every result exact in its dtype:
// no plan has rounding to hide behind. Operands end at a page that cannot be read, and C stands
// between guards.

#include "ridge/cpu/gemm.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/base/random.h"
#include "ridge/cpu/device.h"
#include "ridge/cpu/gemm_kernel.h"
#include "ridge/cpu/simd.h"
#include "ridge/cpu/split_gemm.h"
#include "ridge/ops/matmul.h"

namespace ridge {
namespace {

// Memory that ends where a page begins that can be neither read nor written.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t bytes) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    mapped_ = (bytes + page - 1) / page * page + page;
    map_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) throw std::runtime_error("no memory");
    ::mprotect(static_cast<std::byte*>(map_) + mapped_ - page, page, PROT_NONE);
    begin_ = static_cast<std::byte*>(map_) + mapped_ - page - bytes;
  }
  GuardedMemory(GuardedMemory&& other) noexcept
      : bytes_(other.bytes_),
        mapped_(std::exchange(other.mapped_, 0)),
        map_(other.map_),
        begin_(other.begin_) {}
  ~GuardedMemory() {
    if (mapped_) ::munmap(map_, mapped_);
  }

  std::byte* data() const { return begin_; }
  std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_, mapped_ = 0;
  void* map_ = nullptr;
  std::byte* begin_ = nullptr;
};

// A matrix of either dtype.
class Matrix {
 public:
  Matrix(std::int64_t elements, DType dtype)
      : dtype_(dtype), bytes_(static_cast<std::size_t>(elements) * size_of(dtype)) {}

  std::byte* data() const { return bytes_.data(); }
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size() / size_of(dtype_)); }
  float get(std::int64_t i) const {
    return dispatch_floating(dtype_, [&]<class T>() {
      T value;
      std::memcpy(&value, bytes_.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
      return load(&value);
    });
  }
  void set(std::int64_t i, float x) {
    dispatch_floating(dtype_, [&]<class T>() {
      T value;
      store(&value, x);
      std::memcpy(bytes_.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
    });
  }
  float& at(std::int64_t i) { return reinterpret_cast<float*>(bytes_.data())[i]; }  // of f32
  // Integers in [-bound, bound], or reals of a standard normal distribution at a bound of 0.
  void fill(std::uint64_t stream, int bound) {
    std::vector<float> values(static_cast<std::size_t>(size()));
    fill_normal(values, 1.0f, 1, stream, 0);
    for (std::int64_t i = 0; i < size(); ++i) {
      const float x = values[static_cast<std::size_t>(i)];
      set(i, bound == 0 ? x : static_cast<float>(static_cast<int>(x * 1000) % (bound + 1)));
    }
  }

 private:
  DType dtype_;
  GuardedMemory bytes_;
};

struct Operands {
  explicit Operands(const GemmShape& s, int bound)
      : a(s.batch * s.m * s.k, s.in), b(s.batch * s.k * s.n, s.in), c(s.batch * s.m * s.n, s.out) {
    a.fill(1, bound);
    b.fill(2, bound);
    c.fill(3, bound);
  }
  Matrix a, b, c;
};

std::vector<float> expected(const GemmShape& s, const Operands& o) {
  std::vector<float> result;
  for (std::int64_t batch = 0; batch < s.batch; ++batch)
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        float sum = s.accumulate ? o.c.get((batch * s.m + i) * s.n + j) : 0;
        for (std::int64_t l = 0; l < s.k; ++l)
          sum += o.a.get(batch * s.m * s.k + (s.trans_a ? l * s.m + i : i * s.k + l)) *
                 o.b.get(batch * s.k * s.n + (s.trans_b ? j * s.k + l : l * s.n + j));
        result.push_back(sum);
      }
  return result;
}

// C after the product, from a pool of `threads`. What lies before and after C must be as it was.
Matrix run(const GemmShape& s, const GemmPlan& plan, Operands& o, int threads) {
  constexpr std::size_t guard = 256;
  const std::size_t bytes = o.c.bytes().size();
  std::vector<std::byte> guarded(bytes + 2 * guard, std::byte{0x5A});
  std::memcpy(guarded.data() + guard, o.c.data(), bytes);
  ThreadPool pool(threads);
  const GemmPtr gemm = make_gemm(s, plan);
  // Whatever the workspace holds before must not show.
  std::vector<float> workspace(gemm->workspace() / sizeof(float) + 32, 1e30f);
  void* aligned = workspace.data();
  std::size_t space = workspace.size() * sizeof(float);
  EXPECT_NE(std::align(64, gemm->workspace(), aligned, space), nullptr);
  gemm->run(pool, o.a.data(), o.b.data(), guarded.data() + guard, aligned);
  for (std::size_t i = 0; i < guard; ++i) {
    EXPECT_EQ(guarded[i], std::byte{0x5A}) << "before C";
    EXPECT_EQ(guarded[guard + bytes + i], std::byte{0x5A}) << "behind C";
  }
  Matrix c(o.c.size(), s.out);
  std::memcpy(c.data(), guarded.data() + guard, bytes);
  return c;
}

void expect_exact(const GemmShape& s, const GemmPlan& plan, Operands& operands,
                  const std::vector<float>& values) {
  SCOPED_TRACE(to_string(s) + ", " + to_string(plan));
  const Matrix c = run(s, plan, operands, 2);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(c.get(static_cast<std::int64_t>(i)), values[i]) << "element " << i;
}

// Plans of our own whose tiles cut the shape at odd places, whatever suits it.
std::vector<GemmPlan> all_plans(const GemmShape& s) {
  std::vector<GemmPlan> plans = gemm_plans(s);
  for (const GemmKind kind : {GemmKind::packed, GemmKind::local})
    for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {31, 40}, {5000, 5000}})
      plans.push_back({kind, m, n});
  if (const std::vector<GemmPlan> split = split_gemm_plans(s); !split.empty()) {
    plans.insert(plans.end(), split.begin(), split.end());
    for (const std::int64_t n : {1, 70, 5000}) plans.push_back({GemmKind::split, n, n});
  }
  return plans;
}

void expect_exact_in_all_layouts(GemmShape s, int bound) {
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true})
      for (const bool accumulate : {false, true}) {
        s.trans_a = trans_a, s.trans_b = trans_b, s.accumulate = accumulate;
        Operands operands(s, bound);
        const std::vector<float> values = expected(s, operands);
        for (const GemmPlan& plan : all_plans(s)) expect_exact(s, plan, operands, values);
      }
}

// Every extent in each role, in blocks, vectors and tiles of any instruction set and beside them.
const std::vector<GemmShape> shapes = {
    {.m = 1, .n = 1, .k = 1},
    {.m = 7, .n = 17, .k = 1},
    {.m = 17, .n = 1, .k = 33},
    {.m = 1, .n = 100, .k = 64},
    {.m = 33, .n = 7, .k = 100},
    {.m = 64, .n = 64, .k = 64},
    {.m = 100, .n = 33, .k = 17},
    {.m = 15, .n = 513, .k = 7},
    {.m = 129, .n = 31, .k = 2},
    {.batch = 5, .m = 7, .n = 33, .k = 17},
    {.batch = 3, .m = 33, .n = 16, .k = 9},
};

TEST(Gemm, IsExactInF32) {
  for (const GemmShape& s : shapes) expect_exact_in_all_layouts(s, 8);
}

TEST(Gemm, IsExactInBf16IntoF32) {
  for (GemmShape s : shapes) {
    s.in = DType::bf16;
    expect_exact_in_all_layouts(s, 8);
  }
}

// |sum| <= 1 + 100, and bf16 holds the integers up to 256.
TEST(Gemm, IsExactInBf16) {
  for (GemmShape s : shapes) {
    s.in = s.out = DType::bf16;
    expect_exact_in_all_layouts(s, 1);
  }
}

// Several blocks of k, the last of an odd number of values, and several groups of columns.
TEST(Gemm, IsExactOverManyBlocksOfK) {
  for (const GemmShape& extents :
       {GemmShape{.m = 31, .n = 70, .k = 1601}, GemmShape{.batch = 2, .m = 20, .n = 40, .k = 769},
        GemmShape{.m = 15, .n = 800, .k = 385}, GemmShape{.m = 37, .n = 45, .k = 3201}}) {
    GemmShape s = extents;
    expect_exact_in_all_layouts(s, 4);
    s.in = DType::bf16;
    expect_exact_in_all_layouts(s, 4);
  }
}

TEST(Gemm, AddsToBf16SumsOfManyBlocksRoundedOnce) {
  // 256 + 1 + 1 in bf16: rounded once it is 258, rounded after each addition 256.
  const std::int64_t k = 2048;
  const GemmShape s{
      .m = 3, .n = 5, .k = k, .in = DType::bf16, .out = DType::bf16, .accumulate = true};
  Operands o(s, 1);
  for (std::int64_t i = 0; i < o.a.size(); ++i) o.a.set(i, i % k == 0 || i % k == k - 1 ? 1 : 0);
  for (std::int64_t i = 0; i < o.b.size(); ++i) o.b.set(i, 1);
  for (std::int64_t i = 0; i < o.c.size(); ++i) o.c.set(i, 256);
  for (const GemmKind kind : {GemmKind::packed, GemmKind::local}) {
    const Matrix c = run(s, {kind, 2, 32}, o, 1);
    for (std::int64_t i = 0; i < c.size(); ++i) EXPECT_EQ(c.get(i), 258.0f);
  }
}

// Each element is told of once, when it has its value: what is done to it then stays.
TEST(Gemm, TellsOfEachPartOfCOnceItIsComplete) {
  for (const GemmShape& s : shapes) {
    Operands o(s, 8);
    for (const GemmPlan& plan : all_plans(s)) {
      const Matrix wanted = run(s, plan, o, 1);
      const GemmPtr gemm = make_gemm(s, plan);
      const GuardedMemory workspace(gemm->workspace() + 64);
      void* memory = workspace.data();
      std::size_t space = workspace.size();
      memory = std::align(64, gemm->workspace(), memory, space);
      Matrix c(s.batch * s.m * s.n, s.out);
      for (std::int64_t i = 0; i < c.size(); ++i) c.set(i, o.c.get(i));
      ThreadPool pool(2);
      auto* const values = reinterpret_cast<float*>(c.data());
      gemm->run(pool, o.a.data(), o.b.data(), c.data(), memory, [&](const GemmTile& tile) {
        for (std::int64_t i = tile.row; i < tile.row + tile.rows; ++i)
          for (std::int64_t j = tile.column; j < tile.column + tile.columns; ++j)
            values[(tile.batch * s.m + i) * s.n + j] += 1000.0f;
      });
      for (std::int64_t i = 0; i < c.size(); ++i)
        ASSERT_EQ(c.get(i), wanted.get(i) + 1000.0f) << to_string(s) << " " << to_string(plan);
    }
  }
}

// NaN in one row of A must reach that row of C and no other, though blocks are padded with what
// happens to lie beside them.
TEST(Gemm, PaddingStaysInPadding) {
  for (const DType in : {DType::f32, DType::bf16})
    for (const bool trans : {false, true}) {
      const GemmShape s{.m = 29, .n = 37, .k = 11, .trans_a = trans, .trans_b = trans, .in = in};
      Operands o(s, 2);
      const std::int64_t bad = 13;
      for (std::int64_t l = 0; l < s.k; ++l)
        o.a.set(trans ? l * s.m + bad : bad * s.k + l, std::numeric_limits<float>::quiet_NaN());
      for (const GemmPlan& plan : all_plans(s)) {
        const Matrix c = run(s, plan, o, 1);
        for (std::int64_t i = 0; i < c.size(); ++i)
          ASSERT_EQ(std::isnan(c.get(i)), i / s.n == bad) << to_string(plan) << " element " << i;
      }
    }
}

// Once, to nearest even, inside of blocks and at their edges, over one block of k and several;
// infinity and NaN as well.
TEST(Gemm, RoundsToBf16WhatItGivesInF32) {
  for (const std::int64_t k : {1, 40, 513, 1700})
    for (const bool trans : {false, true}) {
      GemmShape s{.m = 31, .n = 77, .k = k, .trans_a = trans, .trans_b = !trans, .in = DType::bf16};
      Operands o(s, 0);
      s.out = DType::bf16;
      Operands to_bf16(s, 0);
      for (Operands* each : {&o, &to_bf16}) {
        each->a.set(o.a.size() / 2, std::numeric_limits<float>::infinity());
        each->b.set(o.b.size() / 3, std::numeric_limits<float>::quiet_NaN());
      }
      for (const GemmKind kind : {GemmKind::packed, GemmKind::local}) {
        s.out = DType::f32;
        const Matrix exact = run(s, {kind, 20, 40}, o, 1);
        s.out = DType::bf16;
        const Matrix rounded = run(s, {kind, 20, 40}, to_bf16, 1);
        for (std::int64_t i = 0; i < exact.size(); ++i) {
          const auto wanted = static_cast<float>(BFloat16(exact.get(i)));
          ASSERT_TRUE(rounded.get(i) == wanted ||
                      (std::isnan(wanted) && std::isnan(rounded.get(i))))
              << to_string(s) << " element " << i << ": " << exact.get(i) << " became "
              << rounded.get(i);
        }
      }
    }
}

const std::vector<GemmShape> rounding_shapes = {
    {.m = 130, .n = 200, .k = 900, .trans_b = true},
    {.m = 65, .n = 129, .k = 513, .trans_a = true},
    {.batch = 9, .m = 33, .n = 48, .k = 40},
    {.m = 40, .n = 100, .k = 1700, .trans_b = true, .in = DType::bf16, .out = DType::bf16},
    {.m = 330, .n = 70, .k = 2100, .trans_b = true},
    {.m = 330, .n = 40, .k = 96, .trans_a = true},
    {.m = 330, .n = 700, .k = 2600, .trans_a = true},  // in several stages
    {.batch = 2, .m = 20, .n = 900, .k = 1700, .trans_b = true, .accumulate = true},
};

TEST(Gemm, BitsDoNotDependOnTheNumberOfThreads) {
  for (const GemmShape& s : rounding_shapes) {
    Operands o(s, 0);
    for (const GemmPlan& plan : all_plans(s)) {
      const Matrix one = run(s, plan, o, 1);
      for (const int threads : {2, 3, 7})
        EXPECT_EQ(run(s, plan, o, threads).bytes(), one.bytes())
            << to_string(s) << ", " << to_string(plan) << ", " << threads << " threads";
    }
  }
}

TEST(Gemm, BitsOfOurOwnDoNotDependOnThePlan) {
  for (const GemmShape& s : rounding_shapes) {
    Operands o(s, 0);
    const Matrix reference = run(s, {GemmKind::packed, 64, 64}, o, 1);
    std::optional<Matrix> of_split;
    for (const GemmPlan& plan : all_plans(s)) {
      if (plan.kind == GemmKind::onednn) continue;
      if (plan.kind == GemmKind::split && !of_split) of_split.emplace(run(s, plan, o, 1));
      const Matrix& wanted = plan.kind == GemmKind::split ? *of_split : reference;
      EXPECT_EQ(run(s, plan, o, 2).bytes(), wanted.bytes())
          << to_string(s) << ", " << to_string(plan);
    }
  }
}

// The worst error of a product, in units of 2^-24 of the sum of the terms' magnitudes.
double worst_error(const GemmShape& s, const Operands& o, const Matrix& c) {
  double worst = 0;
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = 0, size = 0;
      for (std::int64_t l = 0; l < s.k; ++l) {
        const double term = double{o.a.get(i * s.k + l)} * double{o.b.get(l * s.n + j)};
        sum += term;
        size += std::abs(term);
      }
      if (size > 0) worst = std::max(worst, std::abs(c.get(i * s.n + j) - sum) / size);
    }
  return std::ldexp(worst, 24);
}

// Of numbers of either sign, of positive ones, whose sums grow, and of rows and terms that differ
// by powers of 2, a product of split operands is about as exact as one in f32.
TEST(SplitGemm, IsAsExactAsSumsInF32) {
  for (const std::int64_t k : {1, 31, 64, 512, 1000, 5000}) {
    const GemmShape s{.m = 40, .n = 24, .k = k};
    if (split_gemm_plans(s).empty()) GTEST_SKIP() << "this processor has no products of split bf16";
    for (const std::string_view numbers : {"normal", "positive", "rows scaled", "terms scaled"}) {
      Operands o(s, 0);
      for (std::int64_t i = 0; i < o.a.size(); ++i) {
        const std::int64_t row = i / k, term = i % k;
        float& x = o.a.at(i);
        if (numbers == "positive") x = std::abs(x);
        if (numbers == "rows scaled") x = std::ldexp(x, static_cast<int>(row) - 20);
        if (numbers == "terms scaled") x = std::ldexp(x, static_cast<int>(term % 21) - 10);
      }
      if (numbers == "positive")
        for (std::int64_t i = 0; i < o.b.size(); ++i) o.b.at(i) = std::abs(o.b.at(i));
      const double split = worst_error(s, o, run(s, split_gemm_plans(s)[0], o, 1));
      const double plain = worst_error(s, o, run(s, {GemmKind::local, 64, 64}, o, 1));
      EXPECT_LE(split, plain + 0.5) << numbers << ", " << k << " terms";
    }
  }
}

// Takes the last candidate of each question.
class LastCandidate final : public Tuner {
 public:
  std::size_t choose(std::string_view, std::size_t candidates,
                     const std::function<void(std::size_t)>&) override {
    return candidates - 1;
  }
};

// An odd vocabulary, and few rows: split products are candidates of any shape, where they are asked
// for alone, and the workspace of each is planned.
TEST(SplitGemm, IsACandidateOfAnyProductWhereItIsAllowed) {
  if (split_gemm_plans({.m = 1, .n = 1, .k = 1}).empty())
    GTEST_SKIP() << "this processor has no products of split bf16";
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{64, 50257, 96}, {33, 777, 520}, {700, 40, 136}}) {
    const TensorType in[] = {{DType::f32, {m, k}}, {DType::f32, {n, k}}}, out{DType::f32, {m, n}};
    const GemmShape shape{.m = m, .n = n, .k = k, .trans_b = true};
    Operands o(shape, 0);
    CpuDevice device(2);
    LastCandidate tuner;
    const auto result = [&](bool split) {
      const PreparedKernel prepared =
          device.prepare(Op(MatMul{.trans_b = true}), in, {&out, 1},
                         {.products = Products::tuned, .tuner = &tuner, .split_bf16 = split});
      Matrix c(m * n, DType::f32);
      const GuardedMemory workspace(prepared.workspace + 64);
      void* memory = workspace.data();
      std::size_t space = workspace.size();
      memory = std::align(64, prepared.workspace, memory, space);
      const void* const inputs[] = {o.a.data(), o.b.data()};
      void* const outputs[] = {c.data()};
      prepared.kernel->launch({inputs, outputs, memory});
      return std::pair{std::string(c.bytes()), prepared.workspace};
    };
    const Matrix split = run(shape, split_gemm_plans(shape)[0], o, 1);
    EXPECT_EQ(result(true).first, split.bytes());
    EXPECT_NE(result(false).first, split.bytes());
    for (const GemmPlan& plan : split_gemm_plans(shape))
      EXPECT_GE(result(true).second, make_gemm(shape, plan)->workspace());
  }
}

// Sums of the parts of k but the first lie in the workspace of every plan: of few rows and long k
// there are some, of more rows, shorter k or several matrices none.
TEST(SplitGemm, CutsLongSumsOfFewRowsIntoParts) {
  if (split_gemm_plans({.m = 1, .n = 1, .k = 1}).empty())
    GTEST_SKIP() << "this processor has no products of split bf16";
  const auto sums = [](const GemmShape& s, const GemmPlan& plan) {
    return make_gemm(s, plan)->workspace() / (static_cast<std::size_t>(s.m * s.n) * sizeof(float));
  };
  for (const auto& [shape, others] :
       {std::pair<GemmShape, std::size_t>{{.m = 196, .n = 192, .k = 32000}, 15},
        {{.m = 351, .n = 258, .k = 50257, .trans_b = true}, 15},
        {{.m = 300, .n = 900, .k = 3000}, 1},
        {{.m = 700, .n = 1500, .k = 30000}, 1}})
    for (const GemmPlan& plan : split_gemm_plans(shape))
      EXPECT_EQ(sums(shape, plan), others) << to_string(shape) << ", " << to_string(plan);
  for (const GemmShape& shape :
       {GemmShape{.m = 800, .n = 192, .k = 32000}, GemmShape{.m = 196, .n = 192, .k = 2016},
        GemmShape{.batch = 2, .m = 196, .n = 192, .k = 32000}}) {
    const GemmPlan all_rows{GemmKind::split, shape.m, shape.n};
    EXPECT_EQ(make_gemm(shape, all_rows)->workspace(), 0u) << to_string(shape);
  }
}

// The first part of the greatest floats rounds to infinity, whose other parts are NaN, and the last
// of tiny ones to 0.
TEST(SplitGemm, LosesWhatItsPartsCannotHold) {
  const GemmShape s{.m = 1, .n = 1, .k = 1};
  if (split_gemm_plans(s).empty()) GTEST_SKIP() << "this processor has no products of split bf16";
  const auto product = [&](float a, float b) {
    Operands o(s, 0);
    o.a.set(0, a);
    o.b.set(0, b);
    return run(s, split_gemm_plans(s)[0], o, 1).get(0);
  };
  EXPECT_TRUE(std::isnan(product(std::numeric_limits<float>::infinity(), 1.0f)));
  EXPECT_TRUE(std::isnan(product(std::numeric_limits<float>::max(), 1.0f)));
  EXPECT_TRUE(std::isnan(product(std::numeric_limits<float>::quiet_NaN(), 1.0f)));
  EXPECT_EQ(product(3.3e38f, 1.0f), 3.3e38f);
  EXPECT_EQ(product(0x1.fffffep-100f, 1.0f), 0x1.fffffep-100f);
  EXPECT_NEAR(product(0x1.fffffep-115f, 1.0f), 0x1p-114f, 0x1p-122f);
}

// B is worth packing once where many tiles of rows read it.
TEST(GemmPlans, PackOnceWhatManyTilesRead) {
  if (lanes == 4) GTEST_SKIP() << "products of the least instructions are oneDNN's";
  const auto kind = [](const GemmShape& shape) { return default_plan(shape).kind; };
  for (const bool transposed : {false, true}) {
    EXPECT_EQ(kind({.m = 1, .n = 4096, .k = 4096, .trans_b = transposed}), GemmKind::local);
    EXPECT_EQ(kind({.m = 8, .n = 2048, .k = 2048, .trans_b = transposed}), GemmKind::local);
    EXPECT_EQ(kind({.batch = 64, .m = 64, .n = 64, .k = 64, .trans_b = transposed}),
              GemmKind::local);
    EXPECT_EQ(kind({.m = 1024, .n = 512, .k = 256, .trans_b = transposed}), GemmKind::packed);
    EXPECT_EQ(kind({.m = 2048, .n = 2048, .k = 2048, .trans_b = transposed}), GemmKind::packed);
  }
}

// A weight's gradient sums over all tokens; however many there are, it is packed in bounded memory.
TEST(GemmPlans, PackLongSumsStageByStage) {
  if (lanes == 4) GTEST_SKIP() << "products of the least instructions are oneDNN's";
  for (const std::int64_t k : {4096, 32768}) {
    const GemmShape s{.m = 512, .n = 1024, .k = k, .trans_a = true};
    const GemmPlan plan = default_plan(s);
    EXPECT_EQ(plan.kind, GemmKind::packed);
    EXPECT_LE(make_gemm(s, plan)->workspace(), std::size_t{8} << 20);
  }
}

TEST(GemmPlans, AreFewDistinctAndBeginWithTheDefault) {
  for (const GemmShape& s :
       {GemmShape{.m = 1, .n = 1, .k = 1}, GemmShape{.m = 1024, .n = 512, .k = 256},
        GemmShape{.batch = 64, .m = 128, .n = 128, .k = 32},
        GemmShape{.m = 4096, .n = 50257, .k = 768, .trans_b = true}}) {
    const std::vector<GemmPlan> plans = gemm_plans(s);
    EXPECT_EQ(plans.front(), default_plan(s));
    EXPECT_LE(plans.size(), 10u);
    EXPECT_GE(plans.size(), 2u);
    for (std::size_t i = 0; i < plans.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(plans[i] == plans[j]) << to_string(s);
  }
}

// A product that four threads share has at least one tile for each.
TEST(GemmPlans, OurOwnGiveFourThreadsWork) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1024, 256, 256},
                                {256, 256, 1024},
                                {1024, 1000, 256},
                                {512, 2048, 4096}})
    for (const GemmPlan& plan : gemm_plans({.m = m, .n = n, .k = k})) {
      if (plan.kind == GemmKind::onednn) continue;
      EXPECT_GE(((m + plan.tile_m - 1) / plan.tile_m) * ((n + plan.tile_n - 1) / plan.tile_n), 4);
    }
}

}  // namespace
}  // namespace ridge
