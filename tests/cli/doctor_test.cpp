#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

// The loader lists what it maps at start. GPU libraries are large, and not everybody has them.
TEST(Program, StartsWithoutAnyLibraryForGpus) {
  const Sandbox sandbox;
  ::setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);
  const ProgramResult result = sandbox.run({"ridge", "--version"});
  ::unsetenv("LD_TRACE_LOADED_OBJECTS");
  EXPECT_THAT(result.out, HasSubstr("libstdc++.so"));
  for (const char* library : {"libcu", "libnv", "libnccl", "libamd"})
    EXPECT_THAT(result.out, Not(HasSubstr(library)));
}

}  // namespace
}  // namespace ridge
