#include "ridge/gpu/device/kernel_ways.h"

#include <algorithm>
#include <optional>

#include "ridge/base/error.h"
#include "ridge/gpu/device/trial.h"

namespace ridge::gpu {
namespace {

struct Prepared {
  KernelPtr kernel;
  std::size_t workspace = 0;
};

// The kernels of ways, each prepared once.
class PreparedWays {
 public:
  PreparedWays(const GpuPrepare& prepare, const std::vector<KernelWay>& ways)
      : prepare_(prepare), ways_(ways), kernels_(ways.size()) {}

  // DeviceError if there is no such kernel.
  Prepared& at(std::size_t i) {
    if (!kernels_[i]) {
      GpuPrepare prepare = prepare_;
      prepare.workspace = 0;
      KernelPtr kernel = ways_[i].prepare(prepare);
      kernels_[i].emplace(Prepared{std::move(kernel), prepare.workspace});
    }
    return *kernels_[i];
  }

  bool exists(std::size_t i) {
    try {
      at(i);
      return true;
    } catch (const DeviceError&) {
      return false;
    }
  }

  // Several launches, for the tuner.
  void run(std::size_t i) {
    if (!trial_) make_trial();
    if (!kernels_[i]) throw Tuner::NoSuchWay(ways_[i].name);
    const std::size_t n_in = prepare_.in.size(), n_out = prepare_.out.size();
    trial_->run(i, [&](const Trial::Operands& operands) {
      const std::vector<const void*> in(operands.begin(),
                                        operands.begin() + static_cast<std::ptrdiff_t>(n_in));
      kernels_[i]->kernel->launch({.inputs = in,
                                   .outputs = std::span(operands).subspan(n_in, n_out),
                                   .workspace = operands.back()});
    });
  }

 private:
  void make_trial() {
    std::size_t workspace = at(0).workspace;
    for (std::size_t i = 1; i < ways_.size(); ++i)
      if (exists(i)) workspace = std::max(workspace, at(i).workspace);
    std::vector<std::size_t> bytes;
    for (const TensorType& type : prepare_.in) bytes.push_back(type.bytes());
    for (const TensorType& type : prepare_.out) bytes.push_back(type.bytes());
    bytes.push_back(workspace);
    trial_.emplace(prepare_.gpu, bytes);
  }

  const GpuPrepare& prepare_;
  const std::vector<KernelWay>& ways_;
  std::vector<std::optional<Prepared>> kernels_;
  std::optional<Trial> trial_;
};

}  // namespace

KernelPtr fastest_kernel(GpuPrepare& prepare, std::string_view key, std::string_view work,
                         const std::vector<KernelWay>& ways) {
  PreparedWays prepared(prepare, ways);
  std::size_t choice = 0;
  if (Tuner* const tuner = prepare.choice.tuner) {
    choice = tuner->choose(key, ways.size(), [&](std::size_t i) { prepared.run(i); });
    if (choice > 0 && !prepared.exists(choice)) choice = 0;
    tuner->tell(work, ways[choice].name);
  }
  Prepared& prepared_kernel = prepared.at(choice);
  prepare.workspace = prepared_kernel.workspace;
  return std::move(prepared_kernel.kernel);
}

}  // namespace ridge::gpu
