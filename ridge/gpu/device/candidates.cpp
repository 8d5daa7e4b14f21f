#include "ridge/gpu/device/candidates.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "ridge/base/error.h"

namespace ridge::gpu {
namespace {

struct Prepared {
  KernelPtr kernel;
  std::size_t workspace = 0;
};

Prepared prepared(const GpuPrepare& prepare, const RankedCandidate& candidate) {
  GpuPrepare own = prepare;
  own.workspace = 0;
  KernelPtr kernel = candidate.prepare(own);
  return {std::move(kernel), own.workspace};
}

// The first of the ranked candidates that supports the problem and exists, and its index.
struct First {
  std::size_t index;
  Prepared kernel;
};
First first_existing(const GpuPrepare& prepare, std::span<const RankedCandidate> ranked) {
  std::exception_ptr refusal;
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    if (!ranked[i].supports()) continue;
    try {
      return {i, prepared(prepare, ranked[i])};
    } catch (const DeviceError&) {
      refusal = std::current_exception();
    }
  }
  if (refusal) std::rethrow_exception(refusal);
  throw DeviceError("no kernel of the GPU computes this");
}

// Whom the tuner chooses among: all that support the problem, but no fallback behind another.
std::vector<RankedCandidate> contenders_of(std::span<const RankedCandidate> ranked) {
  std::vector<RankedCandidate> contenders;
  for (const RankedCandidate& candidate : ranked)
    if ((!candidate.fallback || contenders.empty()) && candidate.supports())
      contenders.push_back(candidate);
  return contenders;
}

// The kernels of contenders, each prepared once when it is first needed. Where the first does not
// exist, the next of all ranked candidates stands in for it.
class PreparedContenders {
 public:
  PreparedContenders(const GpuPrepare& prepare, std::span<const RankedCandidate> ranked,
                     std::span<const RankedCandidate> contenders, Trial::Runs runs)
      : prepare_(prepare),
        ranked_(ranked),
        contenders_(contenders),
        runs_(runs),
        kernels_(contenders.size()) {}

  // DeviceError if there is no such kernel.
  Prepared& at(std::size_t i) {
    if (!kernels_[i] && i > 0) kernels_[i] = prepared(prepare_, contenders_[i]);
    if (!kernels_[i]) {
      First first = first_existing(prepare_, ranked_);
      kernels_[i] = std::move(first.kernel);
      first_ = &ranked_[first.index];
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

  // The name of a contender that has been prepared.
  std::string name(std::size_t i) const { return (i == 0 ? *first_ : contenders_[i]).name(); }

  // Several launches, for the tuner.
  void run(std::size_t i) {
    if (!trial_) make_trial();
    if (!kernels_[i]) throw Tuner::NoSuchCandidate(contenders_[i].name());
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
  using Clock = std::chrono::steady_clock;
  // For what may be compiled: plans that are ready take a millisecond each, and of those that are
  // not, most of a second each, the first was expected to be the best.
  static constexpr std::chrono::milliseconds patience{500};

  void make_trial() {
    std::size_t workspace = 0;
    Clock::duration compiling{};
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      if (contenders_[i].may_compile && compiling > patience) continue;
      const auto begin = Clock::now();
      if (i == 0 || exists(i)) workspace = std::max(workspace, at(i).workspace);
      if (contenders_[i].may_compile) compiling += Clock::now() - begin;
    }
    std::vector<std::size_t> bytes;
    for (const TensorType& type : prepare_.in) bytes.push_back(type.bytes());
    for (const TensorType& type : prepare_.out) bytes.push_back(type.bytes());
    bytes.push_back(workspace);
    trial_.emplace(prepare_.gpu, bytes, runs_);
  }

  const GpuPrepare& prepare_;
  std::span<const RankedCandidate> ranked_, contenders_;
  const Trial::Runs runs_;
  std::vector<std::optional<Prepared>> kernels_;
  const RankedCandidate* first_ = nullptr;
  std::optional<Trial> trial_;
};

KernelPtr taken(GpuPrepare& prepare, Prepared kernel) {
  prepare.workspace = kernel.workspace;
  return std::move(kernel.kernel);
}

}  // namespace

KernelPtr best_of(GpuPrepare& prepare, std::vector<RankedCandidate> candidates,
                  const std::function<TunedWork()>& tuned, Trial::Runs runs) {
  std::ranges::stable_sort(candidates, std::greater(), &RankedCandidate::expectation);
  Tuner* const tuner = prepare.choice.tuner;
  if (tuner == nullptr) return taken(prepare, first_existing(prepare, candidates).kernel);
  const std::vector<RankedCandidate> contenders = contenders_of(candidates);
  if (contenders.size() < 2) return taken(prepare, first_existing(prepare, candidates).kernel);
  const TunedWork work = tuned();
  PreparedContenders kernels(prepare, candidates, contenders, runs);
  std::size_t choice =
      tuner->choose(work.key, contenders.size(), [&](std::size_t i) { kernels.run(i); });
  if (choice > 0 && !kernels.exists(choice)) choice = 0;
  Prepared kernel = std::move(kernels.at(choice));
  if (!work.work.empty()) tuner->tell(work.work, kernels.name(choice));
  return taken(prepare, std::move(kernel));
}

}  // namespace ridge::gpu
