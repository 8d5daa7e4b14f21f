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
#include "ridge/device/device.h"
#include "ridge/graph/op_rules.h"
#include "ridge/ops/op.h"

namespace ridge::testing {

using Reals = std::vector<double>;

// The nearest number of a floating dtype.
inline double rounded(double real, DType dtype) {
  float value = static_cast<float>(real);
  std::byte bytes[sizeof(float)];
  store_floats({&value, 1}, dtype, bytes);
  load_floats(bytes, dtype, {&value, 1});
  return value;
}

// Numbers of the sample's range, a function of operand and element alone, exact in `dtype`.
inline Reals sample_values(const SampleInput& input, DType dtype, std::uint64_t operand) {
  Reals values(static_cast<std::size_t>(input.type.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double uniform = philox(2024, i, operand)[0] * 0x1p-32;
    const double real = input.low + uniform * (input.high - input.low);
    if (dtype == DType::i32)
      values[i] = std::floor(real);
    else
      values[i] = rounded(real, dtype);
  }
  return values;
}

inline std::vector<std::byte> encode(const Reals& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  if (dtype == DType::i32) {
    const std::vector<std::int32_t> integers(values.begin(), values.end());
    std::memcpy(bytes.data(), integers.data(), bytes.size());
  } else {
    store_floats(std::vector<float>(values.begin(), values.end()), dtype, bytes.data());
  }
  return bytes;
}

inline Reals decode(std::span<const std::byte> bytes, DType dtype) {
  const std::size_t count = bytes.size() / size_of(dtype);
  if (dtype == DType::i32) {
    std::vector<std::int32_t> integers(count);
    std::memcpy(integers.data(), bytes.data(), bytes.size());
    return {integers.begin(), integers.end()};
  }
  std::vector<float> floats(count);
  load_floats(bytes.data(), dtype, floats);
  return {floats.begin(), floats.end()};
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

// Memory of a device, poisoned with bytes that read as NaN, and followed by a guard; it begins
// `offset` bytes after an aligned address.
class PoisonedMemory {
 public:
  PoisonedMemory(Device& device, std::size_t bytes, std::size_t offset = 0)
      : device_(device),
        bytes_(bytes),
        offset_(offset),
        data_(device.allocate(offset + bytes + guard)) {
    const std::vector<std::byte> poison(bytes + guard, std::byte{0xFF});
    device.upload(data(), poison.data(), poison.size());
  }
  ~PoisonedMemory() { device_.deallocate(data_, offset_ + bytes_ + guard); }
  PoisonedMemory(const PoisonedMemory&) = delete;
  PoisonedMemory& operator=(const PoisonedMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_) + offset_; }
  void write(const std::vector<std::byte>& bytes) {
    device_.upload(data(), bytes.data(), bytes.size());
  }
  // The content; a failure if something was written beyond it.
  std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(bytes_ + guard);
    device_.download(bytes.data(), data(), bytes.size());
    const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(bytes_);
    EXPECT_TRUE(std::all_of(end, bytes.end(), [](std::byte b) { return b == std::byte{0xFF}; }))
        << "written out of bounds";
    bytes.resize(bytes_);
    return bytes;
  }

 private:
  static constexpr std::size_t guard = 256;
  Device& device_;
  std::size_t bytes_, offset_;
  void* data_;
};

// Launches the kernel of `op` on these inputs and returns the bytes of each output. An output that
// aliases an input has its memory, as at run time. Operands and results begin `offset` elements
// after an aligned address.
inline std::vector<std::vector<std::byte>> run_kernel(Device& device, const Op& op, Types in,
                                                      Types out, const std::vector<Reals>& inputs,
                                                      const KernelChoice& choice = {},
                                                      std::size_t offset = 0) {
  const PreparedKernel prepared = device.prepare(op, in, out, choice);
  std::vector<std::unique_ptr<PoisonedMemory>> memory;
  std::vector<const void*> in_pointers;
  std::vector<void*> out_pointers;
  std::vector<bool> may_change(in.size(), false);
  struct Place {
    std::size_t block, offset;
  };
  std::vector<Place> places;  // of the outputs
  for (std::size_t i = 0; i < in.size(); ++i) {
    memory.push_back(
        std::make_unique<PoisonedMemory>(device, in[i].bytes(), offset * size_of(in[i].dtype)));
    memory.back()->write(encode(inputs[i], in[i].dtype));
    in_pointers.push_back(memory.back()->data());
  }
  for (std::uint32_t o = 0; o < out.size(); ++o) {
    if (const auto alias = aliased_input(op, o, in)) {
      const auto begin = static_cast<std::size_t>(alias->offset_elements) * size_of(out[o].dtype);
      EXPECT_LE(begin + out[o].bytes(), in[alias->input].bytes());
      may_change[alias->input] = true;
      places.push_back({alias->input, begin});
    } else {
      places.push_back({memory.size(), 0});
      memory.push_back(
          std::make_unique<PoisonedMemory>(device, out[o].bytes(), offset * size_of(out[o].dtype)));
    }
    out_pointers.push_back(memory[places[o].block]->data() + places[o].offset);
  }
  memory.push_back(std::make_unique<PoisonedMemory>(device, prepared.workspace));
  if (prepared.kernel)
    prepared.kernel->launch(
        {.inputs = in_pointers, .outputs = out_pointers, .workspace = memory.back()->data()});
  device.synchronize();

  std::vector<std::vector<std::byte>> contents;
  for (const auto& block : memory) contents.push_back(block->read());
  for (std::size_t i = 0; i < in.size(); ++i)
    EXPECT_TRUE(may_change[i] || contents[i] == encode(inputs[i], in[i].dtype))
        << "operand " << i << " was overwritten";
  std::vector<std::vector<std::byte>> results;
  for (std::size_t o = 0; o < out.size(); ++o) {
    const auto begin =
        contents[places[o].block].begin() + static_cast<std::ptrdiff_t>(places[o].offset);
    results.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(out[o].bytes()));
  }
  return results;
}

struct Tolerance {
  double absolute, relative;
};

// Results of 8 bits are exact, because their reference is rounded as they are.
// f32 results carry the rounding of a few operations, or of a sum over as many elements as the
// operands have for each of the result: its error grows like the root of their number, from the
// width of a vector register on. Results of 16 bits are rounded once more, to 8 bits in bf16 and to
// 11 in f16.
inline Tolerance tolerance_of(const TensorType& result, Types in) {
  if (is_float8(result.dtype) || result.dtype == DType::s8) return {0, 0};
  std::int64_t most = 1;
  for (const TensorType& type : in) most = std::max(most, type.numel());
  const double length = static_cast<double>(most) / static_cast<double>(result.numel());
  const double absolute = 1e-5 * std::max(1.0, std::sqrt(length) / 16.0);
  const double narrow = result.dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
  return {absolute, is_16_bit(result.dtype) ? narrow : 1e-5};
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
