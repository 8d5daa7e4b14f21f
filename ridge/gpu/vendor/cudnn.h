#pragma once

// cuDNN's backend interface: operations described as graphs of descriptors, for which it has plans.
// Only what is used here, and declared here: its headers are no part of a CUDA toolkit, and need
// not be installed to build Ridge. Names and values: NVIDIA cuDNN backend API reference, of version
// 9, which keeps them. tests/gpu/cudnn_test.cpp holds them against the headers where there are any.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/base/vendor_library.h"
#include "ridge/gpu/device/context.h"
#include "ridge/gpu/vendor/ordered_start.h"

namespace ridge::gpu::cudnn {

using Status = int;
using Handle = struct HandleOfLibrary*;
using Descriptor = void*;

constexpr Status success = 0;
// Before 9.11 some shapes have wrong gradients, or want their workspace cleared.
constexpr std::size_t oldest_version = 91100;

enum class DataType : int { f32 = 0, f16 = 2, i32 = 4, bf16 = 9, boolean = 11 };

enum class PointwiseMode : int {
  mul = 1,
  min = 2,
  max = 3,
  div = 6,
  sub = 9,
  add = 0,
  exp = 13,
  log = 15,
  identity = 21,
  relu = 100,
  swish = 106,  // x sigmoid(x)
  greater_equal = 303,
  index = 501,   // of each element, along an axis
  select = 601,  // x where t, else b
};

enum class ReductionMode : int { add = 0, max = 3 };

enum class HeuristicMode : int { fallback = 2, a = 3 };

enum class ConvolutionMode : int { cross_correlation = 1 };

// What an engine does to numbers.
enum class NumericalNote : int {
  tensor_core = 0,
  down_convert_inputs = 1,
  reduced_precision_reduction = 2,
  fft = 3,
  nondeterministic = 4,
  winograd = 5,
};

enum class DescriptorType : int {
  pointwise = 0,
  convolution = 1,
  engine = 2,
  engine_config = 3,
  heuristic = 4,
  plan = 5,
  convolution_operation = 10,
  convolution_weight_grad_operation = 11,
  convolution_input_grad_operation = 12,
  pointwise_operation = 13,
  operation_graph = 15,
  variant_pack = 16,
  tensor = 17,
  matmul = 18,
  matmul_operation = 19,
  reduction = 21,
  reduction_operation = 22,
  reshape_operation = 31,
};

enum class AttributeType : int {
  handle = 0,
  data_type = 1,
  boolean = 2,
  int64 = 3,
  f32 = 4,
  pointer = 6,
  convolution_mode = 7,
  heuristic_mode = 8,
  numerical_note = 11,
  pointwise_mode = 14,
  descriptor = 15,
  reduction_mode = 18,
};

enum class Attribute : int {
  pointwise_mode = 0,
  pointwise_compute_type = 1,
  pointwise_axis = 9,
  convolution_compute_type = 100,
  convolution_mode = 101,
  convolution_dilations = 102,
  convolution_strides = 103,
  convolution_post_padding = 104,
  convolution_pre_padding = 105,
  convolution_spatial_dims = 106,
  heuristic_mode = 200,
  heuristic_graph = 201,
  heuristic_results = 202,
  engine_config_engine = 300,
  plan_handle = 400,
  plan_engine_config = 401,
  plan_workspace_size = 402,
  convolution_operation_alpha = 700,
  convolution_operation_beta = 701,
  convolution_operation_convolution = 702,
  convolution_operation_w = 703,
  convolution_operation_x = 704,
  convolution_operation_y = 705,
  convolution_input_grad_alpha = 706,
  convolution_input_grad_beta = 707,
  convolution_input_grad_convolution = 708,
  convolution_input_grad_w = 709,
  convolution_input_grad_dx = 710,
  convolution_input_grad_dy = 711,
  convolution_weight_grad_alpha = 712,
  convolution_weight_grad_beta = 713,
  convolution_weight_grad_convolution = 714,
  convolution_weight_grad_dw = 715,
  convolution_weight_grad_x = 716,
  convolution_weight_grad_dy = 717,
  pointwise_operation_pointwise = 750,
  pointwise_operation_x = 751,
  pointwise_operation_b = 752,
  pointwise_operation_y = 753,
  pointwise_operation_t = 758,
  graph_handle = 800,
  graph_operations = 801,
  tensor_alignment = 900,
  tensor_data_type = 901,
  tensor_dimensions = 902,
  tensor_strides = 903,
  tensor_id = 906,
  tensor_is_virtual = 907,
  tensor_is_by_value = 908,
  variant_pack_ids = 1000,
  variant_pack_pointers = 1001,
  variant_pack_workspace = 1003,
  engine_global_index = 1301,
  engine_numerical_notes = 1303,
  matmul_compute_type = 1500,
  matmul_operation_a = 1520,
  matmul_operation_b = 1521,
  matmul_operation_c = 1522,
  matmul_operation_matmul = 1523,
  reduction_mode = 1600,
  reduction_compute_type = 1601,
  reduction_operation_x = 1610,
  reduction_operation_y = 1611,
  reduction_operation_reduction = 1612,
  reshape_operation_x = 2200,
  reshape_operation_y = 2201,
};

struct Library : VendorLibrary {
  // DeviceError if it is not there or too old.
  Library();

  // DeviceError with what the library says of it.
  void check(Status status, std::string_view what) const;

  Function<std::size_t()> version{*this, "cudnnGetVersion"};  // 91900 for 9.19.0
  Function<const char*(Status)> error_string{*this, "cudnnGetErrorString"};
  Function<void(char*, std::size_t)> last_error_string{*this, "cudnnGetLastErrorString"};
  Function<Status(Handle*)> create{*this, "cudnnCreate"};
  Function<Status(Handle)> destroy{*this, "cudnnDestroy"};
  Function<Status(Handle, Stream)> set_stream{*this, "cudnnSetStream"};
  Function<Status(DescriptorType, Descriptor*)> create_descriptor{*this,
                                                                  "cudnnBackendCreateDescriptor"};
  Function<Status(Descriptor)> destroy_descriptor{*this, "cudnnBackendDestroyDescriptor"};
  Function<Status(Descriptor)> finalize{*this, "cudnnBackendFinalize"};
  Function<Status(Descriptor, Attribute, AttributeType, std::int64_t, const void*)> set_attribute{
      *this, "cudnnBackendSetAttribute"};
  Function<Status(Descriptor, Attribute, AttributeType, std::int64_t, std::int64_t*, void*)>
      get_attribute{*this, "cudnnBackendGetAttribute"};
  Function<Status(Handle, Descriptor, Descriptor)> execute{*this, "cudnnBackendExecute"};
};

template <class T>
constexpr AttributeType attribute_type = AttributeType::descriptor;
template <>
inline constexpr AttributeType attribute_type<Handle> = AttributeType::handle;
template <>
inline constexpr AttributeType attribute_type<DataType> = AttributeType::data_type;
template <>
inline constexpr AttributeType attribute_type<bool> = AttributeType::boolean;
template <>
inline constexpr AttributeType attribute_type<std::int64_t> = AttributeType::int64;
template <>
inline constexpr AttributeType attribute_type<float> = AttributeType::f32;
template <>
inline constexpr AttributeType attribute_type<ConvolutionMode> = AttributeType::convolution_mode;
template <>
inline constexpr AttributeType attribute_type<NumericalNote> = AttributeType::numerical_note;
template <>
inline constexpr AttributeType attribute_type<HeuristicMode> = AttributeType::heuristic_mode;
template <>
inline constexpr AttributeType attribute_type<PointwiseMode> = AttributeType::pointwise_mode;
template <>
inline constexpr AttributeType attribute_type<ReductionMode> = AttributeType::reduction_mode;

// A descriptor: created, given attributes, and finalized before it is used.
class Object {
 public:
  Object(const Library& library, DescriptorType type);
  ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  Descriptor get() const { return descriptor_; }

  template <class T>
  void set(Attribute attribute, const T& value) {
    set_array<T>(attribute, std::span(&value, 1));
  }
  void set(Attribute attribute, const Object& value) { set(attribute, value.get()); }
  template <class T>
  void set_array(Attribute attribute, std::span<const T> values) {
    set(attribute, attribute_type<T>, values.size(), values.data());
  }
  void set_pointers(Attribute attribute, std::span<void* const> pointers) {
    set(attribute, AttributeType::pointer, pointers.size(), pointers.data());
  }

  void finalize();
  bool try_finalize();  // false if the library has nothing for it

  // As many values as there are, and room for; how many. The objects of descriptors are the
  // caller's.
  template <class T>
  std::size_t get(Attribute attribute, std::span<T> values) const {
    return get(attribute, attribute_type<T>, values.size(), values.data());
  }

 private:
  void set(Attribute attribute, AttributeType type, std::size_t count, const void* values);
  std::size_t get(Attribute attribute, AttributeType type, std::size_t most, void* values) const;

  const Library& library_;
  Descriptor descriptor_ = nullptr;
};
using ObjectPtr = std::shared_ptr<Object>;

// A value of a graph: [batch, head, row, column].
using Extents = std::array<std::int64_t, 4>;
struct Tensor {
  Extents dims, strides;
  ObjectPtr object;
};

// Memory that a run is given: a tensor's, by its number.
struct Binding {
  std::int64_t id;
  const void* data;
};

// A plan to compute a graph.
class Plan {
 public:
  // `parts` are the objects that the plan refers to.
  Plan(const Library& library, Handle handle, ObjectPtr plan, std::vector<ObjectPtr> parts,
       std::vector<float> constants);

  std::size_t workspace() const { return workspace_; }  // bytes
  // Enqueues. Bindings name every tensor that is not the graph's own. The workspace is aligned to
  // 256 bytes.
  void run(Stream stream, std::span<const Binding> bindings, void* workspace) const;

 private:
  const Library& library_;
  Handle handle_;
  ObjectPtr plan_;
  std::vector<ObjectPtr> parts_;
  std::vector<float> constants_;  // of the graph, by -1 - id
  std::size_t workspace_ = 0;
  mutable OrderedStart start_;
};

// Down, across.
struct Convolution {
  std::array<std::int64_t, 2> strides, padding, dilations;
};

// Which engines may serve a graph.
struct EngineLimits {
  // Whether f32 operands may be rounded, to 19 bits by tensor cores, or transformed first.
  bool inexact = true;
  bool deterministic = false;
  std::int64_t except = -1;  // an engine, by its number among those of the same operations
};

struct PointwiseInputs {
  const Tensor& x;
  const Tensor* b = nullptr;
  const Tensor* condition = nullptr;
  std::int64_t axis = 0;
};

// Appends operations to a graph. What is computed on the way is f32 and in no memory, unless said
// otherwise; where an operand has 1 element along a dimension, it is repeated.
class GraphBuilder {
 public:
  explicit GraphBuilder(const Library& library) : library_(library) {}

  // In memory, which each run names by the same number, from 1 on.
  Tensor in_memory(std::int64_t id, DataType type, const Extents& dims, const Extents& strides);
  Tensor constant(float value);

  Tensor pointwise(PointwiseMode mode, const Tensor& x);
  Tensor pointwise(PointwiseMode mode, const Tensor& x, const Tensor& b,
                   DataType type = DataType::f32);
  void pointwise_into(const Tensor& y, PointwiseMode mode, const PointwiseInputs& in);
  Tensor index(const Tensor& x, std::int64_t axis);  // of each element along the axis
  Tensor select(const Tensor& condition, const Tensor& x, const Tensor& otherwise);

  Tensor reduce_rows(ReductionMode mode, const Tensor& x);  // to 1 column
  // Over the dimensions along which y is shorter.
  void reduce_into(const Tensor& y, ReductionMode mode, const Tensor& x);

  // The product of matrices in the last two dimensions. Fewer heads of b serve equal groups of
  // those of a.
  Tensor matmul(const Tensor& a, const Tensor& b, DataType type = DataType::f32);
  void matmul_into(const Tensor& c, const Tensor& a, const Tensor& b);

  // Convolves images x[N, C, H, W] with weights w[O, C / groups, R, S] into y[N, O, .., ..].
  void convolution_into(const Tensor& y, const Convolution& how, const Tensor& x, const Tensor& w);
  void convolution_input_grad_into(const Tensor& dx, const Convolution& how, const Tensor& dy,
                                   const Tensor& w);
  void convolution_weight_grad_into(const Tensor& dw, const Convolution& how, const Tensor& dy,
                                    const Tensor& x);

  // To compute into: f32, with the extents and strides of another.
  Tensor like(const Tensor& other);

  // With the last two dimensions exchanged, as `type`.
  Tensor transpose(const Tensor& x, DataType type);

  // The plan that the library expects to be the fastest. DeviceError if it has none.
  Plan plan(Handle handle, const EngineLimits& limits = {});
  // The one that it expects to be the `rank`-th, from 0 on. DeviceError if there are fewer, or if
  // it cannot be prepared after all.
  Plan plan_of_rank(Handle handle, std::size_t rank, const EngineLimits& limits);

 private:
  enum class Place : std::uint8_t { memory, host, nowhere };
  Tensor tensor(std::int64_t id, DataType type, const Extents& dims, const Extents& strides,
                Place place);
  Tensor computed(DataType type, const Extents& dims);
  Object& part(DescriptorType type);
  struct ConvolutionAttributes {
    DescriptorType operation;
    Attribute convolution, alpha, beta;
  };
  void convolution(const Convolution& how, const ConvolutionAttributes& kind,
                   std::initializer_list<std::pair<Attribute, const Tensor*>> tensors);
  // Null if it cannot be described.
  Object* operation_graph(Handle handle);
  std::vector<ObjectPtr> configs(const Object& graph, HeuristicMode mode,
                                 const EngineLimits& limits);
  // Null if the library cannot prepare it.
  ObjectPtr prepared(Handle handle, const ObjectPtr& config);
  Plan finished(Handle handle, ObjectPtr plan) const;
  Object& operation(DescriptorType type);

  const Library& library_;
  std::vector<ObjectPtr> operations_, parts_;
  std::vector<float> constants_;
  std::int64_t last_computed_ = 1000;
};

}  // namespace ridge::gpu::cudnn
