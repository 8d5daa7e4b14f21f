#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// What is read of a value whose elements are rows, each contiguous, `outer` groups of `length` of
// them: of each group `extent` from row `begin` on.
struct Rows {
  NodeId window;  // the one that reads them
  std::int64_t outer, length, begin, extent;

  std::int64_t count() const { return outer * length; }
  bool operator==(const Rows&) const = default;
};

std::optional<Rows> rows_of_window(const Rewriter& rw, NodeId n) {
  const Window* op = rw.op<Window>(n);
  if (!op) return std::nullopt;
  const Shape& x = rw.type(rw.node(n).inputs[0]).shape;
  const std::int64_t length = x[static_cast<int>(op->dim)];
  if (op->begin < 0 || op->extent >= length || op->begin + op->extent > length) return std::nullopt;
  std::int64_t outer = 1;
  for (std::uint32_t d = 0; d < op->dim; ++d) outer *= x[static_cast<int>(d)];
  return Rows{n, outer, length, op->begin, op->extent};
}

// Which operands of node n it reads row by row, so that some rows of its result need no others of
// them; none if it does not work by rows. What it reads besides is the same for all rows.
std::vector<std::size_t> operands_by_row(const Rewriter& rw, NodeId n, const Rows& rows) {
  const Node& node = rw.node(n);
  const Op* op = rw.op(n);
  if (!op) return {};
  if (rw.op<Reshape>(n)) return {0};
  const bool is_alone = std::ranges::all_of(node.outputs.begin() + 1, node.outputs.end(),
                                            [&](ValueId v) { return rw.uses(v).empty(); });
  if (!is_alone) return {};
  const Shape& y = rw.type(node.outputs[0]).shape;
  const bool has_these_rows = y.rows() == rows.count();
  // Where every operand is like the result, any elements may be called a row.
  const bool is_place_by_place =
      is_elementwise(*op) &&
      std::ranges::all_of(node.inputs, [&](ValueId in) { return rw.type(in).shape == y; });
  if (!has_these_rows && !is_place_by_place) return {};
  return row_operands(*op, rw.graph().types_of(node.inputs), rw.graph().types_of(node.outputs));
}

// By value, which of its rows are read, if not all.
class ReadRows {
 public:
  explicit ReadRows(const Rewriter& rw) : rw_(rw) {
    for (auto n = static_cast<NodeId>(rw.nodes().size()); n-- > 0;) visit(n);
  }

  // The rows of node n's result that are read, if n can compute them alone.
  std::optional<Rows> computed_by(NodeId n) const {
    if (n == no_node) return std::nullopt;
    const std::optional<Rows> rows = of(rw_.node(n).outputs[0]);
    return rows && !operands_by_row(rw_, n, *rows).empty() ? rows : std::nullopt;
  }

 private:
  std::optional<Rows> of(ValueId v) const {
    const auto found = read_.find(v);
    return found == read_.end() || rw_.is_readable(v) ? std::nullopt : found->second;
  }

  void visit(NodeId n) {
    const Node& node = rw_.node(n);
    std::vector<std::optional<Rows>> reads(node.inputs.size());
    if (const auto own = rows_of_window(rw_, n))
      reads[0] = own;
    else if (const auto rows = computed_by(n))
      for (const std::size_t i : operands_by_row(rw_, n, *rows)) reads[i] = rows;
    for (std::size_t i = 0; i < reads.size(); ++i) {
      const auto [found, is_new] = read_.try_emplace(node.inputs[i], reads[i]);
      if (!is_new && found->second != reads[i]) found->second.reset();
    }
  }

  const Rewriter& rw_;
  std::map<ValueId, std::optional<Rows>> read_;
};

// A window, and the nodes that alone compute what it reads, each with its operands by row.
struct Component {
  Rows rows;
  std::map<NodeId, std::vector<std::size_t>> nodes;
};

// Fewer rows of a product are worth a kernel that takes them out; of what moves data, hardly.
bool is_worth_it(const Rewriter& rw, const Component& component) {
  return std::ranges::any_of(component.nodes,
                             [&](const auto& node) { return rw.op<MatMul>(node.first); });
}

Component component_of(const Rewriter& rw, const ReadRows& read, const Rows& rows) {
  Component found{rows, {}};
  for (NodeId n = 0; n < rows.window; ++n)
    if (read.computed_by(n) == rows) found.nodes.emplace(n, operands_by_row(rw, n, rows));
  return found;
}

// Builds what the window reads, as [groups * extent, columns].
class Narrowed {
 public:
  Narrowed(Rewriter& rw, const Component& component) : rw_(rw), component_(component) {}

  Value of(ValueId v) {
    if (const auto found = built_.find(v); found != built_.end()) return found->second;
    const auto node = component_.nodes.find(rw_.producer(v));
    const Value narrowed =
        node == component_.nodes.end() ? taken(v) : computed(node->first, node->second);
    return built_[v] = narrowed;
  }

 private:
  Value taken(ValueId v) {
    const Rows& rows = component_.rows;
    const std::int64_t columns = rw_.type(v).numel() / rows.count();
    const Value x = reshape(rw_.value(v), {rows.outer, rows.length, columns});
    return reshape(window(x, 1, rows.begin, rows.extent), {rows.outer * rows.extent, columns});
  }

  Value computed(NodeId n, const std::vector<std::size_t>& operands_by_row) {
    const Node& node = rw_.node(n);
    if (std::holds_alternative<Reshape>(node.op->variant())) return of(node.inputs[0]);
    std::vector<Value> operands = rw_.values(node.inputs);
    for (const std::size_t i : operands_by_row) operands[i] = of(node.inputs[i]);
    const Scope module(rw_.graph(), node.scope);
    return rw_.graph().apply(*node.op, operands)[0];
  }

  Rewriter& rw_;
  const Component& component_;
  std::map<ValueId, Value> built_;
};

}  // namespace

// Where a window is all that is read of a value that is computed row by row, those rows alone are
// computed: of a ViT's last block all but its attention is for the class token.
std::size_t unread_rows(Graph& graph) {
  Rewriter rw(graph);
  const ReadRows read(rw);
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    const auto rows = rows_of_window(rw, n);
    if (!rows) continue;
    const Component component = component_of(rw, read, *rows);
    if (!is_worth_it(rw, component)) continue;
    std::vector<NodeId> leaving{n};
    for (const auto& [node, operands] : component.nodes) leaving.push_back(node);
    rw.replace(leaving, n, [&rw, n, component] {
      const ValueId y = rw.node(n).outputs[0];
      const Value narrowed = Narrowed(rw, component).of(rw.node(n).inputs[0]);
      return Rewriter::Substitutes{{y, reshape(narrowed, rw.type(y).shape)}};
    });
  }
  return rw.commit();
}

}  // namespace ridge
