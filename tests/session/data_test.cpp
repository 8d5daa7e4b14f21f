#include "ridge/session/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

RunOptions options_for(std::string data, std::int64_t vocab_size, std::int64_t seq_len) {
  RunOptions options;
  options.data = std::move(data);
  options.vocab_size = vocab_size;
  options.seq_len = seq_len;
  return options;
}

// A source of this content, which lives as long.
std::shared_ptr<const TokenSource> open(const RunOptions& options, std::string content = {}) {
  struct Opened {
    std::string content;
    std::unique_ptr<TokenSource> source;
  };
  const auto opened = std::make_shared<Opened>(Opened{std::move(content), nullptr});
  opened->source = options.data.empty()
                       ? open_tokens(options)
                       : open_tokens(options, std::as_bytes(std::span(opened->content)));
  return {opened, opened->source.get()};
}

Tokens batch_of(const TokenSource& source, Split split, std::uint64_t index, std::int64_t rows,
                std::int64_t seq_len) {
  Tokens tokens(static_cast<std::size_t>(rows * (seq_len + 1)), -1);
  source.batch(split, index, rows, seq_len, tokens);
  return tokens;
}

// The message of the E that opening throws.
template <class E>
std::string refusal(const RunOptions& options, const std::string& content) {
  try {
    open(options, content);
  } catch (const E& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith(options.data + ": "));
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

template <class T>
std::string packed(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
std::string llmc(std::uint32_t magic, std::uint32_t version, const std::vector<T>& tokens) {
  std::vector<std::uint32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::uint32_t>(tokens.size());
  return packed(header) + packed(tokens);
}

template <class T>
std::vector<T> counting(std::size_t size) {
  std::vector<T> values(size);
  std::iota(values.begin(), values.end(), T{0});
  return values;
}

// All training windows that turn up in many draws.
std::set<Tokens> windows_seen(const TokenSource& source, std::int64_t seq_len) {
  std::set<Tokens> seen;
  for (std::uint64_t i = 0; i < 2000; ++i)
    seen.insert(batch_of(source, Split::train, i, 1, seq_len));
  return seen;
}

TEST(SyntheticTokens, AreUniformInTheVocabulary) {
  const auto source = open(options_for("", 10, 99));
  const Tokens tokens = batch_of(*source, Split::train, 0, 1000, 99);
  std::vector<int> counts(10);
  for (const std::int32_t token : tokens) {
    ASSERT_GE(token, 0);
    ASSERT_LT(token, 10);
    ++counts[static_cast<std::size_t>(token)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);  // five standard deviations
}

// Other values would give every run other losses.
TEST(SyntheticTokens, AreTheSameEverywhereAndForEver) {
  const auto source = open(options_for("", 1000, 7));  // seed 42
  EXPECT_THAT(batch_of(*source, Split::train, 0, 1, 7),
              ElementsAre(148, 252, 552, 800, 9, 20, 591, 476));
}

TEST(SyntheticTokens, DifferByWindowSplitAndSeed) {
  RunOptions options = options_for("", 1000, 16);
  const auto source = open(options);
  options.seed += 1;
  const auto other = open(options);
  EXPECT_NE(batch_of(*source, Split::train, 0, 1, 16), batch_of(*source, Split::train, 1, 1, 16));
  EXPECT_NE(batch_of(*source, Split::train, 0, 1, 16),
            batch_of(*source, Split::validation, 0, 1, 16));
  EXPECT_NE(batch_of(*source, Split::train, 0, 1, 16), batch_of(*other, Split::train, 0, 1, 16));
  EXPECT_FALSE(source->validation_windows(16));
  EXPECT_EQ(source->description(), "synthetic tokens, uniform in [0, 1000)");
}

// What a checkpoint relies on, and what lets batches be split among devices.
TEST(Tokens, BatchesAreWindowsInOrder) {
  std::string varied(1000, 'x');
  for (std::size_t i = 0; i < varied.size(); ++i) varied[i] = static_cast<char>(i % 251);
  for (const auto& source :
       {open(options_for("", 256, 8)), open(options_for("a.txt", 256, 8), varied)})
    for (const Split split : {Split::train, Split::validation}) {
      const Tokens batch = batch_of(*source, split, 3, 4, 8);
      Tokens rows;
      for (std::uint64_t row = 12; row < 16; ++row)
        std::ranges::copy(batch_of(*source, split, row, 1, 8), std::back_inserter(rows));
      EXPECT_EQ(batch, rows);
      EXPECT_EQ(batch, batch_of(*source, split, 3, 4, 8));
    }
}

TEST(Tokens, RefuseABatchThatDoesNotFillItsTensor) {
  const auto source = open(options_for("", 10, 4));
  Tokens tokens(10);
  EXPECT_NO_THROW(source->batch(Split::train, 0, 2, 4, tokens));
  EXPECT_THROW(source->batch(Split::train, 0, 2, 5, tokens), UsageError);
  EXPECT_THROW(source->batch(Split::train, 0, 10, 0, tokens), UsageError);
  EXPECT_THROW(source->batch(Split::train, 0, 0, 4, {}), UsageError);
  EXPECT_THROW(source->batch(Split::train, 0, -2, -6, tokens), UsageError);
}

TEST(TextTokens, TrainOnEveryWindowOfTheFirstPartAndNoOther) {
  const std::string text = packed(counting<std::uint8_t>(100));
  const auto source = open(options_for("a.txt", 256, 4), text);
  std::set<Tokens> expected;
  for (std::int32_t first = 0; first + 5 <= 90; ++first)
    expected.insert({first, first + 1, first + 2, first + 3, first + 4});
  EXPECT_EQ(windows_seen(*source, 4), expected);
  EXPECT_EQ(source->description(), "a.txt: 100 bytes of text, the last 10 for validation");
}

TEST(TextTokens, BeginWindowsInTheSamePlacesForEver) {
  const std::string places = packed(counting<std::uint16_t>(1000));
  EXPECT_THAT(batch_of(*open(options_for("a.bin", 65536, 1), places), Split::train, 0, 4, 1),
              ElementsAre(212, 213, 519, 520, 527, 528, 741, 742));
}

TEST(TextTokens, ValidateOnTheRestInOrder) {
  const std::string text = packed(counting<std::uint8_t>(100));
  const auto source = open(options_for("a.txt", 256, 4), text);
  EXPECT_EQ(source->validation_windows(4), 2u);
  EXPECT_THAT(batch_of(*source, Split::validation, 0, 3, 4),
              ElementsAre(90, 91, 92, 93, 94, 94, 95, 96, 97, 98, 90, 91, 92, 93, 94));
  EXPECT_EQ(source->validation_windows(1), 9u);
  EXPECT_THAT(batch_of(*source, Split::validation, 4, 2, 1), ElementsAre(98, 99, 90, 91));
  EXPECT_EQ(source->validation_windows(9), 1u);
}

TEST(TextTokens, GiveEachSplitAWindowAtLeast) {
  const std::string text = packed(counting<std::uint8_t>(10));
  const auto source = open(options_for("a.txt", 256, 4), text);
  EXPECT_THAT(batch_of(*source, Split::train, 0, 1, 4), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(batch_of(*source, Split::validation, 0, 1, 4), ElementsAre(5, 6, 7, 8, 9));
  EXPECT_THAT(refusal<UsageError>(options_for("a.txt", 256, 5), text),
              HasSubstr("10 tokens are too few for a window of seq-len + 1 = 6 in each of"));
  // A fraction that would leave training nothing leaves it one window.
  RunOptions most = options_for("a.txt", 256, 4);
  most.validation_fraction = 0.99;
  EXPECT_THAT(batch_of(*open(most, text), Split::train, 7, 1, 4), ElementsAre(0, 1, 2, 3, 4));
}

TEST(TextTokens, MayBeAllForOneSplit) {
  const std::string text = packed(counting<std::uint8_t>(10));
  RunOptions options = options_for("a.txt", 256, 9);
  options.validation_fraction = 0;
  const auto training = open(options, text);
  const Tokens all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(batch_of(*training, Split::train, 0, 1, 9), all);
  EXPECT_THROW(batch_of(*training, Split::validation, 0, 1, 9), UsageError);
  EXPECT_EQ(training->validation_windows(9), 0u);
  options.validation_fraction = 1;
  const auto validation = open(options, text);
  EXPECT_EQ(batch_of(*validation, Split::validation, 0, 1, 9), all);
  EXPECT_THROW(batch_of(*validation, Split::train, 0, 1, 9), UsageError);
  options.seq_len = 10;
  EXPECT_THAT(refusal<UsageError>(options, text),
              HasSubstr("10 tokens are too few for a window of seq-len + 1 = 11"));
}

TEST(TextTokens, RefuseALongerWindowThanThereIs) {
  const auto source = open(options_for("a.txt", 256, 4), packed(counting<std::uint8_t>(20)));
  EXPECT_THROW(batch_of(*source, Split::validation, 0, 1, 5), UsageError);
  EXPECT_THROW(batch_of(*source, Split::train, 0, 1, 15), UsageError);
}

TEST(TextTokens, MayHaveASmallerVocabulary) {
  EXPECT_NO_THROW(open(options_for("a.txt", 128, 2), "plain text"));
  EXPECT_THAT(refusal<UsageError>(options_for("a.txt", 128, 2), "plain t\xE9xt"),
              HasSubstr("token 233 at position 7 is outside the vocabulary of 128"));
}

TEST(BinTokens, AreReadInEachFormat) {
  const Tokens expected = {1000, 65535, 3, 0, 4, 5};
  const std::vector<std::uint16_t> narrow = {1000, 65535, 3, 0, 4, 5};
  const std::vector<std::uint32_t> wide = {1000, 65535, 3, 0, 4, 5};
  for (const std::string& content :
       {packed(narrow), llmc(20240520, 1, narrow), llmc(20240801, 7, wide)}) {
    RunOptions options = options_for("a.bin", 65536, 5);
    options.validation_fraction = 1;
    EXPECT_EQ(batch_of(*open(options, content), Split::validation, 0, 1, 5), expected);
  }
  const auto wider = open(options_for("a.bin", 100'000'000, 1),
                          llmc(20240801, 7, std::vector<std::uint32_t>(4, 99'999'999)));
  EXPECT_THAT(batch_of(*wider, Split::train, 0, 2, 1), Each(99'999'999));
}

TEST(BinTokens, SayWhichFormatTheyAreIn) {
  const auto description = [](const std::string& content) {
    return open(options_for("a.bin", 65536, 1), content)->description();
  };
  EXPECT_EQ(description(packed(counting<std::uint16_t>(2000))),
            "a.bin: 2,000 tokens of 16 bits, the last 200 for validation");
  EXPECT_THAT(description(llmc(20240520, 1, counting<std::uint16_t>(20))),
              HasSubstr("20 llm.c tokens of 16 bits"));
  EXPECT_THAT(description(llmc(20240801, 7, counting<std::uint32_t>(20))),
              HasSubstr("20 llm.c tokens of 32 bits"));
}

TEST(BinTokens, AreRefusedOutsideTheVocabulary) {
  // In the first and the last place, and around the scan's blocks.
  for (const std::size_t at : {0, 1, 65535, 65536, 131071, 131072, 199'999}) {
    std::vector<std::uint16_t> narrow(200'000, 99);
    std::vector<std::uint32_t> wide(200'000, 99);
    narrow[at] = 100;
    wide[at] = 0xFFFFFFFF;
    if (at < 100'000) narrow[at + 1] = 101;
    EXPECT_THAT(
        refusal<UsageError>(options_for("a.bin", 100, 4), packed(narrow)),
        HasSubstr(fmt::format("token 100 at position {} is outside the vocabulary of 100", at)));
    EXPECT_THAT(refusal<UsageError>(options_for("a.bin", 100, 4), llmc(20240801, 7, wide)),
                HasSubstr(fmt::format("token 4294967295 at position {} is outside", at)));
    EXPECT_NO_THROW(open(options_for("a.bin", 102, 4), packed(narrow)));
  }
}

TEST(BinTokens, AreRefusedIfTruncatedOrForeign) {
  const RunOptions options = options_for("a.bin", 65536, 1);
  const std::string narrow = llmc(20240520, 1, counting<std::uint16_t>(8));
  const std::string wide = llmc(20240801, 7, counting<std::uint32_t>(8));
  for (std::size_t size = 4; size < 1024; ++size)
    EXPECT_THAT(refusal<FormatError>(options, narrow.substr(0, size)),
                HasSubstr(fmt::format("truncated: {} bytes, of 1024 in the header", size)));
  for (const std::string& whole : {narrow, wide})
    for (std::size_t size = 1024; size < whole.size(); ++size)
      EXPECT_THAT(
          refusal<FormatError>(options, whole.substr(0, size)),
          HasSubstr(fmt::format("truncated: 8 tokens of {} bytes are announced, and {} bytes",
                                (whole.size() - 1024) / 8, size - 1024)));
  EXPECT_THAT(refusal<FormatError>(options, narrow + "x"), HasSubstr("not as its header says: 8"));
  EXPECT_THAT(refusal<FormatError>(options, llmc(20240520, 2, counting<std::uint16_t>(8))),
              HasSubstr("of version 2, of which Ridge reads 1"));
  EXPECT_THAT(refusal<FormatError>(options, "odd"), HasSubstr("3 bytes cannot be tokens"));
  EXPECT_THAT(refusal<FormatError>(options, ""), HasSubstr("the file is empty"));
  EXPECT_THAT(refusal<UsageError>(options, llmc(20240520, 1, std::vector<std::uint16_t>())),
              HasSubstr("0 tokens are too few"));
}

TEST(Tokens, ComeFromFiles) {
  const TemporaryDirectory directory;
  const std::string path = (directory.path / "a.txt").string();
  EXPECT_THROW(open_tokens(options_for(path, 256, 3)), IoError);
  EXPECT_THROW(open_tokens(options_for(directory.path.string(), 256, 3)), IoError);
  write_text_file(path, "");
  EXPECT_THROW(open_tokens(options_for(path, 256, 3)), FormatError);
  write_text_file(path, "aaaabbbb");
  const auto source = open_tokens(options_for(path, 256, 3));
  EXPECT_THAT(batch_of(*source, Split::train, 0, 2, 3), Each('a'));
  EXPECT_THAT(batch_of(*source, Split::validation, 0, 2, 3), Each('b'));
}

}  // namespace
}  // namespace ridge
