#include "ridge/models/vision/windows.h"

#include <vector>

#include "ridge/ops/embedding.h"
#include "ridge/ops/layout.h"

namespace ridge::vision {

Value relative_position_index(const Layers& layers, std::int64_t size, const Shape& shape) {
  std::vector<float> index;
  const std::int64_t positions = size * size;
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t q = 0; q < positions; ++q) {
      const std::int64_t down = p / size - q / size + size - 1,
                         across = p % size - q % size + size - 1;
      index.push_back(static_cast<float>(down * (2 * size - 1) + across));
    }
  return layers.constant("relative_position_index", {DType::i32, shape}, std::move(index));
}

Value relative_position_bias(Value table, Value index, std::int64_t positions) {
  const std::int64_t heads = table.shape()[1];
  const Value rows = embedding(table, reshape(index, {positions, positions}));
  return reshape(permute(rows, {2, 0, 1}), {heads, positions, positions});
}

}  // namespace ridge::vision
