#include "ridge/ops/loss_scale.h"

#include <cfloat>

#include "ridge/gpu/device/prepare.h"
#include "ridge/gpu/device/runtime.h"

namespace ridge {
namespace {

struct Pointers {
  float *scale, *counters;  // in place
  const float *schedule, *norm;
  float *step, *report;
};

// One thread.
__global__ void update_loss_scale(UpdateLossScale op, Pointers o) {
  gpu::begin_kernel();
  const float scale = *o.scale, norm = *o.norm;
  const bool good = isfinite(norm);
  const float steps = o.counters[0] + 1.0f, t = o.counters[1] + (good ? 1.0f : 0.0f);
  const bool grows = good && steps >= static_cast<float>(op.rule.growth_interval);
  float next = scale;
  if (grows && isfinite(scale * op.rule.growth)) next = scale * op.rule.growth;
  if (!good) next = fmaxf(FLT_MIN, scale * op.rule.backoff);
  o.step[0] = o.schedule[0];
  o.step[1] = static_cast<float>(1.0 - pow(op.beta1, static_cast<double>(t)));
  o.step[2] = static_cast<float>(1.0 - pow(op.beta2, static_cast<double>(t)));
  o.step[3] = good ? 1.0f / scale : 0.0f;
  o.report[0] = good ? norm / scale : INFINITY;
  o.report[1] = scale;
  o.report[2] = next;
  *o.scale = next;
  o.counters[0] = good && !grows ? steps : 0.0f;
  o.counters[1] = t;
}

}  // namespace

KernelPtr UpdateLossScale::gpu(GpuPrepare& prepare) const {
  return make_kernel([&gpu = prepare.gpu, op = *this](const Launch& call) {
    constexpr Operands at = operands();
    const Pointers pointers{.scale = call.out<float>(0),
                            .counters = call.out<float>(1),
                            .schedule = call.in<float>(at.schedule),
                            .norm = call.in<float>(at.norm),
                            .step = call.out<float>(2),
                            .report = call.out<float>(3)};
    gpu::launch(gpu, update_loss_scale, dim3(1), dim3(1), 0, op, pointers);
  });
}

}  // namespace ridge
