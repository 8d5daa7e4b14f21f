#pragma once

#include <memory>

#include "ridge/device/communicator.h"
#include "ridge/gpu/device/links.h"
#include "ridge/gpu/vendor/aside_capture.h"
#include "ridge/gpu/vendor/nccl.h"

namespace ridge::gpu::nccl {

// Copies of rows by NCCL's collectives without kernels ("zero-CTA", NCCL_CTA_POLICY_ZERO), which
// exist since NCCL 2.28 for cards of one host that reach each other by NVLink, and for memory that
// NCCL allocated and all ranks registered. Null where they do not exist, or are not asked for. All
// ranks call it. What is given has to outlive the result's use, and what `aside` has captured has
// to be gone when the result goes.
std::unique_ptr<RowCopies> make_row_copies(const Library& library, Communicator& communicator,
                                           AsideCapture& aside);

}  // namespace ridge::gpu::nccl
