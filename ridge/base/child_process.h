#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ridge {

// A command line for a shell: words with other characters than those that stand for themselves are
// in quotes.
std::string shell_line(const std::vector<std::string>& words);

struct ChildCommand {
  std::vector<std::string> words;  // the program, sought in $PATH if it has no slash; its arguments
  std::filesystem::path directory = {};  // it works there; empty: in ours
  std::filesystem::path output = {};     // takes both its outputs, anew; empty: nobody sees them
  std::filesystem::path errors = {};     // takes standard error instead, anew
  bool shares_output = false;            // or they are ours
  // Set in its environment, besides ours.
  std::vector<std::pair<std::string, std::string>> environment = {};
  // It reads what we read and belongs to our process group, so that Ctrl-C reaches both.
  bool shares_terminal = false;
  int keeps = -1;  // a descriptor that it has under the same number; -1: none but the standard ones
};

struct ChildEnd {
  int exit_code = 0;  // if no signal ended it
  int signal = 0;     // that did; 0 if none
  bool ok() const { return exit_code == 0 && signal == 0; }
};
// "exit code 2", "signal 9 (Killed)".
std::string to_string(const ChildEnd& end);

// A program that this one runs. Unless it shares the terminal, it reads nothing and belongs to a
// process group of its own, so that Ctrl-C is ours to pass on. It is killed when the thread that
// started it ends, even by SIGKILL.
class ChildProcess {
 public:
  // IoError if there is no such program, or the system starts no process.
  explicit ChildProcess(const ChildCommand& command);
  ~ChildProcess();  // kills it if it still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const;  // nothing happens if it has ended
  // Waits for its end, for so long at most: none if it still runs then.
  std::optional<ChildEnd> wait_for(std::chrono::milliseconds time);
  ChildEnd wait();

 private:
  pid_t pid_ = -1;
  int handle_ = -1;  // readable when it ends
  std::optional<ChildEnd> end_;
};

// The file of the program that is running, as it was called when that began.
std::filesystem::path own_program();
// Starts the program that is running, also where another file has taken its name since.
inline constexpr const char* this_program = "/proc/self/exe";

}  // namespace ridge
