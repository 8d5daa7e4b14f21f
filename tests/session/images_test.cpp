#include "ridge/session/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/cpu/device.h"
#include "ridge/session/checkpoint.h"
#include "ridge/session/evaluation.h"
#include "ridge/session/session.h"
#include "tests/base/message_of.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using ::testing::HasSubstr;

class ImageFiles : public ::testing::Test {
 protected:
  const std::filesystem::path& write(const std::string& shape,
                                     const std::vector<std::uint8_t>& pixels,
                                     const std::vector<std::uint8_t>& labels,
                                     const std::string& dtype = "U8") const {
    const std::string header = fmt::format(
        R"({{"images":{{"dtype":"{}","shape":{},"data_offsets":[0,{}]}},)"
        R"("labels":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
        dtype, shape, pixels.size(), labels.size(), pixels.size(), pixels.size() + labels.size());
    std::ofstream out(path_, std::ios::binary);
    const std::uint64_t length = header.size();
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header;
    for (const auto& bytes : {pixels, labels})
      out.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
    return path_;
  }

  // Images of one pixel, whose brightness is their number.
  const std::filesystem::path& numbered(std::size_t count) const {
    std::vector<std::uint8_t> pixels, labels;
    for (std::size_t i = 0; i < count; ++i) {
      pixels.push_back(static_cast<std::uint8_t>(i));
      labels.push_back(static_cast<std::uint8_t>(i % 7));
    }
    return write(fmt::format("[{},1,1]", count), pixels, labels);
  }

  std::string complaint() const {
    return message_of<FormatError>([&] { ImageData(open_images(path_), 0); });
  }

 private:
  TemporaryDirectory temporary_;
  std::filesystem::path path_ = temporary_.path / "images";
};

struct Drawn {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
};

Drawn draw(ImageData& data, Split split, std::int64_t first, std::size_t count,
           std::int64_t size = 1) {
  Drawn drawn{std::vector<float>(count * static_cast<std::size_t>(3 * size * size)),
              std::vector<std::int32_t>(count)};
  data.batch(split, first, size, drawn.images, drawn.labels);
  return drawn;
}

TEST_F(ImageFiles, AreSplitAndComeOnceAnEpoch) {
  ImageData data(open_images(numbered(200)), 5);
  EXPECT_EQ(data.classes(), 7);
  const auto train = static_cast<std::size_t>(data.size(Split::train));
  EXPECT_EQ(data.size(Split::train) + data.size(Split::validation), 200);
  EXPECT_NEAR(static_cast<double>(train), 160, 20);

  std::map<float, std::int32_t> label_of;
  std::vector<float> orders[2];
  for (const int epoch : {0, 1}) {
    const Drawn all = draw(data, Split::train, epoch * static_cast<std::int64_t>(train), train);
    for (std::size_t i = 0; i < train; ++i) {
      const float pixel = all.images[3 * i];
      EXPECT_EQ(label_of.try_emplace(pixel, all.labels[i]).first->second, all.labels[i]);
      orders[epoch].push_back(pixel);
    }
  }
  EXPECT_EQ(label_of.size(), train);
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_FALSE(std::ranges::is_sorted(orders[0]));
  const Drawn held = draw(data, Split::validation, 0, 200 - train);
  for (std::size_t i = 0; i < held.labels.size(); ++i)
    EXPECT_FALSE(label_of.contains(held.images[3 * i]));
}

// As torch.nn.functional.interpolate(mode='bilinear') has it, in all three channels.
TEST_F(ImageFiles, AreScaledBilinearly) {
  std::vector<std::uint8_t> pixels, labels;
  for (int i = 0; i < 50; ++i) {
    pixels.insert(pixels.end(), {0, 30, 60, 90});
    labels.push_back(static_cast<std::uint8_t>(i % 2));
  }
  ImageData data(open_images(write("[50,2,2]", pixels, labels)), 0);
  const Drawn drawn = draw(data, Split::train, 0, 1, 4);
  constexpr float mean = 45.0f, deviation = 33.5410197f;
  const float expected[] = {0,  7.5f,  22.5f, 30, 15, 22.5f, 37.5f, 45,
                            45, 52.5f, 67.5f, 75, 60, 67.5f, 82.5f, 90};
  for (std::size_t i = 0; i < 48; ++i)
    EXPECT_NEAR(drawn.images[i] * deviation + mean, expected[i % 16], 1e-4) << i;
}

TEST_F(ImageFiles, ThatAreNoneAreRefused) {
  const std::vector<std::uint8_t> pixels(40, 1), labels(10, 0);
  write("[10,4]", pixels, labels);
  EXPECT_THAT(complaint(), HasSubstr("images is not [count"));
  write("[10,2,2]", pixels, {0, 1});
  EXPECT_THAT(complaint(), HasSubstr("a label for each of 10 images"));
  write("[10,2,2]", pixels, labels);
  EXPECT_THAT(complaint(), HasSubstr("all alike"));
  write("[10,2,2]", pixels, labels, "I8");
  EXPECT_THAT(complaint(), HasSubstr("images is I8"));
  numbered(2);
  EXPECT_THAT(complaint(), HasSubstr("too few"));
}

// Three patterns in noise; the network has not seen the images that it is tested on.
TEST_F(ImageFiles, AreLearnt) {
  std::vector<std::uint8_t> pixels, labels;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint32_t kind = uniform_integer(3, 1, 1, i);
    labels.push_back(static_cast<std::uint8_t>(kind));
    for (std::uint64_t k = 0; k < 64; ++k) {
      const bool bright = kind == 0 ? k % 8 < 4 : kind == 1 ? k < 32 : (k % 8 < 4) == (k < 32);
      pixels.push_back(
          static_cast<std::uint8_t>((bright ? 120 : 0) + uniform_integer(120, 2, i, k)));
    }
  }
  RunOptions options = default_options("resnet18");
  options.batch_size = 16;
  options.image_size = 32;
  options.data = write("[200,8,8]", pixels, labels).string();
  options.resolve();
  CpuDevice device;
  Session session(options, device);
  for (int i = 0; i < 30; ++i) session.step();
  const Evaluation found = session.evaluate(0);
  EXPECT_EQ(found.samples, session.data().validation_samples());
  ASSERT_NE(found.samples % options.batch_size, 0) << "the last batch has images beyond the last";
  ASSERT_TRUE(found.right);
  EXPECT_LE(*found.right, found.samples);
  RunOptions one_by_one = options;
  one_by_one.batch_size = 1;
  const TemporaryDirectory directory;
  session.save(directory.path / "checkpoint");
  const EvaluationReport each = evaluate(one_by_one, device, [&](Graph& graph) {
    initialize_from_checkpoint(directory.path / "checkpoint", graph);
  });
  EXPECT_EQ(each.right, found.right);
  EXPECT_NEAR(each.loss, found.loss, 1e-4);
  EXPECT_GT(found.accuracy(), 0.95);
  EXPECT_NEAR(session.evaluate_in("int8", 0).accuracy(), found.accuracy(), 0.05);
}

}  // namespace
}  // namespace ridge
