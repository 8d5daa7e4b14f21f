#pragma once

// Runs an operator's samples: fills their operands, evaluates the reference on exactly the numbers
// that a kernel sees, and launches the kernel in memory that shows what it leaves unwritten and
// what it writes beyond its bounds.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "ridge/base/random.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"
#include "ridge/run/device.h"

namespace ridge::testing {

using Reals = std::vector<double>;

// Numbers of the sample's range, a function of operand and element alone, exact in `dtype`.
inline Reals sample_values(const SampleInput& input, DType dtype, std::uint64_t operand) {
  Reals values(static_cast<std::size_t>(input.type.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double uniform = philox(2024, i, operand)[0] * 0x1p-32;
    const double real = input.low + uniform * (input.high - input.low);
    if (dtype == DType::i32)
      values[i] = std::floor(real);
    else if (dtype == DType::bf16)
      values[i] = static_cast<float>(BFloat16(static_cast<float>(real)));
    else
      values[i] = static_cast<float>(real);
  }
  return values;
}

inline std::vector<std::byte> encode(const Reals& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  auto put = [&](std::size_t i, auto element) {
    std::memcpy(&bytes[i * sizeof(element)], &element, sizeof(element));
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::i32)
      put(i, static_cast<std::int32_t>(values[i]));
    else if (dtype == DType::bf16)
      put(i, BFloat16(static_cast<float>(values[i])));
    else
      put(i, static_cast<float>(values[i]));
  }
  return bytes;
}

inline Reals decode(std::span<const std::byte> bytes, DType dtype) {
  Reals values(bytes.size() / size_of(dtype));
  auto get = [&]<class T>(std::size_t i, T element) {
    std::memcpy(&element, &bytes[i * sizeof(T)], sizeof(T));
    return element;
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::i32)
      values[i] = get(i, std::int32_t{});
    else if (dtype == DType::bf16)
      values[i] = static_cast<float>(get(i, BFloat16{}));
    else
      values[i] = get(i, float{});
  }
  return values;
}

inline std::vector<Reals> run_reference(const Op& op, Types in, Types out,
                                        const std::vector<Reals>& inputs) {
  std::vector<Reals> fed = inputs, results;
  std::vector<ReferenceTensor> in_tensors, out_tensors;
  for (std::size_t i = 0; i < in.size(); ++i) in_tensors.push_back({in[i].shape, fed[i]});
  for (const TensorType& type : out)
    results.emplace_back(static_cast<std::size_t>(type.numel()), std::nan(""));
  for (std::size_t o = 0; o < out.size(); ++o) out_tensors.push_back({out[o].shape, results[o]});
  ReferenceCall call{in_tensors, out_tensors};
  std::visit([&](const auto& o) { o.reference(call); }, op.variant());
  return results;
}

// Memory of a device, poisoned with bytes that read as NaN, and followed by a guard.
class PoisonedMemory {
 public:
  PoisonedMemory(Device& device, std::size_t bytes)
      : device_(device), bytes_(bytes), data_(device.allocate(bytes + guard)) {
    std::memset(data_, 0xFF, bytes + guard);
  }
  ~PoisonedMemory() { device_.deallocate(data_, bytes_ + guard); }
  PoisonedMemory(const PoisonedMemory&) = delete;
  PoisonedMemory& operator=(const PoisonedMemory&) = delete;

  void* data() const { return data_; }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), bytes_}; }
  bool guard_intact() const {
    const auto* end = static_cast<const std::byte*>(data_) + bytes_;
    return std::all_of(end, end + guard, [](std::byte b) { return b == std::byte{0xFF}; });
  }

 private:
  static constexpr std::size_t guard = 256;
  Device& device_;
  std::size_t bytes_;
  void* data_;
};

// Launches the kernel of `op` on these inputs and returns the bytes of each output. An output that
// aliases an input has its memory, as at run time.
inline std::vector<std::vector<std::byte>> run_kernel(Device& device, const Op& op, Types in,
                                                      Types out, const std::vector<Reals>& inputs,
                                                      const KernelChoice& choice = {}) {
  const PreparedKernel prepared = device.prepare(op, in, out, choice);
  std::vector<std::unique_ptr<PoisonedMemory>> memory;
  std::vector<const void*> in_pointers;
  std::vector<void*> out_pointers;
  std::vector<bool> may_change(in.size(), false);
  for (std::size_t i = 0; i < in.size(); ++i) {
    memory.push_back(std::make_unique<PoisonedMemory>(device, in[i].bytes()));
    std::ranges::copy(encode(inputs[i], in[i].dtype), memory.back()->bytes().begin());
    in_pointers.push_back(memory.back()->data());
  }
  for (std::uint32_t o = 0; o < out.size(); ++o) {
    if (const auto alias = aliased_input(op, o, in)) {
      const auto offset = static_cast<std::size_t>(alias->offset_elements) * size_of(out[o].dtype);
      EXPECT_LE(offset + out[o].bytes(), in[alias->input].bytes());
      may_change[alias->input] = true;
      out_pointers.push_back(memory[alias->input]->bytes().data() + offset);
    } else {
      memory.push_back(std::make_unique<PoisonedMemory>(device, out[o].bytes()));
      out_pointers.push_back(memory.back()->data());
    }
  }
  memory.push_back(std::make_unique<PoisonedMemory>(device, prepared.workspace));
  if (prepared.kernel)
    prepared.kernel->launch(
        {.inputs = in_pointers, .outputs = out_pointers, .workspace = memory.back()->data()});
  device.synchronize();

  for (const auto& block : memory) EXPECT_TRUE(block->guard_intact()) << "written out of bounds";
  for (std::size_t i = 0; i < in.size(); ++i) {
    const bool intact = std::ranges::equal(encode(inputs[i], in[i].dtype), memory[i]->bytes());
    EXPECT_TRUE(intact || may_change[i]) << "operand " << i << " was overwritten";
  }
  std::vector<std::vector<std::byte>> results;
  for (std::size_t o = 0; o < out.size(); ++o) {
    const auto* bytes = static_cast<const std::byte*>(out_pointers[o]);
    results.emplace_back(bytes, bytes + out[o].bytes());
  }
  return results;
}

struct Tolerance {
  double absolute, relative;
};

// f32 results carry the rounding of a few operations, or of a sum over as many elements as the
// operands have for each of the result: its error grows like the root of their number, from the
// width of a vector register on. bf16 results are rounded once more, to 8 bits.
inline Tolerance tolerance_of(const TensorType& result, Types in) {
  std::int64_t most = 1;
  for (const TensorType& type : in) most = std::max(most, type.numel());
  const double length = static_cast<double>(most) / static_cast<double>(result.numel());
  const double absolute = 1e-5 * std::max(1.0, std::sqrt(length) / 16.0);
  return {absolute, result.dtype == DType::bf16 ? 0x1p-7 : 1e-5};
}

// Every element within the tolerance; infinities only where the reference has the same.
inline void expect_close(const Reals& actual, const Reals& expected, Tolerance tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i], b = expected[i];
    const bool close =
        std::isfinite(b) ? std::abs(a - b) <= tolerance.absolute + tolerance.relative * std::abs(b)
                         : a == b;
    ASSERT_TRUE(close) << "element " << i << " is " << a << " where the reference has " << b;
  }
}

}  // namespace ridge::testing
