#include "ridge/session/data.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/random.h"
#include "ridge/base/units.h"

namespace ridge {
namespace {

static_assert(std::endian::native == std::endian::little);

std::uint64_t stream_of_split(Split split) {
  return stream_of(split == Split::train ? "data.train" : "data.validation");
}

class SyntheticTokens : public TokenSource {
 public:
  SyntheticTokens(std::int64_t vocab_size, std::uint64_t seed)
      : vocab_size_(static_cast<std::uint32_t>(vocab_size)), seed_(seed) {}

  std::optional<std::uint64_t> validation_windows(std::int64_t) const override { return {}; }

  std::string description() const override {
    return fmt::format("synthetic tokens, uniform in [0, {})", vocab_size_);
  }

 private:
  void window(Split split, std::uint64_t number, std::span<std::int32_t> tokens) const override {
    const std::uint64_t stream = stream_of_split(split), first = number * tokens.size();
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>(uniform_integer(vocab_size_, seed_, stream, first + i));
  }

  std::uint32_t vocab_size_;
  std::uint64_t seed_;
};

// Tokens as a file has them: `width` bytes each, 1, 2 or 4, unsigned and little-endian.
struct PackedTokens {
  std::span<const std::byte> bytes;
  std::size_t width = 1;
  std::string_view format;

  std::uint64_t size() const { return bytes.size() / width; }
  PackedTokens slice(std::uint64_t first, std::uint64_t count) const {
    return {bytes.subspan(first * width, count * width), width, format};
  }
};

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Calls body(T{}) with the token type of that width.
template <class Body>
void with_token_type(std::size_t width, const Body& body) {
  if (width == 1) body(std::uint8_t{});
  if (width == 2) body(std::uint16_t{});
  if (width == 4) body(std::uint32_t{});
}

std::uint32_t max_of(const PackedTokens& tokens) {
  std::uint32_t result = 0;
  with_token_type(tokens.width, [&]<class T>(T largest) {
    for (std::uint64_t i = 0; i < tokens.size(); ++i)
      largest = std::max(largest, load<T>(tokens.bytes.data() + i * sizeof(T)));
    result = largest;
  });
  return result;
}

void unpack(const PackedTokens& from, std::span<std::int32_t> to) {
  with_token_type(from.width, [&]<class T>(T) {
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = static_cast<std::int32_t>(load<T>(from.bytes.data() + i * sizeof(T)));
  });
}

// https://github.com/karpathy/llm.c, dev/data/data_common.py
struct LlmcFormat {
  std::uint32_t magic, version;
  std::size_t width;
  std::string_view name;
};
constexpr LlmcFormat llmc_formats[] = {{20240520, 1, 2, "llm.c tokens of 16 bits"},
                                       {20240801, 7, 4, "llm.c tokens of 32 bits"}};
constexpr std::size_t llmc_header_size = 256 * sizeof(std::uint32_t);

PackedTokens parse_llmc(std::span<const std::byte> content, const LlmcFormat& format,
                        std::string_view file) {
  if (content.size() < llmc_header_size)
    throw FormatError("{}: truncated: {} bytes, of {} in the header of an llm.c token file", file,
                      content.size(), llmc_header_size);
  const auto word = [&](std::size_t i) { return load<std::uint32_t>(content.data() + 4 * i); };
  if (word(1) != format.version)
    throw FormatError("{}: an llm.c token file of version {}, of which Ridge reads {}", file,
                      word(1), format.version);
  const PackedTokens tokens{content.subspan(llmc_header_size), format.width, format.name};
  const std::uint64_t expected = std::uint64_t{word(2)} * format.width;
  if (tokens.bytes.size() != expected)
    throw FormatError("{}: {}: {} tokens of {} bytes are announced, and {} bytes follow", file,
                      tokens.bytes.size() < expected ? "truncated" : "not as its header says",
                      word(2), format.width, tokens.bytes.size());
  return tokens;
}

PackedTokens parse_bin(std::span<const std::byte> content, std::string_view file) {
  if (content.size() >= sizeof(std::uint32_t))
    for (const LlmcFormat& format : llmc_formats)
      if (load<std::uint32_t>(content.data()) == format.magic)
        return parse_llmc(content, format, file);
  if (content.size() % 2 != 0)
    throw FormatError("{}: {} bytes cannot be tokens of 16 bits, and no llm.c header is there",
                      file, content.size());
  return {content, 2, "tokens of 16 bits"};
}

// Block by block: the largest token of a block is found at the speed of memory.
void check_vocabulary(const PackedTokens& tokens, std::int64_t vocab_size, std::string_view file) {
  constexpr std::uint64_t block = 1 << 16;
  if (vocab_size >= std::int64_t{1} << (8 * tokens.width)) return;
  const auto outside = [&](const PackedTokens& some) { return max_of(some) >= vocab_size; };
  for (std::uint64_t i = 0; i < tokens.size(); i += block) {
    if (!outside(tokens.slice(i, std::min(block, tokens.size() - i)))) continue;
    while (!outside(tokens.slice(i, 1))) ++i;
    throw UsageError(
        "{}: token {} at position {} is outside the vocabulary of {}: set vocab-size to "
        "that of the tokenizer",
        file, max_of(tokens.slice(i, 1)), i, vocab_size);
  }
}

class FileTokens : public TokenSource {
 public:
  // `tokens` lie in `file`, or elsewhere where they live longer.
  FileTokens(MappedFile file, const PackedTokens& tokens, const RunOptions& options)
      : file_(std::move(file)),
        seed_(static_cast<std::uint64_t>(options.seed)),
        name_(options.data),
        tokens_(tokens) {
    const std::uint64_t window = static_cast<std::uint64_t>(options.seq_len) + 1;
    const double fraction = options.validation_fraction;
    const bool both = fraction > 0 && fraction < 1;
    if ((both ? tokens.size() / 2 : tokens.size()) < window)
      throw UsageError("{}: {} tokens are too few for a window of seq-len + 1 = {}{}", name_,
                       tokens.size(), window, both ? " in each of training and validation" : "");
    std::uint64_t validation = fraction == 1 ? tokens.size() : 0;
    if (both) {
      validation = static_cast<std::uint64_t>(static_cast<double>(tokens.size()) * fraction);
      validation = std::clamp(validation, window, tokens.size() - window);
    }
    train_size_ = tokens.size() - validation;
  }

  std::optional<std::uint64_t> validation_windows(std::int64_t seq_len) const override {
    const std::uint64_t size = split(Split::validation).size();
    return size == 0 ? 0 : (size - 1) / static_cast<std::uint64_t>(seq_len);
  }

  std::string description() const override {
    const auto count = [](std::uint64_t n) { return format_count(static_cast<std::int64_t>(n)); };
    return fmt::format("{}: {} {}, the last {} for validation", name_, count(tokens_.size()),
                       tokens_.format, count(tokens_.size() - train_size_));
  }

 private:
  PackedTokens split(Split split) const {
    return split == Split::train ? tokens_.slice(0, train_size_)
                                 : tokens_.slice(train_size_, tokens_.size() - train_size_);
  }

  void window(Split which, std::uint64_t number, std::span<std::int32_t> out) const override {
    const PackedTokens tokens = split(which);
    if (tokens.size() < out.size())
      throw UsageError("{}: the {} tokens for {} are too few for a window of {}", name_,
                       tokens.size(), which == Split::train ? "training" : "validation",
                       out.size());
    const std::uint64_t stride = out.size() - 1, positions = tokens.size() - stride;
    std::uint64_t first;
    if (which == Split::validation) {
      first = number % ((tokens.size() - 1) / stride) * stride;
    } else {
      // A file may have more than 2^32 positions; against 2^64 the remainder's bias is nothing.
      const auto words = philox(seed_, number, stream_of_split(which));
      first = (std::uint64_t{words[1]} << 32 | words[0]) % positions;
    }
    unpack(tokens.slice(first, out.size()), out);
  }

  MappedFile file_;
  std::uint64_t seed_;
  std::string name_;
  PackedTokens tokens_;
  std::uint64_t train_size_ = 0;
};

std::unique_ptr<TokenSource> open_content(const RunOptions& options,
                                          std::span<const std::byte> content, MappedFile file) {
  if (content.empty()) throw FormatError("{}: the file is empty", options.data);
  const PackedTokens tokens = options.data.ends_with(".bin")
                                  ? parse_bin(content, options.data)
                                  : PackedTokens{content, 1, "bytes of text"};
  check_vocabulary(tokens, options.vocab_size, options.data);
  return std::make_unique<FileTokens>(std::move(file), tokens, options);
}

}  // namespace

void TokenSource::batch(Split split, std::uint64_t index, std::int64_t batch_size,
                        std::int64_t seq_len, std::span<std::int32_t> tokens) const {
  const auto rows = static_cast<std::uint64_t>(batch_size);
  const auto columns = static_cast<std::uint64_t>(seq_len) + 1;
  if (batch_size < 1 || seq_len < 1 || tokens.size() != rows * columns)
    throw UsageError("a batch of {} windows of {} + 1 tokens does not fill {} elements", batch_size,
                     seq_len, tokens.size());
  for (std::uint64_t row = 0; row < rows; ++row)
    window(split, index * rows + row, tokens.subspan(row * columns, columns));
}

std::unique_ptr<TokenSource> open_tokens(const RunOptions& options) {
  if (options.data.empty())
    return std::make_unique<SyntheticTokens>(options.vocab_size,
                                             static_cast<std::uint64_t>(options.seed));
  MappedFile file(options.data);
  const std::span<const std::byte> content = file.bytes();  // which do not move with the object
  return open_content(options, content, std::move(file));
}

std::unique_ptr<TokenSource> open_tokens(const RunOptions& options,
                                         std::span<const std::byte> content) {
  return open_content(options, content, {});
}

}  // namespace ridge
