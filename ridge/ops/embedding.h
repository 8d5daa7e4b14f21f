#pragma once

#include "ridge/ops/operator.h"

namespace ridge {

// y[.., :] = table[ids[..], :]. Takes table[V, D] and i32 ids[..] in [0, V), which the caller has
// checked; gives y[.., D] of the table's dtype.
struct Embedding {
  static constexpr std::string_view name = "embedding";
  static constexpr bool partial = true;  // the rows that ids name
  static constexpr std::string_view aten = "aten::embedding";

  RIDGE_OPERATOR(Embedding);
  std::vector<Value> grad(GradBuilder& builder) const;
  std::int64_t id_range(Types in) const { return in[0].shape[0]; }
};

// Takes (dy[.., D], ids[..]) and gives dtable[rows, D]: every row is the sum, in the order of ids,
// of the dy whose id it is; rows that no id names are 0. Accumulates in f32.
struct EmbeddingGrad {
  static constexpr std::string_view name = "embedding_grad";
  static constexpr std::string_view aten = "aten::embedding_dense_backward";

  std::int64_t rows = 0;

  RIDGE_OPERATOR(EmbeddingGrad);
  std::int64_t id_range(Types) const { return rows; }
};

// Adds rows to those of a table that ids name: table[ids[i], :] += rows[i, :] for i = 0, 1, ..
// Takes table[V, D], i32 ids[n] in [0, V), which the caller has checked, and rows[n, D]; gives the
// table, in its memory. Sums are f32 and rounded once. It has no gradient: it is what an optimizer
// does with the gradient of a few rows.
struct IndexAdd {
  static constexpr std::string_view name = "index_add";
  static constexpr bool partial = true;  // the rows that ids name
  static constexpr std::string_view aten = "aten::index_add_";

  // Which operand is which.
  struct Operands {
    std::size_t table = 0, ids = 1, rows = 2, count = 3;
  };
  static constexpr Operands operands() { return {}; }

  RIDGE_OPERATOR(IndexAdd);
  std::optional<Alias> aliased_input(std::uint32_t output, Types in) const;
  std::int64_t id_range(Types in) const { return in[operands().table].shape[0]; }
};

Value embedding(Value table, Value ids);

}  // namespace ridge
