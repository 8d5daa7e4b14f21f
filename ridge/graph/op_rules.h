#pragma once

// What a graph may ask of any operator. ops/op.cpp answers by one visit of the closed set, so that
// nothing here depends on which operators there are.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/shape.h"
#include "ridge/graph/graph.h"

namespace ridge {

class GradBuilder;

// The exact work of one node. A multiply and an add are one operation each, so a product of
// [m, k] and [k, n] costs 2 m n k; exp, log, sin, square root and division count one each;
// comparisons, selections and conversions count none.
struct Cost {
  std::int64_t flops = 0;
  // The multiply-accumulates of products: each is two of `flops`.
  std::int64_t macs = 0;
  // The part of `flops` that a causal mask leaves necessary: equal to `flops` but for the products
  // of masked attention scores, where only the keys up to the query's own position count.
  std::int64_t causal_flops = 0;
  std::int64_t bytes_read = 0;     // each input once (of a gathered table, the rows gathered)
  std::int64_t bytes_written = 0;  // each output once

  std::int64_t bytes() const { return bytes_read + bytes_written; }
  Cost& operator+=(const Cost& other);
  bool operator==(const Cost&) const = default;
};

Cost operator*(const Cost& once, std::int64_t times);

// The kind of an operator's FLOPs, which decides their peak rate on a device.
enum class WorkKind : std::uint8_t {
  renaming,     // none: the result is the operand's memory under another shape or name
  elements,     // f32 arithmetic, whatever dtype is loaded and stored: activations, updates
  norm,         // the same, to normalize: over rows or channels, and its gradient
  product,      // a matrix product in the dtype of operand 0
  convolution,  // a product too, of an image
  attention,    // products in the dtype of operand 0 on a GPU, f32 arithmetic on a CPU
};

// How much of a device a kernel takes.
enum class Footprint : std::uint8_t {
  all,   // fills the device for long: a kernel beside it gains nothing
  some,  // occupies the multiprocessors while it runs, but does not use them well
  few,   // runs long on few multiprocessors: other kernels fit beside it
};

std::string_view name_of(const Op& op);
std::vector<TensorType> infer(const Op& op, Types inputs);
Cost cost(const Op& op, Types inputs, Types outputs);
Cost cost(const Graph& graph, const Node& node);

// Where an output lies in the memory of an input.
struct Alias {
  std::uint32_t input = 0;
  std::int64_t offset_elements = 0;  // of a slice: where it begins
};

// The input whose memory output `output` shares, if any: a reshape's or slice's, or one updated in
// place.
std::optional<Alias> aliased_input(const Op& op, std::uint32_t output, Types inputs);

WorkKind work_of(const Op& op);
bool only_renames(const Op& op);    // WorkKind::renaming
bool is_product(const Op& op);      // WorkKind::product or WorkKind::convolution
bool is_convolution(const Op& op);  // WorkKind::convolution

// Footprint::few for an operator whose kernels are known to leave room, else Footprint::some: how
// much work there is decides whether it fills the device.
Footprint footprint_of(const Op& op);

// Whether each element of the result depends on the elements in its own place alone, of operands
// that broadcast.
bool is_elementwise(const Op& op);

// Whether its first result costs so little beside the products around it, from operands that are
// kept anyway, that a backward pass had better compute it again than keep it.
bool is_light(const Op& op);

// Whether it gives its operand's numbers in another dtype, or images with channels last, and does
// nothing else: it serves kernels, not the model.
bool is_conversion(const Op& op);

// What each rank sends to others while it computes this, and what it gets from them, on average; 0
// for most.
std::int64_t sent_bytes(const Op& op, Types inputs);
std::int64_t sent_bytes(const Graph& graph, const Node& node);

// Whether sending to others is all its work; a batch norm of several ranks sends beside it.
bool is_collective(const Graph& graph, const Node& node);

// The operands of which a row of the first result, along the last dimension, needs the same row
// alone. Of the others all rows need the same. None if the operator does not work by rows.
std::vector<std::size_t> row_operands(const Op& op, Types inputs, Types outputs);

// The dimension along which it works, to read or to set, where it does not matter in which order
// the others are; null if it is not such an operator.
std::uint32_t* dimension_of(Op& op);

// Whether it takes floating operands of this dtype. s8 is taken by what hands its operands on as
// they are.
bool takes_dtype(const Op& op, DType dtype);

// Makes an operator on images with channels first (ImageLayout::nchw) the one on images with
// channels last. False, and nothing changes, if it is not such an operator.
bool to_channels_last(Op& op);
bool is_on_images(const Op& op);

// The ids that integer operands hold are in [0, id_range): rows of a table, or columns of logits. 1
// for an operator without ids.
std::int64_t id_range(const Op& op, Types inputs);

// The operator of PyTorch that computes the same from the same operands in the same order, such as
// "aten::silu"; empty if there is none.
std::string_view aten_name(const Op& op, Types inputs);

// Which of a matrix product's two factors are stored transposed; nothing for other operators.
struct StoredTransposed {
  bool a = false, b = false;
};
std::optional<StoredTransposed> stored_transposed(const Op& op);

// The operator that gives the same results once more in a step, without doing again to persistent
// values what the first has done to them.
std::shared_ptr<const Op> repetition_of(const std::shared_ptr<const Op>& op);

// Appends the nodes that compute the gradient of each input; "no value" where there is none.
// UsageError for an operator without a gradient.
std::vector<Value> grad(const Op& op, GradBuilder& builder);

}  // namespace ridge
