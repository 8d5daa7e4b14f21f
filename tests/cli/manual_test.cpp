// The manual and the completion of the command line are made of the commands, so that they cannot
// tell of others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/base/gzip.h"
#include "tests/cli/program.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string page(const Sandbox& sandbox, const std::string& name) {
  const std::string file = sandbox.read("man/" + name + ".1.gz");
  return gunzip(std::as_bytes(std::span(file)), std::size_t{1} << 20, name);
}

TEST(Manual, HasAPageForEachCommand) {
  const Sandbox sandbox;
  output_of(sandbox.run({"ridge", "man-pages", "man"}));
  const std::string program = page(sandbox, "ridge");
  EXPECT_THAT(program, HasSubstr(".BR ridge\\-train (1)."));
  EXPECT_THAT(program, Not(HasSubstr("man\\-pages"))) << "hidden commands have none";
  EXPECT_FALSE(sandbox.has("man/ridge-man-pages.1.gz"));
  const std::string train = page(sandbox, "ridge-train");
  EXPECT_THAT(train, HasSubstr("ridge\\-train \\- Train a model"));
  EXPECT_THAT(train, HasSubstr("\\fB\\-\\-batch\\-size\\fR"));
  EXPECT_TRUE(sandbox.has("man/ridge-trace-report.1.gz"));
}

// A line that begins with a dot would be an instruction to groff.
TEST(Manual, HasNoInstructionsButItsOwn) {
  const Sandbox sandbox;
  output_of(sandbox.run({"ridge", "man-pages", "man"}));
  const std::vector<std::string> known = {".TH", ".SH",  ".TP", ".B ", ".BR",
                                          ".I ", ".I\n", ".nf", ".fi"};
  for (const auto& entry : std::filesystem::directory_iterator(sandbox.path("man"))) {
    const std::string name = entry.path().filename().string();
    const std::string text = page(sandbox, name.substr(0, name.size() - 5));
    for (std::size_t at = 0; at != std::string::npos && at < text.size();) {
      const bool ours = std::ranges::any_of(
          known, [&](const std::string& one) { return text.compare(at, one.size(), one) == 0; });
      EXPECT_TRUE(text[at] != '.' || ours) << name << ": " << text.substr(at, 40);
      at = text.find('\n', at);
      if (at != std::string::npos) ++at;
    }
  }
}

TEST(Completion, OffersWhatMayFollowInBash) {
  const Sandbox sandbox;
  sandbox.write("ridge.bash", output_of(sandbox.run({"ridge", "completion", "bash"})));
  sandbox.write("try.sh", R"(source ./ridge.bash
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _ridge; echo "${COMPREPLY[*]}"; }
try ridge trac
try ridge trace rep
try ridge train --batch-si
try ridge --version trace report --fail
try ridge train output/ --num-st
)");
  const std::string command = "cd '" + sandbox.path("").string() + "' && bash try.sh > tried 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(sandbox.read("tried"), "trace\nreport\n--batch-size\n--fail-above\n--num-steps\n");
}

TEST(Completion, IsThereForThreeShells) {
  const Sandbox sandbox;
  EXPECT_THAT(output_of(sandbox.run({"ridge", "completion", "zsh"})), HasSubstr("#compdef ridge"));
  EXPECT_THAT(output_of(sandbox.run({"ridge", "completion", "fish"})),
              HasSubstr("complete -c ridge -n '__ridge_at no trace report' -l top -r -d"));
  EXPECT_THAT(complaint_of(sandbox.run({"ridge", "completion", "tcsh"}), 2),
              HasSubstr("there is no completion for tcsh: there is one for bash, zsh and fish"));
  EXPECT_THAT(complaint_of(sandbox.run({"ridge", "completion"}), 2), HasSubstr("which shell?"));
}

}  // namespace
}  // namespace ridge
