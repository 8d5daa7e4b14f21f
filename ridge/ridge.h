#pragma once

// Everything that a program which embeds Ridge includes. It brings in the installed headers and no
// others; they change with care, all other headers without notice.
//
//   ridge::Graph           operators and values, built by the functions of ridge/ops
//   ridge::Executor        runs a graph on a device
//   ridge::Session         trains or runs a workload: the LLaMA, a vision network, one's own
//   ridge::open_device     opens the CPU or a GPU
//   ridge::version         the version of this library

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/base/units.h"
#include "ridge/base/version.h"
#include "ridge/ops/op.h"
#include "ridge/run/executor.h"
#include "ridge/run/reference.h"
#include "ridge/session/devices.h"
#include "ridge/session/loop.h"
#include "ridge/session/optimizer.h"
#include "ridge/session/record.h"
#include "ridge/session/session.h"
