#include "ridge/gpu/vendor/blas.h"

namespace ridge::gpu {

std::shared_ptr<Blas> make_blas(const Card& card) { return make_portable_blas(card); }

}  // namespace ridge::gpu
