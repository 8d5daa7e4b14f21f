#include "ridge/base/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t max_header = 100'000'000;  // the reference implementation's limit
constexpr std::size_t max_rank = 64;             // PyTorch's; of each tensor's own memory, a bound
constexpr std::string_view metadata_key = "__metadata__";

struct StoredDType {
  std::string_view name;
  std::uint64_t size;
  std::optional<DType> dtype;
};

// The dtypes of whole bytes. Narrower ones are stored packed, and Ridge has no use for them.
constexpr std::array stored_dtypes = {
    StoredDType{"F32", 4, DType::f32}, StoredDType{"BF16", 2, DType::bf16},
    StoredDType{"I32", 4, DType::i32}, StoredDType{"F16", 2, DType::f16},
    StoredDType{"F64", 8, {}},         StoredDType{"C64", 8, {}},
    StoredDType{"I64", 8, {}},         StoredDType{"U64", 8, {}},
    StoredDType{"U32", 4, {}},         StoredDType{"I16", 2, {}},
    StoredDType{"U16", 2, {}},         StoredDType{"I8", 1, {}},
    StoredDType{"U8", 1, {}},          StoredDType{"BOOL", 1, {}},
    StoredDType{"F8_E4M3", 1, {}},     StoredDType{"F8_E5M2", 1, {}},
    StoredDType{"F8_E8M0", 1, {}}};

const StoredDType* find_dtype(std::string_view name) {
  const auto it = std::ranges::find(stored_dtypes, name, &StoredDType::name);
  return it == stored_dtypes.end() ? nullptr : &*it;
}

std::string_view stored_name_of(DType dtype) {
  return std::ranges::find(stored_dtypes, std::optional(dtype), &StoredDType::dtype)->name;
}

// Text ------------------------------------------------------------------------------------------

std::uint32_t hex4(std::string_view digits) {
  std::uint32_t value = 0;
  for (const char c : digits.substr(0, 4))
    value = value * 16 + static_cast<std::uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  return value;
}

// Goes through the text that a sound JSON string stands for, from the character after its opening
// quote, byte by byte and without building it: names are compared where they lie.
class StringCursor {
 public:
  explicit StringCursor(const char* at) : at_(at) {}

  // The next byte, or -1 at the end and ever after.
  int next() {
    if (pending_at_ < pending_.size()) return static_cast<unsigned char>(pending_[pending_at_++]);
    if (*at_ == '"') return -1;
    if (*at_ != '\\') return static_cast<unsigned char>(*at_++);
    ++at_;
    switch (const char c = *at_++) {
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'u':
        return unicode();
      default:
        return c;  // a quote, a backslash, a slash
    }
  }

 private:
  int unicode() {
    std::uint32_t code = hex4({at_, 4});
    at_ += 4;
    if (code >= 0xD800 && code < 0xE000) {  // the first of a pair of surrogates
      code = 0x10000 + ((code - 0xD800) << 10) + (hex4({at_ + 2, 4}) - 0xDC00);
      at_ += 6;
    }
    pending_.clear();
    pending_at_ = 0;
    append_utf8(pending_, code);
    return next();
  }

  const char* at_;
  std::string pending_;  // the rest of one character, so short that it needs no heap
  std::size_t pending_at_ = 0;
};

int compare(StringCursor a, StringCursor b) {
  for (;;) {
    const int x = a.next(), y = b.next();
    if (x != y || x < 0) return x - y;
  }
}

int compare(StringCursor a, std::string_view b) {
  for (const char c : b)
    if (const int x = a.next(), y = static_cast<unsigned char>(c); x != y) return x - y;
  return a.next() < 0 ? 0 : 1;
}

std::string text_of(const StringCursor& string) {
  std::size_t size = 0;
  for (StringCursor s = string; s.next() >= 0;) ++size;
  std::string text;
  text.reserve(size);  // exactly, for a name may be as long as the file
  StringCursor s = string;
  for (int c = s.next(); c >= 0; c = s.next()) text += static_cast<char>(c);
  return text;
}

// Parsing ---------------------------------------------------------------------------------------

// Reads the header where it lies. Its grammar is a small part of JSON, of fixed depth, so that
// nothing needs to be built or remembered meanwhile. Strings are told by the position of their
// first character, arrays by that of what follows the bracket.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, std::string_view file, std::uint32_t at = 0)
      : text_(text), file_(file), at_(at) {}

  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(fmt::format("'{}'", c));
  }

  std::uint32_t string() {
    skip_space();
    if (at_ == text_.size() || text_[at_] != '"') fail("a string");
    const std::uint32_t start = ++at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) fail("no control character in a string");
      if (text_[at_++] == '\\') escape();
    }
    if (at_ == text_.size()) fail("the end of a string");
    ++at_;
    return start;
  }

  // Whether the string at `start`, which has been read before, is `text`.
  bool is(std::uint32_t start, std::string_view text) const {
    return compare(StringCursor(text_.data() + start), text) == 0;
  }

  std::uint64_t integer() {
    skip_space();
    const std::uint32_t start = at_;
    std::uint64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (__builtin_mul_overflow(value, 10u, &value) ||
          __builtin_add_overflow(value, digit, &value))
        fail("an integer of 64 bits");
    }
    const std::uint32_t digits = at_ - start;
    if (digits == 0 || (digits > 1 && text_[start] == '0')) fail("a non-negative integer");
    return value;
  }

  // What follows the opening bracket of an array of integers, up to and with its closing one.
  template <class OnInteger>
  void integers(const OnInteger& on_integer) {
    if (accept(']')) return;
    do on_integer(integer());
    while (accept(','));
    expect(']');
  }

  // The members of an object; `on_member(key)` reads the value.
  template <class OnMember>
  void object(const OnMember& on_member) {
    expect('{');
    if (accept('}')) return;
    do {
      const std::uint32_t key = string();
      expect(':');
      on_member(key);
    } while (accept(','));
    expect('}');
  }

  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }

  std::uint32_t position() const { return at_; }

  [[noreturn]] void fail(std::string_view expected) const {
    throw FormatError("{}: no sound safetensors file: expected {} at byte {} of its header", file_,
                      expected, at_);
  }

 private:
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  void escape() {
    if (at_ == text_.size() || std::string_view("\"\\/bfnrtu").find(text_[at_]) == text_.npos)
      fail("an escape sequence");
    if (text_[at_++] != 'u') return;
    const std::uint32_t code = hexadecimal();
    if (code < 0xD800 || code >= 0xE000) return;
    if (code >= 0xDC00 || text_.substr(at_, 2) != "\\u") fail("a pair of surrogates");
    at_ += 2;
    const std::uint32_t second = hexadecimal();
    if (second < 0xDC00 || second >= 0xE000) fail("a pair of surrogates");
  }

  std::uint32_t hexadecimal() {
    const std::string_view digits = text_.substr(at_, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos)
      fail("four hexadecimal digits");
    at_ += 4;
    return hex4(digits);
  }

  std::string_view text_, file_;
  std::uint32_t at_;
};

// Reads {"dtype": .., "shape": .., "data_offsets": ..}, in any order, into an entry. The reference
// implementation passes over further members; here they are refused, as is one given twice.
template <class Entry>
void read_tensor(HeaderReader& reader, Entry& entry) {
  bool dtype = false, shape = false, offsets = false;
  const auto once = [&](bool& seen) {
    if (std::exchange(seen, true)) reader.fail("each member once");
  };
  reader.object([&](std::uint32_t key) {
    if (reader.is(key, "dtype")) {
      once(dtype);
      entry.dtype = reader.string();
    } else if (reader.is(key, "shape")) {
      once(shape);
      reader.expect('[');
      entry.shape = reader.position();
      std::size_t rank = 0;
      reader.integers([&](std::uint64_t extent) {
        if (++rank > max_rank) reader.fail(fmt::format("at most {} dimensions", max_rank));
        if (extent > std::numeric_limits<std::int64_t>::max()) reader.fail("an extent of 63 bits");
      });
    } else if (reader.is(key, "data_offsets")) {
      once(offsets);
      reader.expect('[');
      entry.begin = reader.integer();
      reader.expect(',');
      entry.end = reader.integer();
      reader.expect(']');
    } else {
      reader.fail("no member but dtype, shape and data_offsets");
    }
  });
  if (!dtype || !shape || !offsets) reader.fail("dtype, shape and data_offsets");
}

template <class Entry, class OnTensor, class OnMetadata>
void read_header(HeaderReader reader, const OnTensor& on_tensor, const OnMetadata& on_metadata) {
  bool metadata = false;
  reader.object([&](std::uint32_t name) {
    if (reader.is(name, metadata_key)) {
      if (std::exchange(metadata, true)) reader.fail("metadata once");
      reader.object([&](std::uint32_t key) {
        on_metadata(key);
        reader.string();
      });
    } else {
      Entry entry{};
      entry.name = name;
      read_tensor(reader, entry);
      on_tensor(entry);
    }
  });
  if (!reader.at_end()) reader.fail("nothing but spaces");
}

int compare_at(std::string_view header, std::uint32_t position, std::string_view text) {
  return compare(StringCursor(header.data() + position), text);
}

// Sorts `items` by the string that lies where their projection says, and refuses two alike.
template <class Item, class Projection>
void sort_unique(std::vector<Item>& items, Projection position, std::string_view header,
                 std::string_view kind, std::string_view file) {
  const auto cursor = [&](const Item& item) {
    return StringCursor(header.data() + std::invoke(position, item));
  };
  std::ranges::sort(
      items, [&](const Item& a, const Item& b) { return compare(cursor(a), cursor(b)) < 0; });
  const auto twice = std::ranges::adjacent_find(
      items, [&](const Item& a, const Item& b) { return compare(cursor(a), cursor(b)) == 0; });
  if (twice != items.end())
    throw FormatError("{}: {} {} appears twice", file, kind, shown(text_of(cursor(*twice))));
}

}  // namespace

std::optional<TensorType> StoredTensor::type() const {
  const StoredDType* known = find_dtype(dtype);
  if (!known || !known->dtype || shape.size() > Shape::max_rank ||
      std::ranges::find(shape, 0) != shape.end()) {
    return std::nullopt;
  }
  return TensorType{*known->dtype, Shape(shape)};
}

namespace {

template <class T>
void convert(std::span<const std::byte> bytes, std::span<float> floats) {
  for (std::size_t i = 0; i < floats.size(); ++i) {
    T stored;  // copied out, because a file need not align its tensors
    std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
    floats[i] = static_cast<float>(stored);
  }
}

}  // namespace

bool StoredTensor::is_floating() const {
  return dtype == "F64" || dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

std::vector<float> StoredTensor::floats() const {
  if (!is_floating()) throw FormatError("{} is {}, and holds no floats", name, dtype);
  const StoredDType* const known = find_dtype(dtype);
  std::vector<float> floats(bytes.size() / known->size);
  if (dtype == "F64") convert<double>(bytes, floats);
  if (dtype == "F32") convert<float>(bytes, floats);
  if (dtype == "F16") convert<Float16>(bytes, floats);
  if (dtype == "BF16") convert<BFloat16>(bytes, floats);
  return floats;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path), name_(path.string()), data_(file_.bytes()) {
  parse();
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> content, std::string name)
    : name_(std::move(name)), data_(content) {
  parse();
}

void SafetensorsFile::parse() {
  std::uint64_t length = 0;
  if (data_.size() < sizeof length)
    throw FormatError("{}: no safetensors file: it has only {} bytes", name_, data_.size());
  std::memcpy(&length, data_.data(), sizeof length);
  data_ = data_.subspan(sizeof length);
  if (length > max_header)
    throw FormatError("{}: no safetensors file: its header would have {} bytes, of {} allowed",
                      name_, length, max_header);
  if (length > data_.size())
    throw FormatError("{}: truncated, or no safetensors file: {} bytes of its {} of header", name_,
                      data_.size(), length);
  header_ = {reinterpret_cast<const char*>(data_.data()), static_cast<std::size_t>(length)};
  data_ = data_.subspan(header_.size());
  if (!header_.starts_with('{'))
    throw FormatError("{}: no safetensors file: its header does not begin with '{{'", name_);
  if (const std::size_t at = find_invalid_utf8(header_); at < header_.size())
    throw FormatError("{}: no sound safetensors file: byte {} of its header is not UTF-8", name_,
                      at);

  // Once to check and to count, so that the second time takes exactly the memory needed: an entry
  // is smaller than its text, but the spare room of a growing vector would not be.
  const HeaderReader reader(header_, name_);
  std::size_t tensor_count = 0, metadata_count = 0;
  read_header<Entry>(
      reader, [&](const Entry&) { ++tensor_count; }, [&](std::uint32_t) { ++metadata_count; });
  tensors_.reserve(tensor_count);
  metadata_.reserve(metadata_count);
  read_header<Entry>(
      reader, [&](const Entry& entry) { tensors_.push_back(entry); },
      [&](std::uint32_t key) { metadata_.push_back(key); });

  check_coverage();
  sort_unique(tensors_, &Entry::name, header_, "tensor", name_);
  sort_unique(metadata_, std::identity{}, header_, "metadata key", name_);
  for (std::size_t i = 0; i < size(); ++i) check_size(tensor(i));
}

void SafetensorsFile::check_coverage() {
  for (const Entry& entry : tensors_) {
    if (entry.begin > entry.end)
      throw FormatError("{}: tensor {} ends at byte {} of the data, before its begin at {}", name_,
                        shown(string_at(entry.name)), entry.end, entry.begin);
    if (entry.end > data_.size())
      throw FormatError(
          "{}: truncated: tensor {} ends at byte {} of the data, of which there are {}", name_,
          shown(string_at(entry.name)), entry.end, data_.size());
  }
  // An empty tensor goes before the one that begins where it does.
  std::ranges::sort(tensors_, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  std::uint64_t covered = 0;
  const auto hole = [&](std::uint64_t end) {
    throw FormatError("{}: bytes {} to {} of the data belong to no tensor", name_, covered, end);
  };
  for (const Entry& entry : tensors_) {
    if (entry.begin < covered)
      throw FormatError("{}: tensor {} begins at byte {} of the data, within another", name_,
                        shown(string_at(entry.name)), entry.begin);
    if (entry.begin > covered) hole(entry.begin);
    covered = entry.end;
  }
  if (covered < data_.size()) hole(data_.size());
}

void SafetensorsFile::check_size(const StoredTensor& tensor) const {
  const StoredDType* known = find_dtype(tensor.dtype);
  if (!known) return;
  std::uint64_t bytes = known->size;
  bool overflow = false;
  for (const std::int64_t extent : tensor.shape)
    overflow |= __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes);
  if (overflow || bytes != tensor.bytes.size())
    throw FormatError("{}: tensor {} of type {}[{}] needs {} bytes of data and has {}", name_,
                      shown(tensor.name), tensor.dtype, fmt::join(tensor.shape, ", "),
                      overflow ? "more than 2^64" : std::to_string(bytes), tensor.bytes.size());
}

std::string SafetensorsFile::string_at(std::uint32_t position) const {
  return text_of(StringCursor(header_.data() + position));
}

StoredTensor SafetensorsFile::tensor(std::size_t i) const {
  const Entry& entry = tensors_[i];
  StoredTensor tensor{.name = string_at(entry.name), .dtype = string_at(entry.dtype)};
  std::array<std::int64_t, max_rank> shape;
  std::size_t rank = 0;
  HeaderReader(header_, name_, entry.shape).integers([&](std::uint64_t extent) {
    shape[rank++] = static_cast<std::int64_t>(extent);
  });
  tensor.shape.assign(shape.begin(), shape.begin() + rank);
  tensor.bytes = data_.subspan(entry.begin, entry.end - entry.begin);
  return tensor;
}

std::optional<StoredTensor> SafetensorsFile::find(std::string_view name) const {
  const auto it = std::ranges::partition_point(
      tensors_, [&](const Entry& e) { return compare_at(header_, e.name, name) < 0; });
  if (it == tensors_.end() || compare_at(header_, it->name, name) != 0) return std::nullopt;
  return tensor(static_cast<std::size_t>(it - tensors_.begin()));
}

std::string SafetensorsFile::metadata_value(std::uint32_t key) const {
  HeaderReader reader(header_, name_, key - 1);  // again from the key's opening quote
  reader.string();
  reader.expect(':');
  return string_at(reader.string());
}

std::optional<std::string> SafetensorsFile::metadata(std::string_view key) const {
  const auto it = std::ranges::partition_point(
      metadata_, [&](std::uint32_t at) { return compare_at(header_, at, key) < 0; });
  if (it == metadata_.end() || compare_at(header_, *it, key) != 0) return std::nullopt;
  return metadata_value(*it);
}

std::map<std::string, std::string> SafetensorsFile::metadata() const {
  std::map<std::string, std::string> all;
  for (const std::uint32_t key : metadata_) all.emplace(string_at(key), metadata_value(key));
  return all;
}

// Writing ---------------------------------------------------------------------------------------

namespace {

std::string quoted(const std::filesystem::path& path, std::string_view text) {
  if (find_invalid_utf8(text) < text.size())
    throw UsageError("cannot write {}: the text {} is not UTF-8", path.string(), shown(text));
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else if (c == '"' || c == '\\')
      (out += '\\') += c;
    else
      out += c;
  }
  return out + '"';
}

void check_names(const std::filesystem::path& path, std::span<const NamedType> tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const NamedType& tensor : tensors) names.push_back(tensor.name);
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end())
    throw UsageError("cannot write {}: two tensors are called {}", path.string(), shown(*twice));
  if (std::ranges::binary_search(names, metadata_key))
    throw UsageError("cannot write {}: no tensor can be called {}", path.string(), metadata_key);
}

// The indices of `tensors` in the order of their data.
std::vector<std::size_t> data_order(std::span<const NamedType> tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::size_t i) { return size_of(tensors[i].type.dtype); });
  return order;
}

std::string header_of(const std::filesystem::path& path, std::span<const NamedType> tensors,
                      std::span<const std::size_t> order,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> members;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    pairs.reserve(metadata.size());
    for (const auto& [key, value] : metadata)
      pairs.push_back(quoted(path, key) + ":" + quoted(path, value));
    members.push_back(fmt::format("\"{}\":{{{}}}", metadata_key, fmt::join(pairs, ",")));
  }
  std::uint64_t begin = 0;
  for (const std::size_t i : order) {
    const auto& [name, type] = tensors[i];
    const std::uint64_t end = begin + type.bytes();
    members.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  quoted(path, name), stored_name_of(type.dtype),
                                  fmt::join(type.shape.dims(), ","), begin, end));
    begin = end;
  }
  std::string header = fmt::format("{{{}}}", fmt::join(members, ","));
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the data are aligned
  if (header.size() > max_header)
    throw UsageError("cannot write {}: names and metadata take {} bytes, of {} allowed",
                     path.string(), header.size(), max_header);
  return header;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const NamedType> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<std::span<const std::byte>(std::size_t)>& bytes_of) {
  check_names(path, tensors);
  const std::vector<std::size_t> order = data_order(tensors);
  const std::string header = header_of(path, tensors, order, metadata);
  const std::uint64_t length = header.size();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const std::size_t i : order) {
    const std::span<const std::byte> bytes = bytes_of(i);
    if (bytes.size() != tensors[i].type.bytes())
      throw UsageError("cannot write {}: tensor {} of type {} was given {} bytes", path.string(),
                       shown(tensors[i].name), tensors[i].type.to_string(), bytes.size());
    file.write(bytes);
  }
  file.commit();
}

}  // namespace ridge
