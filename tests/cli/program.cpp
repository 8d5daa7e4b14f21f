#include "tests/cli/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

namespace ridge {
namespace {

// Beside the tests, also where both were carried to another machine.
const std::string& program() {
  static const std::string path =
      std::filesystem::read_symlink("/proc/self/exe").replace_filename("ridge").string();
  return path;
}

// In the child: becomes the program. Nothing here may throw or return.
[[noreturn]] void become(const Sandbox& sandbox, const Words& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  if (::chdir(sandbox.path("").c_str()) == 0) ::execv(program().c_str(), argv.data());
  ::_exit(126);
}

void redirect(int descriptor, const char* path) {
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(fd, descriptor);
}

ProgramResult reap(pid_t pid) {
  ProgramResult result;
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace

void Sandbox::write(const std::string& name, const std::string& content) const {
  std::ofstream(path(name), std::ios::binary) << content;
}

std::string Sandbox::read(const std::string& name) const {
  std::ifstream file(path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

ProgramResult Sandbox::run(const Words& command) const {
  const std::string out = path(".stdout").string(), err = path(".stderr").string();
  const pid_t pid = ::fork();
  if (pid == 0) {
    redirect(STDOUT_FILENO, out.c_str());
    redirect(STDERR_FILENO, err.c_str());
    become(*this, command);
  }
  ProgramResult result = reap(pid);
  result.out = read(".stdout");
  result.err = read(".stderr");
  std::filesystem::remove(out);
  std::filesystem::remove(err);
  return result;
}

RunningProgram::RunningProgram(const Sandbox& sandbox, const Words& command) : sandbox_(sandbox) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) ADD_FAILURE() << "no pipe";
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    redirect(STDERR_FILENO, sandbox.path(".stderr").c_str());
    become(sandbox, command);
  }
  ::close(ends[1]);
  descriptor_ = ends[0];
}

RunningProgram::~RunningProgram() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    reap(pid_);
  }
  ::close(descriptor_);
}

bool RunningProgram::read_some() {
  constexpr int patience_ms = 60'000;
  pollfd ready{.fd = descriptor_, .events = POLLIN};
  if (::poll(&ready, 1, patience_ms) <= 0) return false;
  char buffer[4096];
  const ssize_t n = ::read(descriptor_, buffer, sizeof buffer);
  if (n > 0) out_.append(buffer, static_cast<std::size_t>(n));
  return n > 0;
}

bool RunningProgram::wait_for(const std::string& text) {
  while (out_.find(text) == std::string::npos)
    if (!read_some()) return false;
  return true;
}

void RunningProgram::send(int signal) const { ::kill(pid_, signal); }

ProgramResult RunningProgram::wait() {
  while (read_some()) {
  }
  pollfd ended{.fd = descriptor_};
  if (::poll(&ended, 1, 0) == 0) send(SIGKILL);  // silent for so long: it hangs
  ProgramResult result = reap(std::exchange(pid_, -1));
  result.out = out_;
  result.err = sandbox_.read(".stderr");
  return result;
}

std::optional<ProgramResult> run_on_terminal(const Sandbox& sandbox, const Words& command) {
  int terminal = -1;
  winsize size{.ws_row = 24, .ws_col = 100};
  const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (pid < 0) return std::nullopt;
  if (pid == 0) {
    ::setenv("TERM", "xterm", 1);
    become(sandbox, command);
  }
  std::string out;
  char buffer[4096];
  for (ssize_t n; (n = ::read(terminal, buffer, sizeof buffer)) > 0;)
    out.append(buffer, static_cast<std::size_t>(n));
  ProgramResult result = reap(pid);
  ::close(terminal);
  result.out = out;
  return result;
}

Words words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string output_of(const ProgramResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return result.out;
}

std::string complaint_of(const ProgramResult& result, int exit_code) {
  EXPECT_EQ(result.exit_code, exit_code) << result.out;
  EXPECT_EQ(lines_of(result.err).size(), 1u) << result.err;
  return result.err;
}

}  // namespace ridge
