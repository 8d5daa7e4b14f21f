#include "ridge/run/execution.h"

namespace ridge {

Execution execution_of(const Schedule& s) {
  const Products products = s.has(tuned_products)    ? Products::tuned
                            : s.has(packed_products) ? Products::packed
                                                     : Products::vendor;
  return {.planned = s.has(planned_memory),
          .captured = s.has(captured_launches),
          .concurrent = s.has(concurrent_kernels),
          .kernels = {.products = products,
                      .inference = s.use == Use::inference,
                      .tf32 = s.precision.products == Precision::Products::tf32,
                      .split_bf16 = s.has(split_bf16_products),
                      .scaled = s.has(scaled_products)}};
}

}  // namespace ridge
