#include "ridge/bench/options.h"

#include <limits>

#include "ridge/base/error.h"
#include "ridge/base/ranges.h"
#include "ridge/bench/schedule.h"
#include "ridge/models/vision/vision.h"

namespace ridge {

DType BenchOptions::compute_dtype() const {
  if (dtype == "bf16") return DType::bf16;
  if (dtype == "fp16") return DType::f16;
  if (dtype == "fp32" || dtype == "tf32" || dtype == "int8") return DType::f32;
  throw UsageError("--dtype is '{}'; choose one of fp32, tf32, bf16, fp16, int8", dtype);
}

void BenchOptions::check() const {
  vision_network(network);
  check_range("batch-size", batch_size, 1, 1 << 20);
  check_range("iterations", iterations, 1, 1'000'000);
  check_range("warmup", warmup, 0, 1'000'000);
  check_range("image-size", image_size, 0, 1 << 14);
  check_range("threads", threads, 0, 4096);
  check_range("seed", seed, 0, std::numeric_limits<std::int64_t>::max());
  compute_dtype();
  check_choice("mode", mode, {"inference", "training"});
  if (!data.empty() && !trains()) throw UsageError("--data is for --mode training");
  if (!(learning_rate >= 0 && learning_rate <= 1e6))
    throw UsageError("--learning-rate is {}; it must be at least 0, and finite", learning_rate);
  compile_mode(compile);
  check_choice("channels-last", channels_last, {"auto", "on", "off"});
  if (dtype == "int8" && trains())
    throw UsageError("--dtype int8 is quantised after training: it is for --mode inference");
  if (dtype == "int8" && channels_last == "off")
    throw UsageError("--dtype int8 excludes --channels-last off: integers are convolved so alone");
}

}  // namespace ridge
