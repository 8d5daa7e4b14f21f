#include "ridge/trace/source.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge::trace {

Source::Source(const std::filesystem::path& path) : path_(path.string()) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw IoError("{} is a directory, not a trace", shown(path_));
  file_.open(path, std::ios::binary);
  if (!file_) throw IoError("cannot open {}: {}", shown(path_), std::strerror(errno));
  std::array<char, 2> magic{};
  file_.read(magic.data(), magic.size());
  const bool packed = file_.gcount() == 2 && is_gzip(std::as_bytes(std::span(magic)));
  file_.clear();
  file_.seekg(0);
  if (packed) unpack();
}

Source::Source(std::string_view file) : memory_(file) {
  if (is_gzip(std::as_bytes(std::span(file)))) unpack();
}

void Source::unpack() {
  unpacked_.emplace([this](std::span<char> into) { return read_file(into); });
}

std::size_t Source::read_file(std::span<char> into) {
  if (memory_) {
    const std::size_t bytes = memory_->copy(into.data(), into.size());
    memory_->remove_prefix(bytes);
    file_bytes_ += bytes;
    return bytes;
  }
  file_.read(into.data(), static_cast<std::streamsize>(into.size()));
  if (file_.bad()) throw IoError("cannot read {}: {}", shown(path_), std::strerror(errno));
  const auto got = static_cast<std::size_t>(file_.gcount());
  file_bytes_ += got;
  return got;
}

std::size_t Source::read(std::span<char> into) {
  return unpacked_ ? unpacked_->read(into) : read_file(into);
}

void Source::skip(std::uint64_t bytes) {
  if (!unpacked_ && !memory_) {
    file_.seekg(static_cast<std::streamoff>(bytes), std::ios::cur);
    file_bytes_ += bytes;
    return;
  }
  std::vector<char> left_out(std::min<std::uint64_t>(bytes, std::uint64_t{1} << 20));
  while (bytes > 0) {
    const std::size_t wanted = std::min<std::uint64_t>(bytes, left_out.size());
    const std::size_t got = read(std::span(left_out).first(wanted));
    bytes = got < wanted ? 0 : bytes - got;
  }
}

}  // namespace ridge::trace
