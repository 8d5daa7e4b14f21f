#include "ridge/base/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using std::chrono::milliseconds;

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return (std::ostringstream() << file.rdbuf()).str();
}

ChildCommand shell(const std::string& script) { return {.words = {"sh", "-c", script}}; }

TEST(ChildProcess, SaysHowItEnded) {
  EXPECT_TRUE(ChildProcess(shell("true")).wait().ok());
  EXPECT_EQ(to_string(ChildProcess(shell("exit 3")).wait()), "exit code 3");
  EXPECT_EQ(to_string(ChildProcess(shell("kill -9 $$")).wait()), "signal 9 (Killed)");
}

TEST(ChildProcess, WorksInADirectoryAndWritesBothOutputsToAFile) {
  const TemporaryDirectory directory;
  ChildCommand command = shell("pwd; echo $RIDGE_WORD >&2; cat");
  command.directory = directory.path;
  command.output = directory.path / "out";
  command.environment = {{"RIDGE_WORD", "first"}, {"PATH", "/usr/bin:/bin"}};
  EXPECT_TRUE(ChildProcess(command).wait().ok());
  EXPECT_EQ(content_of(command.output),
            std::filesystem::canonical(directory.path).string() + "\nfirst\n");
}

TEST(ChildProcess, WritesItsErrorsToAFileOfTheirOwn) {
  const TemporaryDirectory directory;
  ChildCommand command = shell("echo said; echo complained >&2");
  command.output = directory.path / "out";
  command.errors = directory.path / "errors";
  EXPECT_TRUE(ChildProcess(command).wait().ok());
  EXPECT_EQ(content_of(command.output), "said\n");
  EXPECT_EQ(content_of(command.errors), "complained\n");
  command.errors = directory.path / "no" / "errors";
  EXPECT_THAT(message_of<IoError>([&] { ChildProcess child(command); }),
              ::testing::HasSubstr("no/errors"));
}

TEST(ChildProcess, WaitsOnlyForAWhile) {
  ChildProcess child(shell("exec sleep 60"));
  EXPECT_FALSE(child.wait_for(milliseconds(20)));
  child.send(SIGTERM);
  const std::optional<ChildEnd> end = child.wait_for(milliseconds(10'000));
  ASSERT_TRUE(end);
  EXPECT_EQ(end->signal, SIGTERM);
  EXPECT_EQ(child.wait().signal, SIGTERM) << "it says so again";
}

TEST(ChildProcess, IsOutOfReachOfTheTerminal) {
  ChildProcess child(shell("exec sleep 60"));
  EXPECT_EQ(::getpgid(child.pid()), child.pid());
}

TEST(ChildProcess, KeepsTheOneDescriptorThatItIsGiven) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ChildCommand command = shell("echo word >&" + std::to_string(ends[1]));
  EXPECT_FALSE(ChildProcess(command).wait().ok());
  command.keeps = ends[1];
  EXPECT_TRUE(ChildProcess(command).wait().ok());
  ::close(ends[1]);
  char text[16] = {};
  EXPECT_EQ(::read(ends[0], text, sizeof text), 5);
  ::close(ends[0]);
}

TEST(ChildProcess, RefusesWhatCannotRun) {
  EXPECT_EQ(message_of<IoError>([] { ChildProcess({.words = {"/nowhere/ridge"}}); }),
            "cannot start /nowhere/ridge: No such file or directory");
  EXPECT_EQ(message_of<IoError>([] { ChildProcess({.words = {"true"}, .directory = "/nowhere"}); }),
            "cannot start true: No such file or directory");
  EXPECT_EQ(
      message_of<IoError>([] { ChildProcess({.words = {"true"}, .output = "/nowhere/out"}); }),
      "cannot write /nowhere/out: No such file or directory");
}

bool is_alive(pid_t pid) {
  const std::string state = content_of("/proc/" + std::to_string(pid) + "/stat");
  return !state.empty() && state.find(") Z") == std::string::npos;
}

TEST(ChildProcess, DiesWithItsOwner) {
  pid_t pid = 0;
  {
    const ChildProcess child(shell("exec sleep 60"));
    pid = child.pid();
    EXPECT_TRUE(is_alive(pid));
  }
  EXPECT_FALSE(is_alive(pid));
}

TEST(ChildProcess, DiesWithAKilledProgram) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t middle = ::fork();
  if (middle == 0) {
    const ChildProcess child(shell("exec sleep 60"));
    const pid_t pid = child.pid();
    [[maybe_unused]] const ssize_t written = ::write(ends[1], &pid, sizeof pid);
    ::pause();
    ::_exit(0);
  }
  pid_t pid = 0;
  ASSERT_EQ(::read(ends[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  EXPECT_TRUE(is_alive(pid));
  ::kill(middle, SIGKILL);
  ::waitpid(middle, nullptr, 0);
  for (int i = 0; i < 500 && is_alive(pid); ++i) ::usleep(10'000);
  EXPECT_FALSE(is_alive(pid));
  ::close(ends[0]);
  ::close(ends[1]);
}

// As a study has to that goes on for hours while somebody builds anew.
TEST(ChildProcess, StartsAProgramWhoseFileIsGone) {
  const TemporaryDirectory directory;
  const std::filesystem::path shell_file = directory.path / "shell";
  std::filesystem::copy_file("/bin/sh", shell_file);
  ChildCommand command =
      shell("rm " + shell_file.string() + " && " + this_program + " -c 'echo again'");
  command.words[0] = shell_file.string();
  command.output = directory.path / "out";
  EXPECT_TRUE(ChildProcess(command).wait().ok());
  EXPECT_EQ(content_of(command.output), "again\n");
}

TEST(ChildProcess, KnowsItsOwnProgram) { EXPECT_TRUE(std::filesystem::exists(own_program())); }

TEST(ChildProcess, TellsItsWordsAsAShellTakesThem) {
  EXPECT_EQ(shell_line({"ridge", "train", "--dtype=bf16"}), "ridge train --dtype=bf16");
  const std::vector<std::string> hard{"it's", "", "a b", "$HOME", "\"q\"", "x;y", "*"};
  const TemporaryDirectory directory;
  const std::filesystem::path out = directory.path / "out";
  ChildProcess printed({.words = {"sh", "-c", "printf '<%s>' " + shell_line(hard)}, .output = out});
  ASSERT_TRUE(printed.wait().ok());
  EXPECT_EQ(content_of(out), "<it's><><a b><$HOME><\"q\"><x;y><*>");
}

}  // namespace
}  // namespace ridge
