#include "ridge/gpu/codegen/kernel_cache.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>

#include "ridge/base/digest.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"

namespace ridge::gpu {
namespace {

// A file begins with a line of format, the lengths of key and image, and a digest of both; the key
// follows, which is text, and the image.
constexpr std::size_t header_bytes = 64;

std::string header_of(std::string_view key, std::string_view image) {
  std::string header = fmt::format("ridge kernel 1 {} {} {:016x}", key.size(), image.size(),
                                   fnv1a(image, fnv1a(key)));
  header.resize(header_bytes - 1, ' ');
  return header + "\n";
}

using Clock = std::filesystem::file_time_type::clock;
constexpr auto kept_for = std::chrono::hours(24 * 90);

bool is_older_than(const std::filesystem::path& file, std::chrono::hours age) {
  std::error_code gone;  // by another process
  const auto used = std::filesystem::last_write_time(file, gone);
  return !gone && Clock::now() - used > age;
}

// The time of a file's last use is that of its last writing, set once a day.
void note_use(const std::filesystem::path& file) {
  std::error_code ignored;
  if (is_older_than(file, std::chrono::hours(24)))
    std::filesystem::last_write_time(file, Clock::now(), ignored);
}

void delete_unused(const std::filesystem::path& directory) {
  std::error_code ignored;
  for (std::filesystem::directory_iterator file(directory, ignored), end; file != end;
       file.increment(ignored)) {
    std::error_code gone;
    if (is_older_than(file->path(), kept_for)) std::filesystem::remove(file->path(), gone);
  }
}

}  // namespace

KernelCache::KernelCache(std::filesystem::path directory) : directory_(std::move(directory)) {}

std::filesystem::path KernelCache::file_of(const std::string& name, std::string_view key) const {
  return directory_ / fmt::format("{}_{:016x}", name, fnv1a(key));
}

std::optional<std::vector<char>> KernelCache::find(const std::string& name,
                                                   std::string_view key) const {
  if (directory_.empty()) return std::nullopt;
  const std::filesystem::path path = file_of(name, key);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  try {
    const MappedFile file(path);
    const std::string_view all(reinterpret_cast<const char*>(file.bytes().data()),
                               file.bytes().size());
    if (all.size() < header_bytes + key.size() || all.substr(header_bytes, key.size()) != key)
      return std::nullopt;
    const std::string_view image = all.substr(header_bytes + key.size());
    if (all.substr(0, header_bytes) != header_of(key, image)) return std::nullopt;
    note_use(path);
    return std::vector<char>(image.begin(), image.end());
  } catch (const IoError&) {
    return std::nullopt;
  }
}

bool KernelCache::keep(const std::string& name, std::string_view key,
                       const std::vector<char>& image) const {
  if (directory_.empty()) return false;
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) return false;
  try {
    AtomicFile file(file_of(name, key));
    const std::string_view text(image.data(), image.size());
    file.write(header_of(key, text));
    file.write(key);
    file.write(text);
    file.commit();
    delete_unused(directory_);
    return true;
  } catch (const IoError&) {
    return false;
  }
}

}  // namespace ridge::gpu
