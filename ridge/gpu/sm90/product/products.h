#pragma once

#include <cstdint>

#include "ridge/gpu/kernels/product/products_sm90.h"

namespace ridge::gpu::sm90 {

// What kernels/product/products_sm90.h declares. Enqueue; DeviceError.
void product(const ProductShape& shape, const void* a, const void* b, void* c, OperandScales scales,
             int multiprocessors, Stream stream);
// A product of split f32 operands (kernels/product/split_bf16.h), each with the rows and columns
// that it is stored with. The products of `parts` parts of the inner dimension are c[parts, m, n];
// more than one do not accumulate.
struct SplitRounds {
  int rounds;  // of tiles, that each multiprocessor goes through
  int parts;   // that keep all of them busy, where there are few tiles
};
SplitRounds split_product_rounds(const ProductShape& shape, int multiprocessors);
void split_product(const ProductShape& shape, int parts, const void* a, const void* b, float* c,
                   int multiprocessors, Stream stream);
void swiglu_product(const GateProduct& shape, const void* x, const void* weight, void* packed,
                    void* y, int multiprocessors, Stream stream);
void swiglu_grad_product(GradBuffers buffers, const GateProduct& shape, const void* g,
                         const void* weight, const void* packed, void* dpacked, void* y,
                         int multiprocessors, Stream stream);
void linear_product(const LinearProduct& shape, const LinearTiles& tiles, const void* x,
                    const void* weight, const void* bias, const void* residual, void* y,
                    int multiprocessors, Stream stream);

}  // namespace ridge::gpu::sm90
