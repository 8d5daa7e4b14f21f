#pragma once

#include <cstdint>

#include "ridge/gpu/kernels/product/products_sm90.h"

namespace ridge::gpu::sm90 {

// What shared memory there is beside a gradient's product: for gate and up to be loaded further
// ahead, or for the product's operands. Which is faster depends on how long the product is.
enum class GradWay : std::uint8_t { more_ahead, more_stages };

// What products90.h declares. Enqueue; DeviceError.
void product(const ProductShape& shape, const void* a, const void* b, void* c, OperandScales scales,
             int multiprocessors, Stream stream);
// Of f32 operands in pieces (gpu/pieces.h), each with the rows and columns that it is stored with.
// The products of `parts` parts of the inner dimension are c[parts, m, n]; more than one do not
// accumulate.
struct PieceRounds {
  int rounds;  // of tiles, that each multiprocessor goes through
  int parts;   // that keep all of them busy, where there are few tiles
};
PieceRounds piece_product_rounds(const ProductShape& shape, int multiprocessors);
void piece_product(const ProductShape& shape, int parts, const void* a, const void* b, float* c,
                   int multiprocessors, Stream stream);
void swiglu_product(const GateProduct& shape, const void* x, const void* weight, void* packed,
                    void* y, int multiprocessors, Stream stream);
void swiglu_grad_product(GradWay way, const GateProduct& shape, const void* g, const void* weight,
                         const void* packed, void* dpacked, void* y, int multiprocessors,
                         Stream stream);
void linear_product(const LinearProduct& shape, int way, const void* x, const void* weight,
                    const void* bias, const void* residual, void* y, int multiprocessors,
                    Stream stream);

}  // namespace ridge::gpu::sm90
