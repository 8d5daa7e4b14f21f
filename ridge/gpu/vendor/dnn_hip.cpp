#include "ridge/gpu/vendor/dnn.h"

namespace ridge::gpu {

std::shared_ptr<Dnn> make_dnn(const Card& card) { return make_portable_dnn(card); }

}  // namespace ridge::gpu
