#pragma once

#include "ridge/cli/terminal.h"
#include "ridge/report/profiled_run.h"

namespace ridge {

// Prints what a run tells of itself and of its profile, but for the steps.
class TerminalListener : public RunListener {
 public:
  explicit TerminalListener(Terminal& terminal) : terminal_(terminal) {}

  void busy(std::string_view what) override { terminal_.busy(what); }
  void say(const std::string& line) override { terminal_.line(line); }
  void wrote(const std::filesystem::path& file) override;
  // Prints the reports that the options of the run ask for.
  void analyzed(const ProfileContent& content) override;
  // Says what there is, then throws if that is not all.
  void wrote_profile(const ProfileListing& listing) override;

 protected:
  Terminal& terminal_;
};

// The exit code of a program whose run ended so, of its own or because it was told to.
int exit_code_of(const Record& record);

}  // namespace ridge
