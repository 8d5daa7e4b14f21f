#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ridge/session/batches.h"
#include "ridge/session/options.h"

namespace ridge {

// Tokens for next-token training, in windows of seq_len + 1: inputs and, one further, targets.
// Nothing is remembered between calls: window n of a split is a function of the seed and n alone,
// and batch i of B rows is the windows i B to i B + B - 1, so a run that goes on from a checkpoint
// needs only the number of batches done to see what an undisturbed one would.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  // Fills tokens[batch_size, seq_len + 1], row-major. Training windows of a file begin at random
  // places and never end; validation windows follow each other from its first token, overlapping by
  // the one that is target of the first and input of the second, and begin anew after the last.
  void batch(Split split, std::uint64_t index, std::int64_t batch_size, std::int64_t seq_len,
             std::span<std::int32_t> tokens) const;

  // Validation windows until the first one comes again; none if they never do.
  virtual std::optional<std::uint64_t> validation_windows(std::int64_t seq_len) const = 0;

  virtual std::string description() const = 0;  // one line for people

 private:
  virtual void window(Split split, std::uint64_t number, std::span<std::int32_t> tokens) const = 0;
};

// The tokens of options.data; without one, synthetic tokens, uniform in [0, vocab_size). A file
// whose name ends in ".bin" is pre-tokenized: in the format of llm.c, 256 words of header (the
// magic 20240520 and version 1 for 16-bit tokens or 20240801 and 7 for 32-bit ones, then their
// number) and the tokens; or, without such a header, nothing but 16-bit tokens, as nanoGPT has
// them. Of any other file each byte is a token. The last validation_fraction of a file, and at
// least a window, is for validation; a fraction of 0 or 1 leaves one split empty.
//
// IoError for a file that cannot be read, FormatError for one that is not in its format, UsageError
// for one that does not go with the options: a token outside the vocabulary (the whole file is
// looked through), or too few tokens for one window in each split.
std::unique_ptr<TokenSource> open_tokens(const RunOptions& options);

// The same of the content of options.data, which must outlive the source.
std::unique_ptr<TokenSource> open_tokens(const RunOptions& options,
                                         std::span<const std::byte> content);

}  // namespace ridge
