// What a build for HIP says where something is missing or goes wrong. Needs no card.

#include "ridge/gpu/device/faults.h"

#include <gmock/gmock.h>

#include "ridge/base/error.h"
#include "ridge/gpu/device/context.h"
#include "tests/base/message_of.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Errors have CUDA's names where HIP calls CUDA.
#if defined(__HIP_PLATFORM_NVIDIA__)
constexpr const char *ecc_name = "cudaErrorECCUncorrectable",
                     *address_name = "cudaErrorIllegalAddress";
#else
constexpr const char *ecc_name = "hipErrorECCNotCorrectable",
                     *address_name = "hipErrorIllegalAddress";
#endif

// Values of hipError_t.
constexpr int out_of_memory = 2, no_device = 100, no_binary = 209, ecc = 214, illegal_address = 700;

TEST(HipFaults, SayWhatToDo) {
  const auto said = [](int status) {
    return message_of<DeviceError>([&] { gpu::check(status, "a launch"); });
  };
  EXPECT_THAT(said(ecc), AllOf(StartsWith("the GPU failed in a launch: "), HasSubstr(ecc_name),
                               HasSubstr("must be reset")));
  EXPECT_THAT(said(illegal_address), AllOf(HasSubstr(address_name), HasSubstr("start it again")));
  EXPECT_THAT(said(no_binary), HasSubstr("-DRIDGE_HIP_ARCHITECTURE"));
  EXPECT_THAT(message_of<OutOfMemoryError>([&] { gpu::check(out_of_memory, "tables"); }),
              HasSubstr("not enough for tables"));
  EXPECT_NO_THROW(gpu::check(0, "a launch"));
}

TEST(HipFaults, TellCardsThatAreNotThere) {
  const auto said = [](int status, int count) {
    return message_of<DeviceError>([&] { gpu::check_cards(status, count, 0, 0); });
  };
  EXPECT_THAT(said(no_device, 0), AllOf(StartsWith("--device hip: "), HasSubstr("--device cpu")));
  EXPECT_THAT(said(0, 0), HasSubstr("the driver shows no GPU"));
  EXPECT_NO_THROW(gpu::check_cards(0, 1, 0, 0));
}

}  // namespace
}  // namespace ridge
