#include "ridge/session/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/safetensors.h"
#include "ridge/cpu/device.h"
#include "tests/base/temporary_directory.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class VisionWeights : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& name) const { return folder_ / name; }

  // A file of a network's fresh weights.
  std::filesystem::path fresh(const std::string& network, std::uint64_t seed) {
    Graph graph;
    build_vision(graph, network, {.image_size = 224});
    CpuDevice device(2);
    Executor executor(graph, device);
    executor.initialize(seed);
    save_weights(file(network), graph, executor);
    return file(network);
  }

  // A copy of a file with tensor i of another name, dtype or shape, or with other bytes in all.
  struct Edit {
    std::string name, dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
  };
  using Change = std::function<void(std::vector<Edit>&)>;
  std::filesystem::path changed(const std::filesystem::path& from, const Change& change) {
    const SafetensorsFile original(from);
    std::vector<Edit> tensors;
    for (std::size_t i = 0; i < original.size(); ++i) {
      const StoredTensor tensor = original.tensor(i);
      tensors.push_back(
          {tensor.name, tensor.dtype, tensor.shape, {tensor.bytes.begin(), tensor.bytes.end()}});
    }
    change(tensors);
    std::string header;
    std::size_t end = 0;
    for (const Edit& tensor : tensors) {
      std::string shape;
      for (const std::int64_t extent : tensor.shape)
        shape += (shape.empty() ? "" : ",") + std::to_string(extent);
      header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                            header.empty() ? "{" : ",", tensor.name, tensor.dtype, shape, end,
                            end + tensor.bytes.size());
      end += tensor.bytes.size();
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::ofstream out(file("changed"), std::ios::binary);
    const std::uint64_t length = header.size();
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header;
    for (const Edit& tensor : tensors)
      out.write(reinterpret_cast<const char*>(tensor.bytes.data()),
                static_cast<std::streamsize>(tensor.bytes.size()));
    return file("changed");
  }

  static std::string complaint(const std::string& network, const std::filesystem::path& path) {
    Graph graph;
    build_vision(graph, network, {});
    try {
      load_weights(graph, network, path);
    } catch (const FormatError& error) {
      return error.what();
    }
    return "";
  }

 private:
  TemporaryDirectory temporary_;
  std::filesystem::path folder_ = temporary_.path;
};

std::vector<float> weights_of(const RunOptions& options, const std::string& name) {
  CpuDevice device(2);
  Session session(options, device);
  return session.executor().read_floats(session.graph().find(name));
}

TEST_F(VisionWeights, OfAFileAreThoseThatRun) {
  RunOptions options = network_options("shufflenet_v2_x0_5", Use::inference);
  options.seed = 1;
  const std::vector<float> other = weights_of(options, "conv1.0.weight");
  options.weights = fresh(options.network, 7);
  const std::vector<float> read = weights_of(options, "conv1.0.weight");
  EXPECT_NE(read, other);
  options.seed = 7;
  options.weights.clear();
  EXPECT_EQ(read, weights_of(options, "conv1.0.weight"));
}

template <class T>
void convert_all(auto& tensors, const char* dtype) {
  for (auto& tensor : tensors) {
    if (tensor.dtype != "F32") continue;
    std::vector<std::byte> bytes(tensor.bytes.size() / sizeof(float) * sizeof(T));
    for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
      float x;
      std::memcpy(&x, &tensor.bytes[i * sizeof x], sizeof x);
      const T narrow(x);
      std::memcpy(&bytes[i * sizeof narrow], &narrow, sizeof narrow);
    }
    tensor.dtype = dtype, tensor.bytes = bytes;
  }
}

TEST_F(VisionWeights, MayBeOfAnyFloatingType) {
  const auto path = fresh("squeezenet1_1", 3);
  const std::string name = "features.0.weight";
  const std::vector<float> exact = SafetensorsFile(path).find(name)->floats();
  const auto check = [&](const Change& change, double tolerance) {
    Graph graph;
    build_vision(graph, "squeezenet1_1", {});
    load_weights(graph, "squeezenet1_1", changed(path, change));
    const std::vector<float>& read = *graph.info(graph.find(name).id).init.values;
    ASSERT_EQ(read.size(), exact.size());
    for (std::size_t i = 0; i < read.size(); ++i)
      ASSERT_NEAR(read[i], exact[i], tolerance * std::abs(exact[i]) + 1e-7);
  };
  check([](auto& tensors) { convert_all<double>(tensors, "F64"); }, 0);
  check([](auto& tensors) { convert_all<BFloat16>(tensors, "BF16"); }, 0x1p-8);
  check([](auto& tensors) { convert_all<Float16>(tensors, "F16"); }, 0x1p-11);
}

TEST_F(VisionWeights, ThatDoNotFitAreRefused) {
  const auto resnet34 = fresh("resnet34", 0);
  EXPECT_EQ(complaint("resnet34", resnet34), "");
  // It has all that resnet18 has, and more.
  EXPECT_THAT(complaint("resnet18", resnet34),
              AllOf(HasSubstr("does not fit resnet18"), HasSubstr("layer1.2"),
                    HasSubstr("it fits resnet34")));
  EXPECT_THAT(complaint("alexnet", resnet34), HasSubstr("it has no tensor features.0.weight"));

  const auto squeezenet = fresh("squeezenet1_1", 0);
  EXPECT_THAT(complaint("squeezenet1_0", squeezenet),
              AllOf(HasSubstr("its features.0.weight is [64, 3, 3, 3] instead of [96, 3, 7, 7]"),
                    HasSubstr("it fits squeezenet1_1")));
  const auto integers = changed(squeezenet, [](auto& tensors) { tensors[0].dtype = "I32"; });
  EXPECT_THAT(complaint("squeezenet1_1", integers), HasSubstr("classifier.1.bias is I32"));
  const auto other_name = changed(squeezenet, [](auto& tensors) { tensors[0].name = "x"; });
  EXPECT_THAT(complaint("squeezenet1_1", other_name),
              AllOf(HasSubstr("has no tensor classifier.1.bias"), Not(HasSubstr("it fits"))));

  const auto overflown = changed(squeezenet, [](auto& tensors) {
    const float infinity = std::numeric_limits<float>::infinity();
    std::memcpy(&tensors[0].bytes[3 * sizeof infinity], &infinity, sizeof infinity);
  });
  EXPECT_THAT(complaint("squeezenet1_1", overflown),
              HasSubstr("element 3 of classifier.1.bias is inf"));

  std::filesystem::resize_file(squeezenet, 1000);
  EXPECT_NE(complaint("squeezenet1_1", squeezenet), "");
  std::ofstream(file("text")) << "no weights";
  EXPECT_NE(complaint("squeezenet1_1", file("text")), "");
}

TEST_F(VisionWeights, MayHaveWhatOnlyTrainingNeeds) {
  const auto path = changed(fresh("googlenet", 0), [](auto& tensors) {
    for (const char* name : {"conv1.bn.num_batches_tracked", "aux1.fc1.bias"})
      tensors.push_back({name, "I64", {1}, std::vector<std::byte>(8)});
  });
  EXPECT_EQ(complaint("googlenet", path), "");
}

// A network with fresh weights says nothing of its classes, whatever its depth.
class FreshNetworks : public ::testing::TestWithParam<std::string> {};

TEST_P(FreshNetworks, GuessAmongTheirClasses) {
  const std::string name = GetParam();
  CpuDevice device;
  RunOptions options = network_options(name, Use::inference, "none", "fp32", 96);
  options.batch_size = 8;
  Session session(options, device);
  const double guess = std::log(static_cast<double>(vision_network(name).classes));
  // Logits of deviation s cost about s^2 / 2 more; as torchvision draws weights, s is up to 1.4.
  EXPECT_NEAR(session.step().loss, guess, 1.0);
}

INSTANTIATE_TEST_SUITE_P(OfEachFamily, FreshNetworks,
                         ::testing::Values("resnet50", "wide_resnet50_2", "vgg11_bn", "densenet121",
                                           "inception_v3", "googlenet", "mobilenet_v2",
                                           "mobilenet_v3_large", "efficientnet_b3", "mnasnet1_0",
                                           "shufflenet_v2_x1_0", "shufflenet", "xception",
                                           "alexnet", "squeezenet1_0", "vit_b_32", "swin_v2_t",
                                           "regnet_y_400mf", "efficientnet_v2_s", "convnext_tiny",
                                           "deeplabv3_mobilenet_v3_large"),
                         [](const auto& named) { return named.param; });

}  // namespace
}  // namespace ridge
