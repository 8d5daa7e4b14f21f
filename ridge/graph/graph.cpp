#include "ridge/graph/graph.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/graph/op_rules.h"

namespace ridge {

std::string_view name_of(Phase phase) {
  constexpr std::string_view names[] = {"forward", "backward", "optimizer"};
  return names[static_cast<int>(phase)];
}

std::string_view name_of(Role role) {
  constexpr std::string_view names[] = {"input",           "parameter", "buffer",
                                        "optimizer state", "gradient",  "activation"};
  return names[static_cast<int>(role)];
}

const TensorType& Value::type() const { return graph->info(id).type; }

Graph::Graph() : scopes_{""}, kinds_{ScopeKind::plain}, scope_ids_{{"", 0}} {}

std::unique_ptr<Graph> Graph::clone() const { return std::unique_ptr<Graph>(new Graph(*this)); }

std::string Graph::scoped(std::string_view name) const {
  const std::string& scope = scopes_[scope_];
  return scope.empty() ? std::string(name) : fmt::format("{}.{}", scope, name);
}

void Graph::give_name(ValueId id, std::string name) {
  const auto [it, added] = by_name_.emplace(name, id);
  if (!added && it->second != id) throw UsageError("the graph already has a value named {}", name);
  if (values_[id].name != name) by_name_.erase(values_[id].name);
  values_[id].name = std::move(name);
}

Value Graph::add_value(ValueInfo info) {
  const auto id = static_cast<ValueId>(values_.size());
  info.scope = scope_;
  std::string name = std::exchange(info.name, "");
  values_.push_back(std::move(info));
  if (!name.empty()) give_name(id, std::move(name));
  return {this, id};
}

Value Graph::input(std::string name, TensorType type) {
  return add_value(
      {.type = type, .name = std::move(name), .role = Role::input, .persistent = true});
}

Value Graph::parameter(std::string_view name, Shape shape, Init init) {
  return state(scoped(name), {DType::f32, shape}, Role::parameter, init);
}

Value Graph::state(std::string name, TensorType type, Role role, Init init) {
  return add_value(
      {.type = type, .name = std::move(name), .role = role, .persistent = true, .init = init});
}

Value Graph::pack(std::span<const Value> parts, std::string name) {
  if (parts.empty()) throw UsageError("{} would be packed of no parts", name);
  const ValueInfo first = info(parts.front().id);
  ValueInfo whole{.type = first.type, .name = name, .role = first.role, .persistent = true};
  std::int64_t rows = 0;
  for (const Value& part : parts) {
    const ValueInfo& p = info(part.id);
    if (!p.persistent || p.role != first.role)
      throw UsageError("{} cannot be packed into {}: it is no persistent {}", p.name, name,
                       name_of(first.role));
    if (p.whole != no_value || !p.parts.empty() || std::ranges::count(parts, part) > 1)
      throw UsageError("{} cannot be packed into {}: it is packed already", p.name, name);
    const auto dims = p.type.shape.dims();
    if (dims.empty() || p.type.dtype != first.type.dtype ||
        !std::ranges::equal(dims.subspan(1), first.type.shape.dims().subspan(1)))
      throw ShapeError("{}, a {}, cannot be packed into {} with {}, a {}", p.name,
                       p.type.to_string(), name, first.name, first.type.to_string());
    rows += dims[0];
    whole.parts.push_back(part.id);
  }
  std::vector<std::int64_t> dims(first.type.shape.dims().begin(), first.type.shape.dims().end());
  dims[0] = rows;
  whole.type.shape = Shape(dims);
  const Value packed = add_value(std::move(whole));
  std::size_t offset = 0;
  for (const Value& part : parts) {
    values_[part.id].whole = packed.id;
    values_[part.id].offset = offset;
    offset += part.type().bytes();
  }
  return packed;
}

Value Graph::rounded_copy(Value original, DType dtype, std::string name) {
  const ValueInfo& info = values_[original.id];
  if (!info.persistent || info.type.dtype != DType::f32)
    throw UsageError("{} cannot be kept in {} as {}: it is no persistent f32 value", info.name,
                     name_of(dtype), name);
  const Value copy = state(std::move(name), {dtype, info.type.shape}, info.role, {});
  values_[copy.id].copy_of = original.id;
  values_[copy.id].scope = info.scope;
  return copy;
}

Value Graph::split(Value trainable, Value upper) {
  const std::string name = info(trainable.id).name;
  if (info(trainable.id).role != Role::parameter || info(trainable.id).whole != no_value ||
      info(upper.id).copy_of != trainable.id || upper.dtype() != DType::bf16)
    throw UsageError(
        "{} cannot be stored in halves, the upper one {}: that is no copy of it in bf16", name,
        info(upper.id).name);
  const bool packed = !info(trainable.id).parts.empty();
  const Value whole = packed ? trainable : pack({&trainable, 1}, name + ".split");
  values_[whole.id].type.dtype = DType::split_f32;
  values_[whole.id].scope = info(trainable.id).scope;
  values_[upper.id].whole = values_[upper.id].copy_of = whole.id;
  return whole;
}

Value Graph::share_out(Value whole, Part part) {
  const ValueInfo info = values_[whole.id];
  if (!info.persistent || info.whole != no_value)
    throw UsageError("{} cannot be shared out: it is no persistent value of its own", info.name);
  const Value own =
      state(info.name + ".shard", {info.type.dtype, {part.count}}, info.role, Init::none());
  values_[own.id].scope = info.scope;
  give_up(whole.id);
  for (const ValueId packed : info.parts) give_up(packed);
  share_out(whole.id, own.id, part);
  return own;
}

void Graph::share_out(ValueId whole, ValueId own, Part part) {
  values_[whole].shard = own;
  values_[whole].part = part;
  values_[own].shard_of = whole;
}

void Graph::read_from(ValueId slice, ValueId whole, std::int64_t first) {
  values_[slice].whole = whole;
  values_[slice].offset = static_cast<std::size_t>(first) * size_of(values_[whole].type.dtype);
}

std::optional<ValueId> Graph::shared_out(ValueId id) const {
  const ValueId whole = values_[id].whole == no_value ? id : values_[id].whole;
  return values_[whole].shard == no_value ? std::nullopt : std::optional(whole);
}

bool Graph::outlives_runs(ValueId id) const {
  if (values_[id].persistent) return values_[id].shard_of == no_value;
  const std::optional<ValueId> whole = shared_out(id);
  return whole && values_[values_[*whole].shard].persistent;
}

std::vector<Value> Graph::apply(std::shared_ptr<const Op> op, std::span<const Value> inputs) {
  std::vector<ValueId> ids;
  for (const Value& value : inputs) {
    if (value.graph != this)
      throw UsageError("{}: an operand belongs to no graph or to another one", name_of(*op));
    ids.push_back(value.id);
  }
  const std::vector<TensorType> types = infer(*op, types_of(ids));

  Node node{.op = std::move(op),
            .inputs = std::move(ids),
            .outputs = {},
            .scope = scope_,
            .phase = phase_,
            .forward = forward_};
  const auto producer = static_cast<NodeId>(nodes_.size());
  std::vector<Value> outputs;
  for (const TensorType& type : types) {
    const auto index = static_cast<std::uint32_t>(outputs.size());
    outputs.push_back(add_value({.type = type, .producer = producer, .output = index}));
    node.outputs.push_back(outputs.back().id);
  }
  nodes_.push_back(std::move(node));
  return outputs;
}

void Graph::make_persistent(ValueId id, std::string name, Role role) {
  ValueInfo& info = values_[id];
  if (info.name.empty()) give_name(id, std::move(name));
  info.role = role;
  info.persistent = true;
  info.init = Init::none();
}

std::vector<Node> Graph::take_nodes(NodeId first) {
  const auto begin = nodes_.begin() + first;
  std::vector<Node> taken(std::make_move_iterator(begin), std::make_move_iterator(nodes_.end()));
  nodes_.erase(begin, nodes_.end());
  for (const Node& node : taken)
    for (const ValueId out : node.outputs) values_[out].producer = no_node;
  return taken;
}

void Graph::append(Node node) {
  for (std::uint32_t i = 0; i < node.outputs.size(); ++i) {
    values_[node.outputs[i]].producer = static_cast<NodeId>(nodes_.size());
    values_[node.outputs[i]].output = i;
  }
  nodes_.push_back(std::move(node));
}

void Graph::keep(Value value, std::string name) {
  values_[value.id].kept = true;
  give_name(value.id, std::move(name));
}

void Graph::set_role(Value value, Role role, std::string name) {
  values_[value.id].role = role;
  give_name(value.id, std::move(name));
}

Value Graph::find(std::string_view name) {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? Value{} : Value{this, it->second};
}

std::vector<Value> Graph::parameters() {
  std::vector<Value> found;
  for (ValueId id = 0; id < values_.size(); ++id)
    if (values_[id].role == Role::parameter && values_[id].parts.empty() &&
        values_[id].copy_of == no_value && values_[id].shard_of == no_value)
      found.push_back({this, id});
  return found;
}

std::vector<Value> Graph::trainables() {
  std::vector<Value> found;
  for (ValueId id = 0; id < values_.size(); ++id)
    if (values_[id].role == Role::parameter && values_[id].whole == no_value &&
        values_[id].copy_of == no_value && values_[id].shard_of == no_value)
      found.push_back({this, id});
  return found;
}

std::vector<TensorType> Graph::types_of(std::span<const ValueId> ids) const {
  std::vector<TensorType> types;
  types.reserve(ids.size());
  for (const ValueId id : ids) types.push_back(values_[id].type);
  return types;
}

std::optional<ScopeId> Graph::enclosing(ScopeId scope, ScopeKind kind) const {
  std::string_view name = scopes_[scope];
  while (!name.empty()) {
    const auto found = scope_ids_.find(name);
    if (found != scope_ids_.end() && kinds_[found->second] == kind) return found->second;
    name = name.substr(0, name.rfind('.') == name.npos ? 0 : name.rfind('.'));
  }
  return std::nullopt;
}

std::vector<ScopeId> Graph::blocks() const {
  std::vector<ScopeId> found;
  for (ScopeId scope = 0; scope < kinds_.size(); ++scope)
    if (kinds_[scope] == ScopeKind::block) found.push_back(scope);
  return found;
}

Scope::Scope(Graph& graph, std::string_view name, ScopeKind kind)
    : graph_(graph), outer_(graph.scope_) {
  const std::string full = graph.scoped(name);
  const auto next = static_cast<ScopeId>(graph.scopes_.size());
  const auto [it, added] = graph.scope_ids_.emplace(full, next);
  if (added) {
    graph.scopes_.push_back(full);
    graph.kinds_.push_back(kind);
  }
  graph.scope_ = it->second;
}

Scope::Scope(Graph& graph, ScopeId scope) : graph_(graph), outer_(graph.scope_) {
  graph.scope_ = scope;
}

}  // namespace ridge
