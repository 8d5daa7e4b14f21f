#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

TEST(DoctorCommand, SaysInOneLineEachWhatThereIs) {
  const Sandbox sandbox;
  const ProgramResult result = sandbox.run({"ridge", "doctor", "--device", "cpu"});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_EQ(result.err, "");
  for (const char* name : {"Memory", "Disk", "Instructions", "Driver", "cuBLASLt", "CUPTI"})
    EXPECT_THAT(result.out, HasSubstr(name));
  EXPECT_THAT(result.out, HasSubstr("Training on the CPU: can run"));
}

TEST(DoctorCommand, AnswersByItsExitCode) {
  const Sandbox sandbox;
  for (const char* device : {"auto", "cpu", "cuda", "all"}) {
    const ProgramResult result = sandbox.run({"ridge", "doctor", "--device", device, "--json"});
    const auto json = nlohmann::json::parse(result.out);
    EXPECT_EQ(json["device"], device);
    EXPECT_EQ(result.exit_code, json["can_run"] ? 0 : 1) << device;
    for (const auto& check : json["checks"])
      EXPECT_TRUE(check["status"] != "missing" || check["remedy"] != "") << check;
  }
  EXPECT_EQ(sandbox.run({"ridge", "doctor", "--device", "abacus"}).exit_code, 2);
}

}  // namespace
}  // namespace ridge
