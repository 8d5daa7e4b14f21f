#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::gpu {

// Compiled kernels on disk, a file each, so that the next start finds them. It is only a cache: a
// file that is missing or damaged is a kernel to compile again, and one that cannot be written is
// not. Several processes may use it at once. What nobody has looked for in 90 days is deleted: a
// new driver, NVRTC or version of the source would else leave its predecessors' files for ever.
class KernelCache {
 public:
  explicit KernelCache(std::filesystem::path directory);  // empty: nothing is kept

  // What was kept under exactly this `key`, if it is as it was written.
  std::optional<std::vector<char>> find(const std::string& name, std::string_view key) const;
  // Whether it was written.
  bool keep(const std::string& name, std::string_view key, const std::vector<char>& image) const;

  // The path of a kernel's file: its name and a digest of the key.
  std::filesystem::path file_of(const std::string& name, std::string_view key) const;

 private:
  std::filesystem::path directory_;
};

}  // namespace ridge::gpu
