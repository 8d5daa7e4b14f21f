#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridge {

// A file's content, mapped into memory and read only. IoError if the file is missing, unreadable or
// no regular file. The file must not shrink while it is mapped; AtomicFile never shrinks one, it
// puts a new file in its place.
class MappedFile {
 public:
  MappedFile() = default;  // no file, no bytes
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// By this the writers of one file know it: so many bytes, and random ones, which lie behind them
// until the file is complete.
struct FileKey {
  std::uint64_t bytes = 0;
  std::array<std::byte, 16> random{};
};

// A file that appears under its name complete or not at all, whatever happens meanwhile: a full
// disk, a killed process, a power cut. Content goes to ".<name>.ridge-tmp" beside it; commit()
// syncs that to the disk and renames it. One who dies before leaves the temporary behind, which the
// next to write the same file starts afresh; see also remove_abandoned_files. Every member throws
// IoError if the system refuses: the message has the file, the bytes written so far and the reason,
// and the temporary is gone.
//
// Several processes can write one such file together: its owner reserves it, the others open it as
// a FilePart, and the owner commits it when all of them are done.
class AtomicFile {
 public:
  // IoError also if there is something at `path` that is not a regular file, or if another process
  // is writing the same file.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();  // without commit(): nothing happened
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Small pieces are gathered, so writing them one by one is cheap.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void flush();  // hands all of it to the system, which may refuse it
  // Takes so many bytes of the disk for the file, which has at most as many so far, and lets others
  // write into it who are told what this returns. From here on there is write_at() alone.
  FileKey reserve(std::uint64_t bytes);
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void commit();  // once, and last

 private:
  void open_temporary();
  void put(std::span<const std::byte> bytes);
  void discard();
  [[noreturn]] void fail();

  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
  std::vector<std::byte> buffer_;
  std::uint64_t written_ = 0;  // of which the system knows
  std::optional<std::uint64_t> reserved_;
};

// A file that an AtomicFile of another process has reserved, to write a part of it.
class FilePart {
 public:
  // Nothing if there is no file that has this key, as on a machine with other disks.
  static std::optional<FilePart> open(const std::filesystem::path& path, const FileKey& key);
  FilePart(FilePart&& other) noexcept;
  FilePart& operator=(FilePart&& other) noexcept;
  ~FilePart();

  // IoError, here and below, if the system refuses.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void finish();  // once, and last: puts all of it on the disk

 private:
  FilePart(std::filesystem::path path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  std::filesystem::path path_;
  int descriptor_;
};

// Makes a directory and those above it, unless they are there. IoError if the system refuses.
void make_directories(const std::filesystem::path& directory);

// Throws IoError unless a file of this name could be written just now. Leaves no trace.
void probe_writing(const std::filesystem::path& path);

// Removes from a directory what writers that died left there: the temporaries of AtomicFile that
// nobody holds. What cannot be removed stays, since it does no harm.
void remove_abandoned_files(const std::filesystem::path& directory) noexcept;

// A whole small file, such as a configuration. IoError if it cannot be read or has more than
// `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, std::size_t max_bytes);

// The same content under the same name, atomically.
void write_text_file(const std::filesystem::path& path, std::string_view text);

// A second file with the content of the first, atomically. It is a copy rather than a link, since
// gzip refuses a file that has two names and an editor may change it in place.
void duplicate_file(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace ridge
