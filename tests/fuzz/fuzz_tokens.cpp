// The token files on any bytes: a source is made or refused, keeps nothing of their size, and gives
// no token outside the vocabulary.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/session/data.h"
#include "tests/fuzz/allocation.h"

namespace {

constexpr std::size_t allowance = 4096;

void require(bool condition) {
  if (!condition) std::abort();
}

// The head of an input: options, within what the command line lets through.
struct Head {
  std::uint8_t kind;
  std::uint8_t seq_len;
  std::uint8_t fraction;
  std::uint8_t batch;
  std::uint32_t vocab_size;
};
static_assert(sizeof(Head) == 8);

void check_batch(const ridge::TokenSource& source, ridge::Split split, std::uint64_t index,
                 const ridge::RunOptions& options, std::vector<std::int32_t>& tokens) {
  try {
    source.batch(split, index, 2, options.seq_len, tokens);
  } catch (const ridge::UsageError&) {  // an empty split
    return;
  }
  for (const std::int32_t token : tokens) require(token >= 0 && token < options.vocab_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Head head;
  if (size < sizeof head) return 0;
  std::memcpy(&head, data, sizeof head);
  // Not copied: the sanitizer sees the end of the input, and odd addresses occur.
  const auto content = std::as_bytes(std::span(data, size)).subspan(sizeof head);

  ridge::RunOptions options;
  options.data = (head.kind & 1) != 0 ? "input.txt" : "input.bin";
  options.seq_len = 1 + head.seq_len % 16;
  options.vocab_size = 1 + head.vocab_size % 0x7FFFFFFF;
  options.validation_fraction = head.fraction / 255.0;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(2 * (options.seq_len + 1)));
  const ridge::AllocationLimit limit(allowance);
  try {
    const auto source = ridge::open_tokens(options, content);
    for (const std::uint64_t index : {std::uint64_t{head.batch}, ~std::uint64_t{0}}) {
      check_batch(*source, ridge::Split::train, index, options, tokens);
      check_batch(*source, ridge::Split::validation, index, options, tokens);
    }
    source->description();
    source->validation_windows(options.seq_len);
  } catch (const ridge::FormatError&) {
  } catch (const ridge::UsageError&) {
  }
  return 0;
}
