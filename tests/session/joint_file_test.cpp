#include "ridge/session/joint_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "ridge/base/error.h"
#include "tests/base/temporary_directory.h"
#include "tests/dist/ranks.h"

namespace ridge {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

const std::vector<NamedType> tensors{
    {"a", {DType::f32, {40}}}, {"b", {DType::bf16, {7, 3}}}, {"c", {DType::f32, {100}}}};
const std::map<std::string, std::string> metadata{{"step", "3"}};

std::vector<std::byte> bytes_of(std::size_t tensor) {
  std::vector<std::byte> bytes(tensors[tensor].type.bytes());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(7 * i + 31 * tensor);
  return bytes;
}

std::string joint_content(const std::filesystem::path& path) {
  return read_text_file(path, 10'000);
}

// The middle of c is the second of three ranks', its ends are the others', who have a and b.
std::vector<TensorPiece> pieces_of_rank(int rank) {
  if (rank == 0) return {{0, 0, 160}, {2, 0, 36}};
  if (rank == 1) return {{2, 36, 300}};
  return {{1, 0, 42}, {2, 336, 64}};
}

class JointFileTest : public ::testing::Test {
 protected:
  JointFileTest() {
    write_safetensors(directory.path / "expected", tensors, metadata, [&](std::size_t i) {
      bytes = bytes_of(i);
      return std::span<const std::byte>(bytes);
    });
    write_text_file(file, "old");
  }

  JointContent content_of(int rank) {
    return {.pieces = pieces_of_rank(rank),
            .read =
                [this](const TensorPiece& piece, std::span<std::byte> to) {
                  ++pieces_read;
                  std::memcpy(to.data(), bytes_of(piece.tensor).data() + piece.begin, to.size());
                },
            .read_whole =
                [this](std::size_t tensor, std::span<std::byte> to) {
                  ++tensors_read;
                  std::memcpy(to.data(), bytes_of(tensor).data(), to.size());
                }};
  }

  std::string expected() { return joint_content(directory.path / "expected"); }
  std::vector<std::string> names() {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path))
      found.push_back(entry.path().filename().string());
    std::ranges::sort(found);
    return found;
  }

  TemporaryDirectory directory;
  std::filesystem::path file = directory.path / "file";
  std::vector<std::byte> bytes;
  std::atomic<int> pieces_read = 0, tensors_read = 0;
};

TEST_F(JointFileTest, EachRankWritesItsPieces) {
  const RankFaults faults = on_communicators(3, [&](Communicator& ranks) {
    write_together(file, tensors, metadata, ranks, content_of(ranks.rank()));
  });
  EXPECT_THAT(faults, Each(nullptr));
  EXPECT_TRUE(joint_content(file) == expected());
  EXPECT_EQ(pieces_read, 5);
  EXPECT_EQ(tensors_read, 0) << "nobody is to gather what others write";
  EXPECT_THAT(names(), ElementsAre("expected", "file"));
}

// On another machine's disk there is no such file.
TEST_F(JointFileTest, TheFirstWritesAllThatAnotherCannotSee) {
  const RankFaults faults = on_communicators(3, [&](Communicator& ranks) {
    const auto path = ranks.rank() == 2 ? directory.path / "elsewhere" / "file" : file;
    write_together(path, tensors, metadata, ranks, content_of(ranks.rank()));
  });
  EXPECT_THAT(faults, Each(nullptr));
  EXPECT_TRUE(joint_content(file) == expected());
  EXPECT_EQ(pieces_read, 0);
  EXPECT_EQ(tensors_read, 9);
}

// Nor may one write who has left a file of that name there before, and died.
TEST_F(JointFileTest, AFileThatSomebodyLeftIsNotTheOne) {
  std::filesystem::create_directory(directory.path / "other");
  write_text_file(directory.path / "other" / ".file.ridge-tmp", std::string(1000, 'x'));
  const RankFaults faults = on_communicators(2, [&](Communicator& ranks) {
    const auto path = ranks.rank() == 1 ? directory.path / "other" / "file" : file;
    write_together(path, tensors, metadata, ranks, content_of(ranks.rank()));
  });
  EXPECT_THAT(faults, Each(nullptr));
  EXPECT_TRUE(joint_content(file) == expected());
  EXPECT_EQ(joint_content(directory.path / "other" / ".file.ridge-tmp"), std::string(1000, 'x'));
}

TEST_F(JointFileTest, TheFirstSaysWhoseDiskRefused) {
  const RankFaults faults = on_communicators(3, [&](Communicator& ranks) {
    JointContent mine = content_of(ranks.rank());
    if (ranks.rank() == 1)
      mine.read = [](const TensorPiece&, std::span<std::byte>) {
        throw IoError("cannot write f: no room");
      };
    write_together(file, tensors, metadata, ranks, mine);
  });
  EXPECT_EQ(message_in(faults[0]), "rank 1: cannot write f: no room");
  EXPECT_EQ(faults[1], nullptr);
  EXPECT_EQ(faults[2], nullptr);
  EXPECT_EQ(joint_content(file), "old");
  EXPECT_THAT(names(), ElementsAre("expected", "file"));
}

TEST_F(JointFileTest, NobodyReadsForAFileThatCannotBeMade) {
  const RankFaults faults = on_communicators(2, [&](Communicator& ranks) {
    write_together("/proc/nowhere/file", tensors, metadata, ranks, content_of(ranks.rank()));
  });
  EXPECT_THAT(message_in(faults[0]), ::testing::HasSubstr("cannot write /proc/nowhere/file"));
  EXPECT_EQ(faults[1], nullptr);
  EXPECT_EQ(pieces_read + tensors_read, 0);
}

}  // namespace
}  // namespace ridge
