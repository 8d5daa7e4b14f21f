// A kernel written from scratch in three steps: correct, then quick on one core, then on all. It
// computes y = x / rms(x) * weight for each row, as the LLaMA's norms do. Every step is checked
// against double precision and held against its floor: the time in which the machine copies as many
// bytes.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ridge/ridge.h"

using namespace ridge;

namespace {

constexpr std::int64_t columns = 1024;
constexpr float eps = 1e-5f;
constexpr int repetitions = 9;

// Some rows of x and y, and the weight of every column.
struct Rows {
  const float* x;
  const float* weight;
  float* y;
  std::int64_t count;

  Rows part(std::int64_t first, std::int64_t n) const {
    return {x + first * columns, weight, y + first * columns, n};
  }
};

// The definition, in double precision: slow, and what all others are checked against.
void reference(Rows rows) {
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const float* x = rows.x + r * columns;
    double squares = 0;
    for (std::int64_t c = 0; c < columns; ++c) squares += static_cast<double>(x[c]) * x[c];
    const double scale = 1 / std::sqrt(squares / columns + eps);
    for (std::int64_t c = 0; c < columns; ++c)
      rows.y[r * columns + c] = static_cast<float>(x[c] * scale * rows.weight[c]);
  }
}

// Step 1. Each addition waits for the one before: some four cycles for every element.
void one_sum(Rows rows) {
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const float* x = rows.x + r * columns;
    float squares = 0;
    for (std::int64_t c = 0; c < columns; ++c) squares += x[c] * x[c];
    const float scale = 1 / std::sqrt(squares / columns + eps);
    for (std::int64_t c = 0; c < columns; ++c)
      rows.y[r * columns + c] = x[c] * scale * rows.weight[c];
  }
}

// Step 2. Sixteen sums that do not wait for each other, which the compiler puts into vectors. They
// are more accurate too: each adds fewer numbers.
void many_sums(Rows rows) {
  constexpr int lanes = 16;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const float* x = rows.x + r * columns;
    float squares[lanes] = {};
    for (std::int64_t c = 0; c < columns; c += lanes)
      for (int lane = 0; lane < lanes; ++lane) squares[lane] += x[c + lane] * x[c + lane];
    float sum = 0;
    for (const float square : squares) sum += square;
    const float scale = 1 / std::sqrt(sum / columns + eps);
    for (std::int64_t c = 0; c < columns; ++c)
      rows.y[r * columns + c] = x[c] * scale * rows.weight[c];
  }
}

// Step 3. Rows do not depend on each other, so that every thread has some.
void on_all_cores(Rows rows, const std::function<void(Rows)>& kernel) {
  const auto threads = static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::jthread> workers;
  for (std::int64_t t = 0; t < threads; ++t) {
    const std::int64_t first = rows.count * t / threads, end = rows.count * (t + 1) / threads;
    workers.emplace_back([=, &kernel] { kernel(rows.part(first, end - first)); });
  }
}

// What no kernel that reads x and writes y can beat.
void copy(Rows rows) {
  std::memcpy(rows.y, rows.x, static_cast<std::size_t>(rows.count * columns) * sizeof(float));
}

// Of some runs, in seconds; the first, which touches the memory, does not count.
Statistics seconds_of(const std::function<void()>& run) {
  run();
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return statistics_of(seconds);
}

// By the largest value that is expected.
double largest_error(std::span<const float> found, std::span<const float> expected) {
  double most = 0, scale = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(found[i]) - expected[i]));
    scale = std::max(scale, std::abs(static_cast<double>(expected[i])));
  }
  return most / scale;
}

// Ridge's own kernel, as a graph of one node.
class OwnKernel {
 public:
  OwnKernel(std::span<const float> x, std::span<const float> weight)
      : x_(graph_.input("x", {DType::f32, {std::ssize(x) / columns, columns}})),
        weight_(graph_.input("weight", {DType::f32, {columns}})),
        y_(rms_norm(x_, weight_, eps)),
        device_(open_device({.device = "cpu"})) {
    graph_.keep(y_, "y");
    executor_ = std::make_unique<Executor>(graph_, *device_);
    executor_->initialize(1);
    executor_->write(x_, x);
    executor_->write(weight_, weight);
  }
  void run() { executor_->run(); }
  std::vector<float> y() { return executor_->read_floats(y_); }

 private:
  Graph graph_;
  Value x_, weight_, y_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace

int main(int count, char** words) {
  // 64 MiB of x, which no cache of a core holds.
  const std::int64_t rows = count > 1 ? std::stoll(words[1]) : 16384;
  const auto numel = static_cast<std::size_t>(rows * columns);
  std::vector<float> x(numel), weight(columns), y(numel), expected(numel);
  fill_normal(x, 1.0f, /*seed=*/1, /*stream=*/1);
  fill_normal(weight, 1.0f, /*seed=*/1, /*stream=*/2);
  const Rows all{x.data(), weight.data(), y.data(), rows};
  reference({x.data(), weight.data(), expected.data(), rows});

  const auto bytes = static_cast<double>(2 * numel * sizeof(float));
  const double floor = seconds_of([&] { on_all_cores(all, copy); }).min;
  fmt::print("{} rows of {}: {} are moved, in {} at least\n\n", rows, columns,
             format_bytes(static_cast<std::uint64_t>(bytes)), format_duration(floor));
  fmt::print("{:<22}{:>10}{:>9}{:>16}{:>12}\n", "Kernel", "ms", "GB/s", "of the floor", "Error");
  bool right = true;
  const auto row = [&](const std::string& name, const Statistics& times,
                       std::span<const float> found) {
    const double error = largest_error(found, expected), seconds = times.median;
    right = right && error < 1e-5;
    fmt::print("{:<22}{:>10.2f}{:>9.1f}{:>15.0f}%{:>12.1e}\n", name, seconds * 1e3,
               bytes / seconds * 1e-9, 100 * floor / seconds, error);
  };
  row("1: one sum", seconds_of([&] { one_sum(all); }), y);
  row("2: sixteen sums", seconds_of([&] { many_sums(all); }), y);
  row("3: on all cores", seconds_of([&] { on_all_cores(all, many_sums); }), y);
  OwnKernel own(x, weight);
  const Statistics times = seconds_of([&] { own.run(); });
  row("Ridge's rms_norm", times, own.y());
  return right ? 0 : 1;
}
