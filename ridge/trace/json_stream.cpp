#include "ridge/trace/json_stream.h"

#include <array>
#include <span>

namespace ridge::trace {
namespace {

enum class Role : std::uint8_t { other, quote, escape, open, close, end };

// What a character means outside of texts. Within them, quotes and escapes do.
constexpr std::array<Role, 256> roles = [] {
  std::array<Role, 256> of{};
  for (const char c : {'{', '['}) of[static_cast<unsigned char>(c)] = Role::open;
  for (const char c : {'}', ']'}) of[static_cast<unsigned char>(c)] = Role::close;
  for (const char c : {',', ':', ' ', '\n', '\r', '\t'})
    of[static_cast<unsigned char>(c)] = Role::end;
  of['"'] = Role::quote;
  of['\\'] = Role::escape;
  return of;
}();

Role role_of(char c) { return roles[static_cast<unsigned char>(c)]; }
bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Finds the end of a value, character by character.
class ValueEnd {
 public:
  // Whether the value has ended before this character.
  bool ends_before(char c) const {
    const Role role = role_of(c);
    return depth_ == 0 && begun_ && !in_text_ && !is_nested_ &&
           (role == Role::end || role == Role::close);
  }
  // Takes a character. Whether the value ends with it.
  bool takes(char c) {
    const Role role = role_of(c);
    begun_ = true;
    if (in_text_) {
      if (escaped_)
        escaped_ = false;
      else if (role == Role::escape)
        escaped_ = true;
      else if (role == Role::quote)
        in_text_ = false;
      return !in_text_ && depth_ == 0;
    }
    if (role == Role::quote) in_text_ = true;
    if (role == Role::open) ++depth_, is_nested_ = true;
    return role == Role::close && --depth_ == 0;
  }
  bool is_scalar() const { return begun_ && !in_text_ && !is_nested_; }

 private:
  std::size_t depth_ = 0;
  bool in_text_ = false, escaped_ = false, begun_ = false, is_nested_ = false;
};

}  // namespace

bool JsonStream::read_more() {
  text_.erase(0, next_);
  begin_ += next_;
  next_ = 0;
  const std::size_t before = text_.size();
  // Little of a small file; of a long value as much again as there is, so that it costs little.
  const std::size_t wanted = std::max(read_bytes_, before);
  read_bytes_ = std::min(2 * read_bytes_, chunk_bytes_);
  text_.resize(before + wanted);
  const std::size_t got = source_.read(std::span(text_).subspan(before));
  text_.resize(before + got);
  if (progress_) progress_(source_.file_bytes_read());
  return got > 0;
}

void JsonStream::skip_space() {
  do {
    while (next_ < text_.size() && is_space(text_[next_])) ++next_;
  } while (next_ == text_.size() && read_more());
}

bool JsonStream::begins_with(char c) {
  skip_space();
  return next_ < text_.size() && text_[next_] == c;
}

bool JsonStream::at_end() {
  skip_space();
  return next_ == text_.size();
}

bool JsonStream::take(char c) {
  if (!begins_with(c)) return false;
  ++next_;
  return true;
}

// The length of the value that comes next, which stays in text_ if it is kept, and else is left
// out; none if it is not whole.
std::optional<std::size_t> JsonStream::scan(bool keep) {
  if (at_end() || role_of(text_[next_]) == Role::close || role_of(text_[next_]) == Role::end)
    return std::nullopt;
  const std::uint64_t begin = begin_ + next_;
  ValueEnd value;
  for (std::size_t length = 0;;) {
    if (next_ + length == text_.size()) {
      if (!keep) {
        next_ += length;
        length = 0;
      }
      if (length < most_bytes && read_more()) continue;
      if (length < most_bytes && value.is_scalar()) return length;
      stopped_at_ = begin;
      return std::nullopt;
    }
    const char c = text_[next_ + length];
    if (value.ends_before(c)) return length;
    ++length;
    if (value.takes(c)) return length;
  }
}

std::optional<std::string_view> JsonStream::value() {
  const std::optional<std::size_t> length = scan(true);
  if (!length) return std::nullopt;
  next_ += *length;
  return std::string_view(text_).substr(next_ - *length, *length);
}

bool JsonStream::skip_value() {
  const std::optional<std::size_t> left = scan(false);
  next_ += left.value_or(0);
  return left.has_value();
}

std::optional<std::string> JsonStream::key() {
  if (!begins_with('"')) return std::nullopt;
  const std::optional<std::string_view> quoted = value();
  if (!quoted) return std::nullopt;
  std::string key(quoted->substr(1, quoted->size() - 2));
  if (!take(':')) return std::nullopt;
  return key;
}

bool JsonStream::each_member(const std::function<bool(std::string_view)>& take_value) {
  if (!begins_with('{')) return skip_value();
  take('{');
  if (take('}')) return true;
  do {
    const std::optional<std::string> name = key();
    if (!name || !take_value(*name)) return false;
  } while (take(','));
  return take('}');
}

bool JsonStream::each_value(const std::function<bool()>& take_value) {
  if (!begins_with('[')) return skip_value();
  take('[');
  if (take(']')) return true;
  do {
    if (!take_value()) return false;
  } while (take(','));
  return take(']');
}

bool JsonStream::each_batch(const std::function<void(std::string&, std::uint64_t)>& take_batch) {
  std::string batch;
  std::uint64_t begin = 0;
  const auto flush = [&] {
    if (batch.empty()) return;
    batch.back() = ']';
    take_batch(batch, begin);
    batch.clear();
  };
  const bool whole = each_value([&] {
    const std::optional<std::string_view> one = value();
    if (!one) return false;
    if (batch.empty()) {
      begin = begin_ + next_ - one->size();
      batch = '[';
    }
    batch += *one;
    batch += ',';
    if (batch.size() >= chunk_bytes_) flush();
    return true;
  });
  flush();
  return whole;
}

std::uint64_t JsonStream::skip_rest() {
  do {
    next_ = text_.size();
  } while (read_more());
  return begin_;
}

}  // namespace ridge::trace
