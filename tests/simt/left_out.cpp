// What the machine does not run, because it is no kernel: what times candidates, and the ways to
// other cards. What else a card without kernels of its own and without libraries lacks, the sources
// of the build for HIP tell.

#include "ridge/base/error.h"
#include "ridge/gpu/device/links.h"
#include "ridge/gpu/device/trial.h"

namespace ridge::gpu {
namespace {

[[noreturn]] void left_out() { throw DeviceError("timing candidates was left out"); }

}  // namespace

class GraphReplay {};

Trial::Trial(const Context& gpu, const std::vector<std::size_t>&, Runs runs)
    : gpu_(gpu), runs_(runs), repetitions_(0) {
  left_out();
}
Trial::~Trial() = default;
void Trial::run(std::size_t, const std::function<void(const Operands&)>&) { left_out(); }

bool allows_row_copies() { return false; }

}  // namespace ridge::gpu
