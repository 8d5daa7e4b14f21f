#include "ridge/base/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
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

// A tensor as the header describes it: its data lie in [begin, end) of the file's.
struct Entry {
  StoredTensor tensor;
  std::uint64_t begin = 0, end = 0;
};

// Reads a header event by event, so that one that is not as the format says is left at once and
// nothing is built but what is kept.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::string_view file, std::vector<Entry>& tensors,
               std::map<std::string, std::string>& metadata)
      : file_(file), tensors_(tensors), metadata_(metadata) {}

  bool null() override { refuse_value(); }
  bool boolean(bool) override { refuse_value(); }
  bool number_integer(std::int64_t) override { refuse_value(); }
  bool number_float(double, const std::string&) override { refuse_value(); }
  bool binary(binary_t&) override { refuse_value(); }

  bool number_unsigned(std::uint64_t number) override {
    if (due_ == Due::extent) {
      auto& shape = tensors_.back().tensor.shape;
      if (shape.size() == max_rank || number > std::numeric_limits<std::int64_t>::max())
        refuse_value();
      shape.push_back(static_cast<std::int64_t>(number));
    } else if (due_ == Due::offset && offsets_ < 2) {
      (offsets_++ == 0 ? tensors_.back().begin : tensors_.back().end) = number;
    } else {
      refuse_value();
    }
    return true;
  }

  bool string(std::string& text) override {
    if (due_ == Due::text)
      metadata_[key_] = text;
    else if (due_ == Due::dtype)
      tensors_.back().tensor.dtype = text;
    else
      refuse_value();
    return true;
  }

  bool start_object(std::size_t) override {
    if (due_ == Due::header)
      open_ = Open::header;
    else if (due_ == Due::metadata)
      open_ = Open::metadata;
    else if (due_ == Due::tensor)
      open_ = Open::tensor;
    else
      refuse_value();
    return true;
  }

  bool key(std::string& name) override {
    key_ = name;
    if (open_ == Open::header && name == metadata_key)
      due_ = once(has_metadata_, Due::metadata);
    else if (open_ == Open::header)
      begin_tensor();
    else if (open_ == Open::metadata)
      begin_text();
    else if (name == "dtype")
      due_ = once(has_dtype_, Due::dtype);
    else if (name == "shape")
      due_ = once(has_shape_, Due::shape);
    else if (name == "data_offsets")
      due_ = once(has_offsets_, Due::offsets);
    else
      fail("tensor {} has a member {}: the format has dtype, shape and data_offsets", tensor_name(),
           shown(name));
    return true;
  }

  bool end_object() override {
    if (open_ == Open::tensor && !(has_dtype_ && has_shape_ && has_offsets_))
      fail("tensor {} lacks one of dtype, shape and data_offsets", tensor_name());
    open_ = Open::header;
    return true;
  }

  bool start_array(std::size_t) override {
    if (due_ == Due::shape)
      due_ = Due::extent;
    else if (due_ == Due::offsets)
      due_ = Due::offset;
    else
      refuse_value();
    return true;
  }

  bool end_array() override {
    if (due_ == Due::offset && offsets_ != 2) refuse_value();
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    fail("its header is no JSON at byte {}", position);
  }

 private:
  // The innermost object that is open, and what a value has to be that comes now.
  enum class Open { header, metadata, tensor };
  enum class Due { header, metadata, text, tensor, dtype, shape, extent, offsets, offset };

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw FormatError("{}: no sound safetensors file: {}", file_,
                      fmt::format(format, std::forward<Args>(args)...));
  }

  [[noreturn]] void refuse_value() const {
    switch (due_) {
      case Due::header:
        fail("its header is no object");
      case Due::metadata:
        fail("{} is no object", metadata_key);
      case Due::text:
        fail("metadata key {} has a value that is no string", shown(key_));
      case Due::tensor:
        fail("tensor {} is no object", tensor_name());
      case Due::dtype:
        fail("the dtype of tensor {} is no string", tensor_name());
      case Due::shape:
      case Due::extent:
        fail("the shape of tensor {} is no array of at most {} whole numbers below 2^63",
             tensor_name(), max_rank);
      case Due::offsets:
      case Due::offset:
        break;
    }
    fail("the data_offsets of tensor {} are not two whole numbers below 2^64", tensor_name());
  }

  Due once(bool& seen, Due due) const {
    if (std::exchange(seen, true)) fail("{} appears twice in one object", shown(key_));
    return due;
  }

  void begin_tensor() {
    tensors_.push_back({.tensor = {.name = key_}});
    has_dtype_ = has_shape_ = has_offsets_ = false;
    offsets_ = 0;
    due_ = Due::tensor;
  }

  void begin_text() {
    if (!metadata_.emplace(key_, "").second) fail("metadata key {} appears twice", shown(key_));
    due_ = Due::text;
  }

  std::string tensor_name() const { return shown(tensors_.back().tensor.name); }

  std::string_view file_;
  std::vector<Entry>& tensors_;
  std::map<std::string, std::string>& metadata_;
  Open open_ = Open::header;
  Due due_ = Due::header;
  std::string key_;  // the last
  bool has_metadata_ = false;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;  // of the last tensor
  int offsets_ = 0;
};

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

// Throws unless the tensors cover the data exactly. Leaves them in the order of their data.
void check_coverage(std::vector<Entry>& entries, std::uint64_t data_size, std::string_view file) {
  for (const Entry& entry : entries) {
    if (entry.begin > entry.end)
      throw FormatError("{}: tensor {} ends at byte {} of the data, before its begin at {}", file,
                        shown(entry.tensor.name), entry.end, entry.begin);
    if (entry.end > data_size)
      throw FormatError(
          "{}: truncated: tensor {} ends at byte {} of the data, of which there are {}", file,
          shown(entry.tensor.name), entry.end, data_size);
  }
  // An empty tensor goes before the one that begins where it does.
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  std::uint64_t covered = 0;
  const auto hole = [&](std::uint64_t end) {
    throw FormatError("{}: bytes {} to {} of the data belong to no tensor", file, covered, end);
  };
  for (const Entry& entry : entries) {
    if (entry.begin < covered)
      throw FormatError("{}: tensor {} begins at byte {} of the data, within another", file,
                        shown(entry.tensor.name), entry.begin);
    if (entry.begin > covered) hole(entry.begin);
    covered = entry.end;
  }
  if (covered < data_size) hole(data_size);
}

// Throws unless a tensor has the bytes that its shape needs, if its dtype is known.
void check_size(const StoredTensor& tensor, std::string_view file) {
  const StoredDType* known = find_dtype(tensor.dtype);
  if (!known) return;
  std::uint64_t bytes = known->size;
  bool overflow = false;
  for (const std::int64_t extent : tensor.shape)
    overflow |= __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes);
  if (overflow || bytes != tensor.bytes.size())
    throw FormatError("{}: tensor {} of type {}[{}] needs {} bytes of data and has {}", file,
                      shown(tensor.name), tensor.dtype, fmt::join(tensor.shape, ", "),
                      overflow ? "more than 2^64" : std::to_string(bytes), tensor.bytes.size());
}

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
  const std::string_view header(reinterpret_cast<const char*>(data_.data()),
                                static_cast<std::size_t>(length));
  data_ = data_.subspan(header.size());
  if (!header.starts_with('{'))
    throw FormatError("{}: no safetensors file: its header does not begin with '{{'", name_);
  if (const std::size_t at = find_invalid_utf8(header); at < header.size())
    throw FormatError("{}: no sound safetensors file: byte {} of its header is not UTF-8", name_,
                      at);

  std::vector<Entry> entries;
  HeaderReader reader(name_, entries, metadata_);
  nlohmann::json::sax_parse(header, &reader);
  check_coverage(entries, data_.size(), name_);
  std::ranges::sort(entries, {},
                    [](const Entry& entry) -> const std::string& { return entry.tensor.name; });
  tensors_.reserve(entries.size());
  for (Entry& entry : entries) {
    StoredTensor& tensor = tensors_.emplace_back(std::move(entry.tensor));
    tensor.bytes = data_.subspan(entry.begin, entry.end - entry.begin);
    check_size(tensor, name_);
  }
  const auto twice = std::ranges::adjacent_find(tensors_, {}, &StoredTensor::name);
  if (twice != tensors_.end())
    throw FormatError("{}: tensor {} appears twice", name_, shown(twice->name));
}

std::optional<StoredTensor> SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &StoredTensor::name);
  if (found == tensors_.end() || found->name != name) return std::nullopt;
  return *found;
}

std::optional<std::string> SafetensorsFile::metadata(std::string_view key) const {
  const auto found = metadata_.find(std::string(key));
  if (found == metadata_.end()) return std::nullopt;
  return found->second;
}

// Writing ---------------------------------------------------------------------------------------

namespace {

std::string quoted(const std::filesystem::path& path, std::string_view text) {
  if (find_invalid_utf8(text) < text.size())
    throw UsageError("cannot write {}: the text {} is not UTF-8", path.string(), shown(text));
  return nlohmann::json(text).dump();
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

SafetensorsLayout lay_out_safetensors(const std::filesystem::path& path,
                                      std::span<const NamedType> tensors,
                                      const std::map<std::string, std::string>& metadata) {
  check_names(path, tensors);
  SafetensorsLayout layout{.begin = std::vector<std::uint64_t>(tensors.size()),
                           .order = data_order(tensors)};
  const std::string header = header_of(path, tensors, layout.order, metadata);
  const std::uint64_t length = header.size();
  layout.head.assign(reinterpret_cast<const char*>(&length), sizeof length);
  layout.head += header;
  layout.bytes = layout.head.size();
  for (const std::size_t i : layout.order) {
    layout.begin[i] = layout.bytes;
    layout.bytes += tensors[i].type.bytes();
  }
  return layout;
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedType> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<std::span<const std::byte>(std::size_t)>& bytes_of) {
  const SafetensorsLayout layout = lay_out_safetensors(path, tensors, metadata);
  AtomicFile file(path);
  file.write(layout.head);
  for (const std::size_t i : layout.order) {
    const std::span<const std::byte> bytes = bytes_of(i);
    if (bytes.size() != tensors[i].type.bytes())
      throw UsageError("cannot write {}: tensor {} of type {} was given {} bytes", path.string(),
                       shown(tensors[i].name), tensors[i].type.to_string(), bytes.size());
    file.write(bytes);
  }
  file.commit();
}

}  // namespace ridge
