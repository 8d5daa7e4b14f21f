#pragma once

// Runs the program as its users do, in a directory of its own.

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/base/temporary_directory.h"

namespace ridge {

using Words = std::vector<std::string>;

struct ProgramResult {
  int exit_code = -1;  // -1 if a signal ended it
  int signal = 0;      // that signal
  std::string out, err;
};

// A working directory that vanishes with its owner.
class Sandbox {
 public:
  std::filesystem::path path(const std::string& name) const { return directory_.path / name; }
  bool has(const std::string& name) const { return std::filesystem::exists(path(name)); }
  void write(const std::string& name, const std::string& content) const;
  std::string read(const std::string& name) const;

  // Runs the program to its end under the name argv[0] of `command`, with standard output to a
  // file.
  ProgramResult run(const Words& command) const;

 private:
  TemporaryDirectory directory_;
};

// What a program printed that had to come to a good end, without a word on standard error.
std::string output_of(const ProgramResult& result);
// The one line on standard error of a program that had to end so.
std::string complaint_of(const ProgramResult& result, int exit_code);

// A program that is still running, whose standard output is read as it comes.
class RunningProgram {
 public:
  RunningProgram(const Sandbox& sandbox, const Words& command);
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  // Reads until the output contains `text`; false if the program ended before, or was silent for a
  // minute.
  bool wait_for(const std::string& text);
  const std::string& out() const { return out_; }  // what was read
  void send(int signal) const;
  ProgramResult wait();  // to its end, or for a minute of silence, after which it is killed

 private:
  bool read_some();

  const Sandbox& sandbox_;
  pid_t pid_ = -1;
  int descriptor_ = -1;
  std::string out_;
};

// The same on a terminal, which is both standard output and standard error. "No result" where the
// system gives none, as in a root directory without /dev/pts.
std::optional<ProgramResult> run_on_terminal(const Sandbox& sandbox, const Words& command);

Words words_of(const std::string& text);
std::vector<std::string> lines_of(const std::string& text);

}  // namespace ridge
