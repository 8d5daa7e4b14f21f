#include "ridge/ops/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/cpu/prepare.h"

namespace ridge {

KernelPtr UpdateLossScale::cpu(CpuPrepare&) const {
  return make_kernel([op = *this](const Launch& call) {
    using Limits = std::numeric_limits<float>;
    constexpr Operands at = operands();
    const float scale = *call.in<float>(at.scale), norm = *call.in<float>(at.norm);
    const float *counters = call.in<float>(at.counters), *schedule = call.in<float>(at.schedule);
    const bool good = std::isfinite(norm);
    const float steps = counters[0] + 1.0f, t = counters[1] + (good ? 1.0f : 0.0f);
    const bool grows = good && steps >= static_cast<float>(op.rule.growth_interval);
    float next = scale;
    if (grows && std::isfinite(scale * op.rule.growth)) next = scale * op.rule.growth;
    if (!good) next = std::max(Limits::min(), scale * op.rule.backoff);
    float *step = call.out<float>(2), *report = call.out<float>(3);
    step[0] = schedule[0];
    step[1] = static_cast<float>(1.0 - std::pow(op.beta1, t));
    step[2] = static_cast<float>(1.0 - std::pow(op.beta2, t));
    step[3] = good ? 1.0f / scale : 0.0f;
    report[0] = good ? norm / scale : Limits::infinity();
    report[1] = scale;
    report[2] = next;
    *call.out<float>(0) = next;
    call.out<float>(1)[0] = good && !grows ? steps : 0.0f;
    call.out<float>(1)[1] = t;
  });
}

}  // namespace ridge
