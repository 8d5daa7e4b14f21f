#include "ridge/gpu/vendor/cudnn.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/gpu/device/libraries.h"

namespace ridge::gpu::cudnn {
namespace {

constexpr Status not_supported = 3000, end_of_not_supported = 4000;
constexpr std::int64_t alignment = 16;  // bytes, of what is in memory
constexpr std::size_t most_configs = 8;
// What the library expects of engines; and those that serve where it expects nothing.
constexpr HeuristicMode heuristic_modes[] = {HeuristicMode::a, HeuristicMode::fallback};

Extents packed(const Extents& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

bool is_within(const Library& library, const Object& config, const EngineLimits& limits) {
  Object engine(library, DescriptorType::engine);
  std::array<Descriptor, 1> found{engine.get()};
  config.get<Descriptor>(Attribute::engine_config_engine, found);
  std::int64_t number = 0;
  engine.get(Attribute::engine_global_index, std::span(&number, 1));
  if (number == limits.except) return false;
  std::array<NumericalNote, 16> notes{};
  const std::size_t count =
      engine.get<NumericalNote>(Attribute::engine_numerical_notes, std::span(notes));
  return std::none_of(notes.begin(), notes.begin() + count, [&](NumericalNote note) {
    switch (note) {
      case NumericalNote::tensor_core:
      case NumericalNote::down_convert_inputs:
      case NumericalNote::fft:
      case NumericalNote::winograd:
        return !limits.inexact;
      case NumericalNote::nondeterministic:
        return limits.deterministic;
      default:
        return note == NumericalNote::reduced_precision_reduction;
    }
  });
}

// Constants are counted downwards.
std::int64_t constant_id(std::size_t i) { return -1 - static_cast<std::int64_t>(i); }

}  // namespace

Library::Library() : VendorLibrary(search_for(cudnn_library())) {
  if (version() < oldest_version)
    throw DeviceError("the cuDNN in {} is too old: version {}.{} or later is needed", path(),
                      oldest_version / 10000, oldest_version / 100 % 100);
}

void Library::check(Status status, std::string_view what) const {
  if (status == success) return;
  cudaGetLastError();  // it may be the library's, and is no fault of the next launch
  std::array<char, 512> more{};
  last_error_string(more.data(), more.size() - 1);
  throw DeviceError("cuDNN failed in {}: {}{}{}", what, error_string(status), more[0] ? "; " : "",
                    more.data());
}

Object::Object(const Library& library, DescriptorType type) : library_(library) {
  library_.check(library_.create_descriptor(type, &descriptor_), "describing a computation");
}
Object::~Object() { library_.destroy_descriptor(descriptor_); }

void Object::set(Attribute attribute, AttributeType type, std::size_t count, const void* values) {
  library_.check(library_.set_attribute(descriptor_, attribute, type,
                                        static_cast<std::int64_t>(count), values),
                 "describing a computation");
}

std::size_t Object::get(Attribute attribute, AttributeType type, std::size_t most,
                        void* values) const {
  std::int64_t count = 0;
  library_.check(library_.get_attribute(descriptor_, attribute, type,
                                        static_cast<std::int64_t>(most), &count, values),
                 "asking for a plan");
  return std::min(most, static_cast<std::size_t>(count));
}

void Object::finalize() {
  library_.check(library_.finalize(descriptor_), "describing a computation");
}

bool Object::try_finalize() {
  const Status status = library_.finalize(descriptor_);
  if (status >= not_supported && status < end_of_not_supported) {
    cudaGetLastError();
    return false;
  }
  library_.check(status, "preparing a plan");
  return true;
}

Plan::Plan(const Library& library, Handle handle, ObjectPtr plan, std::vector<ObjectPtr> parts,
           std::vector<float> constants)
    : library_(library),
      handle_(handle),
      plan_(std::move(plan)),
      parts_(std::move(parts)),
      constants_(std::move(constants)) {
  std::int64_t bytes = 0;
  plan_->get(Attribute::plan_workspace_size, std::span(&bytes, 1));
  workspace_ = static_cast<std::size_t>(bytes);
}

void Plan::run(Stream stream, std::span<const Binding> bindings, void* workspace) const {
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  for (const Binding& binding : bindings) {
    ids.push_back(binding.id);
    pointers.push_back(const_cast<void*>(binding.data));
  }
  for (std::size_t i = 0; i < constants_.size(); ++i) {
    ids.push_back(constant_id(i));
    pointers.push_back(const_cast<float*>(&constants_[i]));
  }
  Object pack(library_, DescriptorType::variant_pack);
  pack.set_array<std::int64_t>(Attribute::variant_pack_ids, ids);
  pack.set_pointers(Attribute::variant_pack_pointers, pointers);
  pack.set_pointers(Attribute::variant_pack_workspace, std::span(&workspace, 1));
  pack.finalize();
  start_.run(stream, [&](Stream into) {
    library_.check(library_.set_stream(handle_, into), "choosing the stream");
    library_.check(library_.execute(handle_, plan_->get(), pack.get()), "a launch");
  });
}

Tensor GraphBuilder::in_memory(std::int64_t id, DataType type, const Extents& dims,
                               const Extents& strides) {
  return tensor(id, type, dims, strides, Place::memory);
}

Tensor GraphBuilder::constant(float value) {
  constants_.push_back(value);
  return tensor(constant_id(constants_.size() - 1), DataType::f32, {1, 1, 1, 1}, {1, 1, 1, 1},
                Place::host);
}

Tensor GraphBuilder::tensor(std::int64_t id, DataType type, const Extents& dims,
                            const Extents& strides, Place place) {
  auto object = std::make_shared<Object>(library_, DescriptorType::tensor);
  object->set(Attribute::tensor_id, id);
  object->set(Attribute::tensor_data_type, type);
  object->set_array<std::int64_t>(Attribute::tensor_dimensions, dims);
  object->set_array<std::int64_t>(Attribute::tensor_strides, strides);
  object->set(Attribute::tensor_alignment, alignment);
  object->set(Attribute::tensor_is_virtual, place == Place::nowhere);
  object->set(Attribute::tensor_is_by_value, place == Place::host);
  object->finalize();
  parts_.push_back(object);
  return {dims, strides, object};
}

Tensor GraphBuilder::computed(DataType type, const Extents& dims) {
  return tensor(++last_computed_, type, dims, packed(dims), Place::nowhere);
}

Object& GraphBuilder::part(DescriptorType type) {
  parts_.push_back(std::make_shared<Object>(library_, type));
  return *parts_.back();
}

Object& GraphBuilder::operation(DescriptorType type) {
  operations_.push_back(std::make_shared<Object>(library_, type));
  return *operations_.back();
}

void GraphBuilder::pointwise_into(const Tensor& y, PointwiseMode mode, const PointwiseInputs& in) {
  Object& description = part(DescriptorType::pointwise);
  description.set(Attribute::pointwise_mode, mode);
  description.set(Attribute::pointwise_compute_type,
                  mode == PointwiseMode::greater_equal ? DataType::boolean : DataType::f32);
  if (mode == PointwiseMode::index) description.set(Attribute::pointwise_axis, in.axis);
  description.finalize();
  Object& op = operation(DescriptorType::pointwise_operation);
  op.set(Attribute::pointwise_operation_pointwise, description);
  op.set(Attribute::pointwise_operation_x, *in.x.object);
  if (in.b) op.set(Attribute::pointwise_operation_b, *in.b->object);
  if (in.condition) op.set(Attribute::pointwise_operation_t, *in.condition->object);
  op.set(Attribute::pointwise_operation_y, *y.object);
  op.finalize();
}

Tensor GraphBuilder::pointwise(PointwiseMode mode, const Tensor& x) {
  const Tensor y = computed(DataType::f32, x.dims);
  pointwise_into(y, mode, {.x = x});
  return y;
}

Tensor GraphBuilder::pointwise(PointwiseMode mode, const Tensor& x, const Tensor& b,
                               DataType type) {
  const Tensor y = computed(type, x.dims);
  pointwise_into(y, mode, {.x = x, .b = &b});
  return y;
}

Tensor GraphBuilder::index(const Tensor& x, std::int64_t axis) {
  const Tensor y = computed(DataType::i32, x.dims);
  pointwise_into(y, PointwiseMode::index, {.x = x, .axis = axis});
  return y;
}

Tensor GraphBuilder::select(const Tensor& condition, const Tensor& x, const Tensor& otherwise) {
  const Tensor y = computed(DataType::f32, x.dims);
  pointwise_into(y, PointwiseMode::select, {.x = x, .b = &otherwise, .condition = &condition});
  return y;
}

void GraphBuilder::reduce_into(const Tensor& y, ReductionMode mode, const Tensor& x) {
  Object& description = part(DescriptorType::reduction);
  description.set(Attribute::reduction_mode, mode);
  description.set(Attribute::reduction_compute_type, DataType::f32);
  description.finalize();
  Object& op = operation(DescriptorType::reduction_operation);
  op.set(Attribute::reduction_operation_reduction, description);
  op.set(Attribute::reduction_operation_x, *x.object);
  op.set(Attribute::reduction_operation_y, *y.object);
  op.finalize();
}

Tensor GraphBuilder::reduce_rows(ReductionMode mode, const Tensor& x) {
  const Tensor y = computed(DataType::f32, {x.dims[0], x.dims[1], x.dims[2], 1});
  reduce_into(y, mode, x);
  return y;
}

void GraphBuilder::matmul_into(const Tensor& c, const Tensor& a, const Tensor& b) {
  Object& description = part(DescriptorType::matmul);
  description.set(Attribute::matmul_compute_type, DataType::f32);
  description.finalize();
  Object& op = operation(DescriptorType::matmul_operation);
  op.set(Attribute::matmul_operation_matmul, description);
  op.set(Attribute::matmul_operation_a, *a.object);
  op.set(Attribute::matmul_operation_b, *b.object);
  op.set(Attribute::matmul_operation_c, *c.object);
  op.finalize();
}

Tensor GraphBuilder::matmul(const Tensor& a, const Tensor& b, DataType type) {
  const Tensor c = computed(type, {a.dims[0], a.dims[1], a.dims[2], b.dims[3]});
  matmul_into(c, a, b);
  return c;
}

Tensor GraphBuilder::transpose(const Tensor& x, DataType type) {
  const auto exchanged = [](Extents e) {
    std::swap(e[2], e[3]);
    return e;
  };
  const Tensor y =
      tensor(++last_computed_, type, exchanged(x.dims), exchanged(x.strides), Place::nowhere);
  Object& op = operation(DescriptorType::reshape_operation);
  op.set(Attribute::reshape_operation_x, *x.object);
  op.set(Attribute::reshape_operation_y, *y.object);
  op.finalize();
  return y;
}

Tensor GraphBuilder::like(const Tensor& other) {
  return tensor(++last_computed_, DataType::f32, other.dims, other.strides, Place::nowhere);
}

// An operation of the attributes that its kind has for the convolution, for how far results are
// scaled, and for its tensors.
void GraphBuilder::convolution(const Convolution& how, const ConvolutionAttributes& kind,
                               std::initializer_list<std::pair<Attribute, const Tensor*>> tensors) {
  Object& description = part(DescriptorType::convolution);
  description.set(Attribute::convolution_spatial_dims, std::int64_t{2});
  description.set(Attribute::convolution_compute_type, DataType::f32);
  description.set(Attribute::convolution_mode, ConvolutionMode::cross_correlation);
  description.set_array<std::int64_t>(Attribute::convolution_strides, how.strides);
  description.set_array<std::int64_t>(Attribute::convolution_dilations, how.dilations);
  description.set_array<std::int64_t>(Attribute::convolution_pre_padding, how.padding);
  description.set_array<std::int64_t>(Attribute::convolution_post_padding, how.padding);
  description.finalize();
  Object& op = operation(kind.operation);
  op.set(kind.convolution, description);
  for (const auto& [attribute, tensor] : tensors) op.set(attribute, *tensor->object);
  op.set(kind.alpha, 1.0f);
  op.set(kind.beta, 0.0f);
  op.finalize();
}

void GraphBuilder::convolution_into(const Tensor& y, const Convolution& how, const Tensor& x,
                                    const Tensor& w) {
  convolution(how,
              {DescriptorType::convolution_operation, Attribute::convolution_operation_convolution,
               Attribute::convolution_operation_alpha, Attribute::convolution_operation_beta},
              {{Attribute::convolution_operation_x, &x},
               {Attribute::convolution_operation_w, &w},
               {Attribute::convolution_operation_y, &y}});
}

void GraphBuilder::convolution_input_grad_into(const Tensor& dx, const Convolution& how,
                                               const Tensor& dy, const Tensor& w) {
  convolution(how,
              {DescriptorType::convolution_input_grad_operation,
               Attribute::convolution_input_grad_convolution,
               Attribute::convolution_input_grad_alpha, Attribute::convolution_input_grad_beta},
              {{Attribute::convolution_input_grad_dx, &dx},
               {Attribute::convolution_input_grad_w, &w},
               {Attribute::convolution_input_grad_dy, &dy}});
}

void GraphBuilder::convolution_weight_grad_into(const Tensor& dw, const Convolution& how,
                                                const Tensor& dy, const Tensor& x) {
  convolution(how,
              {DescriptorType::convolution_weight_grad_operation,
               Attribute::convolution_weight_grad_convolution,
               Attribute::convolution_weight_grad_alpha, Attribute::convolution_weight_grad_beta},
              {{Attribute::convolution_weight_grad_dw, &dw},
               {Attribute::convolution_weight_grad_x, &x},
               {Attribute::convolution_weight_grad_dy, &dy}});
}

Object* GraphBuilder::operation_graph(Handle handle) {
  std::vector<Descriptor> operations;
  for (const ObjectPtr& operation : operations_) operations.push_back(operation->get());
  Object& graph = part(DescriptorType::operation_graph);
  graph.set_array<Descriptor>(Attribute::graph_operations, operations);
  graph.set(Attribute::graph_handle, handle);
  return graph.try_finalize() ? &graph : nullptr;
}

Plan GraphBuilder::plan(Handle handle, const EngineLimits& limits) {
  if (const Object* graph = operation_graph(handle))
    for (const HeuristicMode mode : heuristic_modes)
      for (const ObjectPtr& config : configs(*graph, mode, limits))
        if (ObjectPtr plan = prepared(handle, config)) return finished(handle, std::move(plan));
  throw DeviceError("cuDNN has no kernel for this");
}

Plan GraphBuilder::plan_of_rank(Handle handle, std::size_t rank, const EngineLimits& limits) {
  if (const Object* graph = operation_graph(handle))
    for (const HeuristicMode mode : heuristic_modes) {
      const std::vector<ObjectPtr> all = configs(*graph, mode, limits);
      if (rank >= all.size()) {
        rank -= all.size();
        continue;
      }
      if (ObjectPtr plan = prepared(handle, all[rank])) return finished(handle, std::move(plan));
      break;
    }
  throw DeviceError("cuDNN has no such plan");
}

std::vector<ObjectPtr> GraphBuilder::configs(const Object& graph, HeuristicMode mode,
                                             const EngineLimits& limits) {
  Object& heuristic = part(DescriptorType::heuristic);
  heuristic.set(Attribute::heuristic_graph, graph);
  heuristic.set(Attribute::heuristic_mode, mode);
  std::vector<ObjectPtr> configs;
  if (!heuristic.try_finalize()) return configs;
  std::vector<Descriptor> found;
  for (std::size_t i = 0; i < most_configs; ++i) {
    configs.push_back(std::make_shared<Object>(library_, DescriptorType::engine_config));
    found.push_back(configs.back()->get());
  }
  configs.resize(heuristic.get(Attribute::heuristic_results, std::span<Descriptor>(found)));
  std::erase_if(configs,
                [&](const ObjectPtr& config) { return !is_within(library_, *config, limits); });
  return configs;
}

ObjectPtr GraphBuilder::prepared(Handle handle, const ObjectPtr& config) {
  auto plan = std::make_shared<Object>(library_, DescriptorType::plan);
  plan->set(Attribute::plan_handle, handle);
  plan->set(Attribute::plan_engine_config, *config);
  if (!plan->try_finalize()) return nullptr;
  parts_.push_back(config);
  return plan;
}

Plan GraphBuilder::finished(Handle handle, ObjectPtr plan) const {
  std::vector<ObjectPtr> parts = parts_;
  parts.insert(parts.end(), operations_.begin(), operations_.end());
  return Plan(library_, handle, std::move(plan), std::move(parts), constants_);
}

}  // namespace ridge::gpu::cudnn
