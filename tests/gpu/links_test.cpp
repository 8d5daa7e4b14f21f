// NCCL in captured steps, as far as one card can try it: a rank that sends to itself.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "ridge/gpu/device/links.h"
#include "tests/gpu/gpu.h"

namespace ridge {
namespace {

// The only rank of a run.
class Alone final : public Communicator {
 public:
  int rank() const override { return 0; }
  int count() const override { return 1; }
  void all_reduce(std::span<float>) override {}
  void reduce_scatter(std::span<float> data, std::span<const std::int64_t>,
                      std::span<float> own) override {
    std::ranges::copy(data, own.begin());
  }
  void exchange(std::span<const std::byte> given, std::span<const std::int64_t>,
                std::span<std::byte> got, std::span<const std::int64_t>) override {
    std::ranges::copy(given, got.begin());
  }
  void all_gather_parts(std::span<std::byte>, std::span<const std::int64_t>) override {}
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::ranges::copy(mine, all.begin());
  }
  void wait_for_all() override {}
};

class NcclOfOneRank : public testing::GpuTest {
 protected:
  static constexpr std::size_t count = 100'000, bytes = count * sizeof(int);

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    device();  // opens the card
    links_ = gpu::link_by_nccl(communicator_);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    for (void*& block : blocks_) ASSERT_EQ(cudaMalloc(&block, bytes), cudaSuccess);
  }
  void TearDown() override {
    links_.reset();
    for (void* const block : blocks_) cudaFree(block);
    if (stream_) cudaStreamDestroy(stream_);
  }

  void fill(int value) {
    const std::vector<int> numbers(count, value);
    ASSERT_EQ(cudaMemcpyAsync(blocks_[0], numbers.data(), bytes, cudaMemcpyHostToDevice, stream_),
              cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(blocks_[1], 0, bytes, stream_), cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(blocks_[2], 0, bytes, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  void send(int from, int to) {
    const gpu::Parcel out{0, blocks_[from], bytes}, in{0, blocks_[to], bytes};
    links_->exchange(stream_, {&out, 1}, {&in, 1});
  }
  std::vector<int> read(int block) {
    std::vector<int> numbers(count);
    EXPECT_EQ(
        cudaMemcpyAsync(numbers.data(), blocks_[block], bytes, cudaMemcpyDeviceToHost, stream_),
        cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return numbers;
  }

  Alone communicator_;
  std::shared_ptr<gpu::Links> links_;
  cudaStream_t stream_ = nullptr;
  void* blocks_[3] = {};
};

TEST_F(NcclOfOneRank, MovesData) {
  fill(7);
  send(0, 1);
  EXPECT_EQ(read(1), std::vector(count, 7));
}

// A step is captured piece by piece into one graph.
TEST_F(NcclOfOneRank, IsCapturedTwiceIntoOneGraph) {
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaGraphCreate(&graph, 0), cudaSuccess);
  std::vector<cudaGraphNode_t> before;
  for (int piece = 0; piece < 2; ++piece) {
    ASSERT_EQ(cudaStreamBeginCaptureToGraph(stream_, graph, before.data(), nullptr, before.size(),
                                            cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    send(piece, piece + 1);
    cudaStreamCaptureStatus status{};
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    std::size_t nodes_before = 0;
    ASSERT_EQ(
        cudaStreamGetCaptureInfo(stream_, &status, nullptr, nullptr, &nodes, &edges, &nodes_before),
        cudaSuccess);
    before.assign(nodes, nodes + nodes_before);
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  }
  std::size_t nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 2u);
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  cudaGraphDestroy(graph);
  for (const int value : {3, 4, 5}) {
    fill(value);
    ASSERT_EQ(cudaGraphLaunch(replay, stream_), cudaSuccess);
    EXPECT_EQ(read(2), std::vector(count, value));
  }
  send(2, 0);  // and between replays
  EXPECT_EQ(read(0), std::vector(count, 5));
  cudaGraphExecDestroy(replay);
}

}  // namespace
}  // namespace ridge
