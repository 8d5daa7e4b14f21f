#include "ridge/base/gzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// The bytes of a file with the pieces given.
std::string packed(const std::vector<std::string>& pieces) {
  const TemporaryDirectory directory;
  const auto path = directory.path / "file.gz";
  AtomicFile file(path);
  GzipWriter writer(file);
  for (const std::string& piece : pieces) writer.write(piece);
  writer.finish();
  file.commit();
  return read_text_file(path, std::size_t{1} << 30);
}

std::string unpacked(std::string_view file, std::size_t max_bytes = std::size_t{1} << 30) {
  return gunzip(bytes_of(file), max_bytes, "file.gz");
}

std::string format_error(std::string_view file, std::size_t max_bytes = 1 << 20) {
  return message_of<FormatError>([&] { unpacked(file, max_bytes); });
}

// What gzip cannot make smaller.
std::string noise(std::size_t size) {
  std::string text;
  for (std::uint32_t state = 1; text.size() < size; state = state * 1664525 + 1013904223)
    text += static_cast<char>(state >> 24);
  return text;
}

TEST(Gzip, GivesBackWhatWasWritten) {
  for (const std::string& text :
       {std::string(), std::string("x"), std::string(3 << 20, 'x'), noise(1 << 20)}) {
    const std::string file = packed({text});
    EXPECT_TRUE(is_gzip(bytes_of(file)));
    EXPECT_TRUE(unpacked(file) == text) << text.size();
  }
  EXPECT_EQ(unpacked(packed({"", "some ", "", "text"})), "some text");
  EXPECT_LT(packed({std::string(3 << 20, 'x')}).size(), 10'000u);
}

// As "echo text | gzip -n" writes it: ours is not the only one that must be read.
TEST(Gzip, ReadsFilesOfOtherPrograms) {
  const std::string file(
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x2b\x49\xad\x28\xe1\x02\x00\x27\xda\xec\x37\x05"
      "\x00\x00\x00",
      25);
  EXPECT_EQ(unpacked(file), "text\n");
  EXPECT_EQ(unpacked(file + file), "text\ntext\n") << "files may be joined";
}

TEST(Gzip, RefusesDamage) {
  const std::string file = packed({noise(1000)});
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_EQ(format_error(file.substr(0, size)), "\"file.gz\" is a gzip file that is cut short");
  // After the header and the padding of the one block, which nothing reads.
  for (std::size_t i = 11; i < file.size(); ++i) {
    std::string damaged = file;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_THAT(format_error(damaged), HasSubstr("is a gzip file that is "));
  }
  EXPECT_THAT(format_error(file + "more"), HasSubstr("damaged"));
  EXPECT_THAT(format_error("no gzip at all"), HasSubstr("damaged"));
  EXPECT_FALSE(is_gzip(bytes_of("{}")));
  EXPECT_FALSE(is_gzip(bytes_of("")));
}

TEST(Gzip, RefusesWhatUnpacksToTooMuch) {
  const std::string file = packed({std::string(1000, 'x')});
  EXPECT_EQ(unpacked(file, 1000).size(), 1000u);
  EXPECT_EQ(format_error(file, 999), "\"file.gz\" has more than 999 bytes when unpacked");
}

}  // namespace
}  // namespace ridge
