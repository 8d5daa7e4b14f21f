#pragma once

#include <cstdint>

#include "ridge/gpu/products90.h"

namespace ridge::gpu::sm90 {

// What shared memory there is beside a gradient's product: for gate and up to be loaded further
// ahead, or for the product's operands. Which is faster depends on how long the product is.
enum class GradWay : std::uint8_t { more_ahead, more_stages };

// What products90.h declares. Enqueue; DeviceError.
void product(const ProductShape& shape, const void* a, const void* b, void* c, int multiprocessors,
             Stream stream);
void swiglu_product(const GateProduct& shape, const void* x, const void* weight, void* packed,
                    void* y, int multiprocessors, Stream stream);
void swiglu_grad_product(GradWay way, const GateProduct& shape, const void* g, const void* weight,
                         const void* packed, void* dpacked, void* y, int multiprocessors,
                         Stream stream);
void linear_product(const LinearProduct& shape, int way, const void* x, const void* weight,
                    const void* bias, const void* residual, void* y, int multiprocessors,
                    Stream stream);

}  // namespace ridge::gpu::sm90
