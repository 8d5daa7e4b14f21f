#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/part.h"
#include "ridge/base/shape.h"

namespace ridge {

struct Op;  // ops/op.h: the closed set of operators
class Graph;

using ValueId = std::uint32_t;
using NodeId = std::uint32_t;
using ScopeId = std::uint32_t;
inline constexpr NodeId no_node = ~NodeId{0};
inline constexpr ValueId no_value = ~ValueId{0};

// The part of a training step that a node belongs to.
enum class Phase : std::uint8_t { forward, backward, optimizer };
std::string_view name_of(Phase phase);

// The role of a value. Inputs are fed before each run; parameters, buffers (what a model keeps
// beside them and no optimizer touches: running statistics, constants), optimizer state and
// accumulated gradients live from step to step; everything else is born and dies within a run.
enum class Role : std::uint8_t { input, parameter, buffer, optimizer_state, gradient, activation };
std::string_view name_of(Role role);

// The kind of a scope, by which passes and reports find it rather than by its name.
enum class ScopeKind : std::uint8_t {
  plain,
  block,      // a unit that repeats along the depth: what flows between blocks is all that is kept
              // where their inside is recomputed
  attention,  // the attention of a block
  feed_forward,  // the layers of a block that work on each position alone
  embedding,     // what makes tokens, or patches of an image, the network's first values
  head,          // what makes its last values logits, and the loss of these
};

// The content of a persistent value before the first step.
struct Init {
  enum class Kind : std::uint8_t { constant, normal, values, none } kind = Kind::constant;
  float value = 0.0f;  // of each element; of Kind::normal, whose mean is 0, the standard deviation
  // Initial elements for Kind::values, each converted to the value's dtype.
  std::shared_ptr<const std::vector<float>> values{};

  static Init zeros() { return constant(0.0f); }
  static Init ones() { return constant(1.0f); }
  static Init constant(float value) { return {Kind::constant, value}; }
  static Init normal(float std) { return {Kind::normal, std}; }
  static Init none() { return {Kind::none}; }  // somebody writes it before the first step
  static Init of(std::vector<float> values) {
    return {Kind::values, 0.0f, std::make_shared<const std::vector<float>>(std::move(values))};
  }
  bool operator==(const Init&) const = default;
};

// A handle to one tensor of a graph, cheap to copy. A default-constructed handle is "no value".
struct Value {
  Graph* graph = nullptr;
  ValueId id = 0;

  explicit operator bool() const { return graph != nullptr; }
  const TensorType& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  bool operator==(const Value&) const = default;
};

struct ValueInfo {
  TensorType type;
  std::string name;
  Role role = Role::activation;
  bool persistent = false;    // keeps its memory from run to run
  bool kept = false;          // stays readable after a run, though it does not persist
  NodeId producer = no_node;  // no_node for inputs and persistent values
  std::uint32_t output = 0;   // which output of its producer
  ScopeId scope = 0;
  Init init;
  // The packed value whose memory holds this part, and this part's first byte in it; for an upper
  // half (Graph::split), the value that is stored in halves.
  ValueId whole = no_value;
  std::size_t offset = 0;
  std::vector<ValueId> parts;  // of a packed value, in the order of their memory
  ValueId copy_of = no_value;  // of a copy: the persistent value that it repeats in its own dtype
  // Of a value that is shared out among ranks: the vector that holds this rank's part, and which
  // that is; of that vector: the value.
  ValueId shard = no_value;
  Part part;
  ValueId shard_of = no_value;
};

// One application of an operator.
struct Node {
  std::shared_ptr<const Op> op;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  ScopeId scope = 0;
  Phase phase = Phase::forward;
  NodeId forward = no_node;  // of a node made by autodiff: the node it helps to differentiate
};

// A typed operator graph in execution order: nodes only ever use values that exist already. The
// graph is the one description of a model; costs, memory and schedules are all read off it.
// Not movable, because values point to it.
class Graph {
 public:
  Graph();
  Graph& operator=(const Graph&) = delete;

  // The same values and nodes under the same ids. Handles stay with the graph they were taken from.
  std::unique_ptr<Graph> clone() const;

  Value input(std::string name, TensorType type);
  // `name` is unique within the graph and relative to the current scope.
  Value parameter(std::string_view name, Shape shape, Init init);
  // A persistent value with a full name, such as "<parameter>.exp_avg".
  Value state(std::string name, TensorType type, Role role, Init init);
  // A persistent value, by its full name, whose memory is that of the parts, one after another
  // without gaps: their concatenation along dimension 0. They are persistent values of one dtype,
  // role and trailing dimensions, and keep their names and initial values, so that whoever writes
  // or reads parameters one by one goes on doing so. UsageError if a part is part of another value
  // already; ShapeError if the shapes do not fit.
  Value pack(std::span<const Value> parts, std::string name);

  // A persistent value, by its full name, that holds what `original` does, rounded to a dtype of 16
  // bits. It follows from that one: whoever writes the original from outside writes the copy with
  // it, it is in no checkpoint, and no parameter beside the one it repeats; a node that updates the
  // original has to update the copy. UsageError if the original is no persistent f32 value.
  Value rounded_copy(Value original, DType dtype, std::string name);
  // Stores a trainable in halves (DType::split_f32): `upper`, which was its rounded copy in bf16,
  // takes no memory of its own any more but is the upper half. Returns the value that nodes have to
  // use in the trainable's place: itself, if it is packed, else one of which it is the only part.
  // Parameters keep name, type and initial value, and those who write or read them from outside do
  // so in f32 as before. UsageError if that is not what `upper` is.
  Value split(Value trainable, Value upper);

  // Shares a persistent value out among ranks: it, and the parts that it is packed of, take no
  // memory any more, and the vector that is returned holds this rank's elements. They keep names,
  // roles and initial values, and those who write or read them from outside do so as before; all
  // ranks have to do so together. UsageError for what is no persistent value, or shares its memory
  // with one that it was packed into.
  Value share_out(Value whole, Part part);
  // The same of a computed value that no node computes any more, where `own` is this rank's part.
  void share_out(ValueId whole, ValueId own, Part part);
  // Nothing computes `slice` any more; who reads it from outside gets the elements from `first` on
  // of a value that is shared out.
  void read_from(ValueId slice, ValueId whole, std::int64_t first);
  // The value that is shared out and holds this one: itself, or what it is packed into. None if its
  // memory is its own.
  std::optional<ValueId> shared_out(ValueId id) const;
  // Whether its content, or this rank's part of it, lives from run to run.
  bool outlives_runs(ValueId id) const;

  // Applies an operator: infers its output types (ShapeError if the operands do not fit) and
  // appends the node under the current scope and phase.
  std::vector<Value> apply(std::shared_ptr<const Op> op, std::span<const Value> inputs);
  // The same; defined in ops/op.cpp, where operators are known.
  std::vector<Value> apply(Op op, std::span<const Value> inputs);
  Value apply1(Op op, std::initializer_list<Value> inputs);  // an operator of one output

  // Keeps a computed value readable after the run, and names it. UsageError, here and below, if
  // another value has that name.
  void keep(Value value, std::string name);
  void set_role(Value value, Role role, std::string name);
  // Sets the initial content of a persistent value that is not packed.
  void set_init(Value value, Init init) { values_[value.id].init = init; }

  // For freezing (passes/freeze.h): a computed value, whose producer will leave, becomes one
  // that somebody writes, of this role, and under this name unless it has one; a persistent value
  // that no node uses takes no memory any more, though it keeps its name and role.
  void make_persistent(ValueId id, std::string name, Role role);
  void give_up(ValueId id) { values_[id].persistent = false; }

  // For rewriting (passes/rewrite.h): what computes a value gives it in this dtype from now on.
  void set_dtype(ValueId id, DType dtype) { values_[id].type.dtype = dtype; }
  // Takes the nodes from `first` on out, which leaves what they
  // computed without a producer, and appends one, whose outputs nothing produces.
  std::vector<Node> take_nodes(NodeId first = 0);
  void append(Node node);

  const std::vector<Node>& nodes() const { return nodes_; }
  const ValueInfo& info(ValueId id) const { return values_[id]; }
  Value value(ValueId id) { return {this, id}; }
  std::size_t value_count() const { return values_.size(); }
  Value find(std::string_view name);  // by full name; no value if there is none
  // Both in order of creation. What a model's author declared, packed or not; and what an optimizer
  // updates: packed parameters, and those that are no part of one.
  std::vector<Value> parameters();
  std::vector<Value> trainables();

  // Full path of a scope, such as "layers.0.attention"; the root is "".
  const std::string& scope_name(ScopeId scope) const { return scopes_[scope]; }
  // The innermost scope of that kind that is `scope` or encloses it; none if there is none.
  std::optional<ScopeId> enclosing(ScopeId scope, ScopeKind kind) const;
  // All blocks, in order of creation.
  std::vector<ScopeId> blocks() const;
  std::size_t scope_count() const { return scopes_.size(); }
  ScopeId current_scope() const { return scope_; }

  std::vector<TensorType> types_of(std::span<const ValueId> ids) const;

 private:
  friend class Scope;
  friend class PhaseScope;

  Graph(const Graph&) = default;

  Value add_value(ValueInfo info);
  void give_name(ValueId id, std::string name);  // UsageError if another value has it
  std::string scoped(std::string_view name) const;

  std::vector<Node> nodes_;
  std::deque<ValueInfo> values_;  // a deque, so that references survive growth
  std::map<std::string, ValueId, std::less<>> by_name_;
  std::vector<std::string> scopes_;
  std::vector<ScopeKind> kinds_;  // by scope
  std::map<std::string, ScopeId, std::less<>> scope_ids_;
  ScopeId scope_ = 0;
  Phase phase_ = Phase::forward;
  NodeId forward_ = no_node;
};

// While alive, nodes and parameters are created under `name` (below the enclosing scope).
class Scope {
 public:
  Scope(Graph& graph, std::string_view name, ScopeKind kind = ScopeKind::plain);
  Scope(Graph& graph, ScopeId scope);  // re-enters an existing scope
  ~Scope() { graph_.scope_ = outer_; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Graph& graph_;
  ScopeId outer_;
};

// While alive, nodes are created in `phase`, as part of the gradient of node `forward` if one is
// given.
class PhaseScope {
 public:
  PhaseScope(Graph& graph, Phase phase, NodeId forward = no_node)
      : graph_(graph), outer_(graph.phase_), outer_forward_(graph.forward_) {
    graph.phase_ = phase;
    graph.forward_ = forward;
  }
  ~PhaseScope() {
    graph_.phase_ = outer_;
    graph_.forward_ = outer_forward_;
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Graph& graph_;
  Phase outer_;
  NodeId outer_forward_;
};

}  // namespace ridge
