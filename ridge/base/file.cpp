#include "ridge/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <system_error>
#include <utility>

#include "ridge/base/error.h"

namespace ridge {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

// Owns a descriptor for the length of a scope.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// Makes the renaming itself durable. File systems that cannot sync a directory say EINVAL.
bool sync_directory(const std::filesystem::path& directory) {
  const Descriptor d{::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  return d.fd >= 0 && (::fsync(d.fd) == 0 || errno == EINVAL);
}

constexpr std::string_view temporary_suffix = ".ridge-tmp";
constexpr std::size_t buffer_bytes = 1 << 20;

// Whether a name still leads to the file that is open. Its owner may have renamed or removed it.
bool is_named(int descriptor, const std::filesystem::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

std::filesystem::path temporary_of(const std::filesystem::path& path) {
  return directory_of(path) / ("." + path.filename().string() + std::string(temporary_suffix));
}

// False if another process holds the lock. Some network file systems have no locks; there, writers
// must keep apart by themselves.
bool lock(int descriptor, int kind) {
  return ::flock(descriptor, kind | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

// False if the system refuses, which errno tells.
bool put_at(int descriptor, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    offset += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

// Takes room on the disk, where its file system can be asked to. False as above.
bool make_room(int descriptor, std::uint64_t bytes) {
  if (::fallocate(descriptor, 0, 0, static_cast<off_t>(bytes)) == 0) return true;
  return errno == EOPNOTSUPP && ::ftruncate(descriptor, static_cast<off_t>(bytes)) == 0;
}

std::array<std::byte, 16> random_bytes() {
  std::random_device random;
  std::array<std::byte, 16> bytes{};
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe would otherwise wait for its writer.
  const Descriptor d{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status {};
  if (d.fd < 0 || ::fstat(d.fd, &status) != 0)
    throw IoError("cannot read {}: {}", path.string(), reason(errno));
  if (S_ISDIR(status.st_mode)) throw IoError("cannot read {}: it is a directory", path.string());
  if (!S_ISREG(status.st_mode))
    throw IoError("cannot read {}: it is no regular file", path.string());
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // which mmap refuses
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, d.fd, 0);
  if (memory == MAP_FAILED)
    throw IoError("cannot map the {} bytes of {}: {}", size, path.string(), reason(errno));
  bytes_ = {static_cast<const std::byte*>(memory), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)), temporary_(temporary_of(path_)) {
  // Renaming would put a file where a device was.
  struct stat status {};
  if (::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw IoError("cannot write {}: it is {}", path_.string(),
                  S_ISDIR(status.st_mode) ? "a directory" : "no regular file");
  open_temporary();
}

// A lock tells the temporary of a living writer from a dead one's, which is written over. Between
// opening and locking, its owner may have renamed or removed it: what was locked is then no longer
// the temporary but the finished file, and must not be touched.
void AtomicFile::open_temporary() {
  for (;;) {
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) fail();
    if (!lock(descriptor_, LOCK_EX)) {
      ::close(std::exchange(descriptor_, -1));
      throw IoError("cannot write {}: another process is writing it", path_.string());
    }
    if (is_named(descriptor_, temporary_)) break;
    ::close(std::exchange(descriptor_, -1));
  }
  if (::ftruncate(descriptor_, 0) != 0) fail();
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (descriptor_ < 0) return;
  // In this order: the lock, which closing gives up, guards the name.
  ::unlink(temporary_.c_str());
  ::close(std::exchange(descriptor_, -1));
}

void AtomicFile::fail() {
  const int error = errno;
  discard();
  if (written_ == 0) throw IoError("cannot write {}: {}", path_.string(), reason(error));
  throw IoError("cannot write {}: {} after {} bytes", path_.string(), reason(error), written_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > buffer_bytes) flush();
  if (bytes.size() > buffer_bytes) return put(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void AtomicFile::flush() {
  put(buffer_);
  buffer_.clear();
}

void AtomicFile::put(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail();
    written_ += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

// The others lock it too, so that a later writer of the same file does not take it for a dead one's
// while one of them still writes.
FileKey AtomicFile::reserve(std::uint64_t bytes) {
  flush();
  FileKey key{.bytes = bytes, .random = random_bytes()};
  if (!make_room(descriptor_, bytes + key.random.size()) ||
      !put_at(descriptor_, bytes, key.random) || ::fdatasync(descriptor_) != 0)
    fail();
  if (!lock(descriptor_, LOCK_SH)) {  // the temporary is another's now
    ::close(std::exchange(descriptor_, -1));
    throw IoError("cannot write {}: another process is writing it", path_.string());
  }
  reserved_ = bytes;
  return key;
}

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (!put_at(descriptor_, offset, bytes)) fail();
  written_ += bytes.size();
}

void AtomicFile::commit() {
  flush();
  if (reserved_ && ::ftruncate(descriptor_, static_cast<off_t>(*reserved_)) != 0) fail();
  if (::fsync(descriptor_) != 0) fail();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
  // From here on the file is there; closing gives up the lock on it.
  const bool closed = ::close(std::exchange(descriptor_, -1)) == 0;
  if (!closed || !sync_directory(directory_of(path_)))
    throw IoError("wrote {}, but cannot tell that it reached the disk: {}", path_.string(),
                  reason(errno));
}

std::optional<FilePart> FilePart::open(const std::filesystem::path& path, const FileKey& key) {
  const int descriptor = ::open(temporary_of(path).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return std::nullopt;
  FilePart part(path, descriptor);
  std::array<std::byte, sizeof key.random> found{};
  const ssize_t n = ::pread(descriptor, found.data(), found.size(), static_cast<off_t>(key.bytes));
  if (n != static_cast<ssize_t>(found.size()) || found != key.random) return std::nullopt;
  if (!lock(descriptor, LOCK_SH)) return std::nullopt;
  return part;
}

FilePart::FilePart(FilePart&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

FilePart& FilePart::operator=(FilePart&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FilePart::~FilePart() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FilePart::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (!put_at(descriptor_, offset, bytes))
    throw IoError("cannot write {}: {}", path_.string(), reason(errno));
}

void FilePart::finish() {
  if (::fsync(descriptor_) != 0 || ::close(std::exchange(descriptor_, -1)) != 0)
    throw IoError("cannot write {}: {}", path_.string(), reason(errno));
}

void make_directories(const std::filesystem::path& directory) {
  std::error_code fault;
  std::filesystem::create_directories(directory, fault);
  if (fault) throw IoError("cannot make the directory {}: {}", directory.string(), fault.message());
}

void probe_writing(const std::filesystem::path& path) {
  AtomicFile file(path);
  file.write("probe");
  file.flush();
}

void remove_abandoned_files(const std::filesystem::path& directory) noexcept try {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with('.') || !name.ends_with(temporary_suffix)) continue;
    const Descriptor d{
        ::open(entry.path().c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
    if (d.fd >= 0 && ::flock(d.fd, LOCK_EX | LOCK_NB) == 0 && is_named(d.fd, entry.path()))
      ::unlink(entry.path().c_str());
  }
} catch (const std::exception&) {  // such as a directory that cannot be listed
}

std::string read_text_file(const std::filesystem::path& path, std::size_t max_bytes) {
  const Descriptor d{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (d.fd < 0) throw IoError("cannot read {}: {}", path.string(), reason(errno));
  // Read to the end rather than by size: a pipe has none.
  std::string text;
  for (;;) {
    char buffer[4096];
    const ssize_t n = ::read(d.fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw IoError("cannot read {}: {}", path.string(), reason(errno));
    if (n == 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
    if (text.size() > max_bytes)
      throw IoError("cannot read {}: it has more than {} bytes", path.string(), max_bytes);
  }
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void duplicate_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  const MappedFile source(from);
  AtomicFile file(to);
  file.write(source.bytes());
  file.commit();
}

}  // namespace ridge
