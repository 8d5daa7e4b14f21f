#include "ridge/base/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "ridge/base/error.h"

extern char** environ;

namespace ridge {
namespace {

// Both ends are closed in programs that are started.
struct Pipe {
  int ends[2] = {-1, -1};

  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw IoError("cannot start a program: {}", std::strerror(errno));
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(int which) {
    if (ends[which] >= 0) ::close(ends[which]);
    ends[which] = -1;
  }
};

// A file that a program writes, closed in programs that are started.
struct OutputFile {
  int descriptor;

  explicit OutputFile(const std::string& path)
      : descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (descriptor < 0) throw IoError("cannot write {}: {}", path, std::strerror(errno));
  }
  ~OutputFile() { ::close(descriptor); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
};

// Our environment without what the command sets, and that.
std::vector<std::string> environment_of(const ChildCommand& command) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    bool is_set = false;
    for (const auto& [name, value] : command.environment)
      is_set = is_set || text.starts_with(name + "=");
    if (!is_set) all.emplace_back(text);
  }
  for (const auto& [name, value] : command.environment) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What the child does between fork() and the program. Other threads of ours do not exist there, and
// what they had locked stays locked: only system calls are safe.
struct Start {
  char* const* words;
  char* const* environment;
  const char* directory;  // null: ours
  int output, errors;     // -1: ours
  bool shares_terminal;
  int keeps;
  int fault;  // takes errno if there is no program to run
  pid_t parent;

  [[noreturn]] void run() const {
    if (!shares_terminal) ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it had ended before
    for (const int signal : {SIGINT, SIGTERM, SIGXFSZ}) ::signal(signal, SIG_DFL);
    const int input = shares_terminal ? 0 : ::open("/dev/null", O_RDONLY);
    const bool ready = input >= 0 && (shares_terminal || ::dup2(input, 0) >= 0) &&
                       (output < 0 || ::dup2(output, 1) >= 0) &&
                       (errors < 0 || ::dup2(errors, 2) >= 0) &&
                       (keeps < 0 || ::fcntl(keeps, F_SETFD, 0) == 0) &&
                       (directory == nullptr || ::chdir(directory) == 0);
    if (ready) ::execvpe(words[0], words, environment);
    const int error = errno;
    [[maybe_unused]] const ssize_t written = ::write(fault, &error, sizeof error);
    ::_exit(127);
  }
};

// errno of a child that found no program to run, 0 if it runs it.
int fault_of_start(int descriptor) {
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(descriptor, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

ChildEnd end_of(int status) {
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
  return {.exit_code = WEXITSTATUS(status)};
}

}  // namespace

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    const bool is_plain = !word.empty() && std::ranges::all_of(word, [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             std::string_view("-_./=:,@%+").find(c) != std::string_view::npos;
    });
    if (!line.empty()) line += ' ';
    if (is_plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string(R"('\'')") : std::string(1, c);
    line += '\'';
  }
  return line;
}

std::string to_string(const ChildEnd& end) {
  if (end.signal == 0) return fmt::format("exit code {}", end.exit_code);
  const char* const name = ::sigdescr_np(end.signal);
  return fmt::format("signal {} ({})", end.signal, name ? name : "unknown");
}

ChildProcess::ChildProcess(const ChildCommand& command) {
  if (command.words.empty()) throw UsageError("there is no program to start");
  std::optional<OutputFile> output, errors;
  if (!command.shares_output)
    output.emplace(command.output.empty() ? "/dev/null" : command.output.string());
  if (!command.errors.empty()) errors.emplace(command.errors.string());
  const int out = output ? output->descriptor : -1;
  std::vector<std::string> words = command.words, environment = environment_of(command);
  const std::vector<char*> words_of_c = pointers_to(words),
                           environment_of_c = pointers_to(environment);
  const std::string directory = command.directory.string();
  int error = 0;
  {
    Pipe fault;
    const Start start{.words = words_of_c.data(),
                      .environment = environment_of_c.data(),
                      .directory = directory.empty() ? nullptr : directory.c_str(),
                      .output = out,
                      .errors = errors ? errors->descriptor : out,
                      .shares_terminal = command.shares_terminal,
                      .keeps = command.keeps,
                      .fault = fault.ends[1],
                      .parent = ::getpid()};
    pid_ = ::fork();
    if (pid_ == 0) start.run();
    error = pid_ < 0 ? errno : 0;
    fault.close_end(1);
    if (error == 0) error = fault_of_start(fault.ends[0]);
  }
  if (error == 0) {
    handle_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    if (handle_ < 0) error = errno;
  }
  if (error != 0) {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    throw IoError("cannot start {}: {}", command.words.front(), std::strerror(error));
  }
}

ChildProcess::~ChildProcess() {
  if (!end_) {
    send(SIGKILL);
    wait();
  }
  ::close(handle_);
}

void ChildProcess::send(int signal) const {
  if (!end_) ::kill(pid_, signal);
}

std::optional<ChildEnd> ChildProcess::wait_for(std::chrono::milliseconds time) {
  if (end_) return end_;
  const auto until = std::chrono::steady_clock::now() + time;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd waited{.fd = handle_, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waited, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready > 0) return wait();
    if (ready == 0) return std::nullopt;
    if (errno != EINTR) throw IoError("cannot wait for a program: {}", std::strerror(errno));
  }
}

ChildEnd ChildProcess::wait() {
  if (end_) return *end_;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0)
    if (errno != EINTR) throw IoError("cannot wait for a program: {}", std::strerror(errno));
  return *(end_ = end_of(status));
}

std::filesystem::path own_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

}  // namespace ridge
