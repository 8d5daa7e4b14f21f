#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace ridge {

// A point of one of TensorBoard's curves.
struct Scalar {
  std::string_view tag;  // "train/loss"; what stands before the "/" is the group
  double value;
};

// A file of TensorBoard events, which it finds by its name and may read while it grows. Records are
// appended whole, so a process that dies leaves a file that ends at a record; that is why this one
// has its final name from the start. IoError if the system refuses, with the file and the reason.
class EventFile {
 public:
  // Makes "events.out.tfevents.<seconds>.<host>.<pid>.<n>" in `directory`, with the first n from 0
  // that is free. `unix_seconds` is now.
  EventFile(const std::filesystem::path& directory, std::string_view host, double unix_seconds);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Appends the values of a step. TensorBoard shows a value that is no number as a gap.
  void add(std::int64_t step, double unix_seconds, std::span<const Scalar> scalars);
  // Waits until all that was added is on the disk.
  void sync();

  const std::filesystem::path& path() const { return path_; }

 private:
  void append(std::string_view event);
  [[noreturn]] void fail();

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t written_ = 0;  // whole records
};

}  // namespace ridge
