#include "ridge/profile/tensorboard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <protozero/pbf_builder.hpp>
#include <system_error>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/profile/crc32c.h"

namespace ridge {
namespace {

// Fields of TensorFlow's event.proto and summary.proto.
enum class Event : protozero::pbf_tag_type {
  wall_time = 1,
  step = 2,
  file_version = 3,
  summary = 5
};
enum class Summary : protozero::pbf_tag_type { value = 1 };
enum class SummaryValue : protozero::pbf_tag_type { tag = 1, simple_value = 2 };

// A check of data that itself contains checks is weak, so TFRecord turns each by 15 bits and adds a
// constant.
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

void append_little_endian(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

// length, its check, data, its check
std::string record(std::string_view data) {
  std::string out;
  append_little_endian(out, data.size(), 8);
  append_little_endian(out, masked_crc(out), 4);
  out += data;
  append_little_endian(out, masked_crc(data), 4);
  return out;
}

std::string file_name(std::string_view host, double unix_seconds, int n) {
  std::string safe;
  for (const char c : host) {
    const auto u = static_cast<unsigned char>(c);
    safe += std::isalnum(u) || c == '-' || c == '.' ? c : '_';
  }
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<std::int64_t>(unix_seconds),
                     safe.empty() ? "localhost" : safe, ::getpid(), n);
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& directory, std::string_view host,
                     double unix_seconds) {
  for (int n = 0; descriptor_ < 0; ++n) {
    path_ = directory / file_name(host, unix_seconds, n);
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) fail();
  }
  std::string event;
  protozero::pbf_builder<Event> builder(event);
  builder.add_double(Event::wall_time, unix_seconds);
  builder.add_string(Event::file_version, "brain.Event:2");
  append(event);
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void EventFile::fail() {
  const int error = errno;
  if (descriptor_ >= 0) {
    if (written_ == 0) ::unlink(path_.c_str());  // an empty file tells nothing
    ::close(std::exchange(descriptor_, -1));
  }
  throw IoError("cannot write {}: {} after {} bytes", path_.string(),
                std::generic_category().message(error), written_);
}

void EventFile::add(std::int64_t step, double unix_seconds, std::span<const Scalar> scalars) {
  std::string event;
  {
    protozero::pbf_builder<Event> builder(event);
    builder.add_double(Event::wall_time, unix_seconds);
    builder.add_int64(Event::step, step);
    protozero::pbf_builder<Summary> summary(builder, Event::summary);
    for (const Scalar& scalar : scalars) {
      protozero::pbf_builder<SummaryValue> value(summary, Summary::value);
      value.add_string(SummaryValue::tag, scalar.tag.data(), scalar.tag.size());
      value.add_float(SummaryValue::simple_value, static_cast<float>(scalar.value));
    }
  }
  append(event);
}

void EventFile::append(std::string_view event) {
  if (descriptor_ < 0) throw IoError("cannot write {}: an earlier write failed", path_.string());
  const std::string bytes = record(event);
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t n = ::write(descriptor_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      // Half a record would look like damage to a reader.
      const int error = errno;
      if (::ftruncate(descriptor_, static_cast<off_t>(written_)) != 0) errno = error;
      errno = error;
      fail();
    }
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  written_ += bytes.size();
}

void EventFile::sync() {
  if (descriptor_ >= 0 && ::fsync(descriptor_) != 0) fail();
}

}  // namespace ridge
