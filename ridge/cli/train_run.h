#pragma once

#include "ridge/device/device.h"
#include "ridge/session/options.h"
#include "ridge/session/trainer.h"

namespace ridge {

// `ridge train` of resolved options: runs, prints and writes all they ask for. Returns the exit
// code of the program; errors are thrown.
int train(const TrainOptions& options, Device& device, const TrainerHooks& hooks = {});

}  // namespace ridge
