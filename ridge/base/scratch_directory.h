#pragma once

#include <filesystem>
#include <string_view>

namespace ridge {

// A new directory below the system's temporary one ($TMPDIR), which goes with all that is in it.
class ScratchDirectory {
 public:
  // Its name begins with `prefix`. IoError, with the reason, if the system makes none.
  explicit ScratchDirectory(std::string_view prefix);
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace ridge
