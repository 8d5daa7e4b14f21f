#include "ridge/study/uuid.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <system_error>

#include "ridge/base/error.h"

namespace ridge {
namespace {

constexpr std::size_t digits_of_uuid = 32;

// The hexadecimal digits of a text as numbers; none if there is something else in it.
std::optional<std::string> digits_in(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c == '-') continue;
    const char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9')
      digits += static_cast<char>(c - '0');
    else if (lower >= 'a' && lower <= 'f')
      digits += static_cast<char>(lower - 'a' + 10);
    else
      return std::nullopt;
  }
  return digits.size() <= digits_of_uuid ? std::optional(digits) : std::nullopt;
}

Uuid uuid_of(const std::string& digits) {
  Uuid uuid{};
  for (std::size_t i = 0; i < digits.size(); ++i)
    uuid[i / 2] = static_cast<std::uint8_t>(uuid[i / 2] | digits[i] << (i % 2 == 0 ? 4 : 0));
  return uuid;
}

}  // namespace

Uuid random_uuid() {
  Uuid uuid{};
  std::size_t filled = 0;
  while (filled < uuid.size()) {
    const ssize_t got = ::getrandom(uuid.data() + filled, uuid.size() - filled, 0);
    if (got > 0) filled += static_cast<std::size_t>(got);
    if (got < 0 && errno != EINTR)
      throw IoError("the system gives no random numbers: {}",
                    std::generic_category().message(errno));
  }
  uuid[6] = static_cast<std::uint8_t>((uuid[6] & 0x0F) | 0x40);
  uuid[8] = static_cast<std::uint8_t>((uuid[8] & 0x3F) | 0x80);
  return uuid;
}

std::string to_string(const Uuid& uuid) {
  std::string text;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

std::optional<Uuid> uuid_from(std::string_view text) {
  const std::optional<std::string> digits = digits_in(text);
  if (!digits || digits->size() != digits_of_uuid) return std::nullopt;
  return uuid_of(*digits);
}

std::optional<std::pair<Uuid, Uuid>> uuids_with_prefix(std::string_view text, std::size_t least) {
  std::optional<std::string> digits = digits_in(text);
  if (!digits || digits->size() < least) return std::nullopt;
  std::string last = *digits;
  digits->resize(digits_of_uuid, '\0');
  last.resize(digits_of_uuid, '\x0f');
  return std::pair{uuid_of(*digits), uuid_of(last)};
}

}  // namespace ridge
