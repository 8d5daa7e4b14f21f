#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "ridge/graph/op_rules.h"
#include "ridge/passes/passes.h"
#include "ridge/passes/rewrite.h"

namespace ridge {
namespace {

// Collectives of one dtype that become one, at the place of the last.
struct Bucket {
  std::vector<NodeId> nodes;
  std::size_t bytes = 0;
};

std::size_t bytes_of(const Rewriter& rw, NodeId n) {
  std::size_t bytes = 0;
  for (const ValueId in : rw.node(n).inputs) bytes += rw.type(in).bytes();
  return bytes;
}

bool is_collective(const Rewriter& rw, NodeId n) {
  return rw.op(n) != nullptr && is_collective(rw.graph(), rw.node(n));
}

// Whether node n reads what one of these computes.
bool needs_any_of(const Rewriter& rw, NodeId n, const std::vector<NodeId>& nodes) {
  return std::ranges::any_of(rw.node(n).inputs, [&](ValueId in) {
    return std::ranges::find(nodes, rw.producer(in)) != nodes.end();
  });
}

}  // namespace

// A message has a latency, whatever its length: small ones go together, of each dtype by
// themselves, since NCCL has a kernel for each. One that fills a bucket by itself goes alone, as
// soon as it can. Where there are several, none is larger than what follows it, so that the last
// ones, which little or nothing hides, are small.
std::size_t bucket_gradients(Graph& graph, const Target& target) {
  Rewriter rw(graph);
  std::size_t all_bytes = 0;
  for (NodeId n = 0; n < rw.nodes().size(); ++n)
    if (is_collective(rw, n)) all_bytes += bytes_of(rw, n);
  const std::size_t most_bytes =
      std::max(target.bucket_bytes, std::min(all_bytes / target.buckets, target.most_bucket_bytes));
  std::size_t bytes_to_come = all_bytes;
  const auto limit = [&] {
    return target.buckets == 1 ? most_bytes
                               : std::max(target.bucket_bytes, std::min(most_bytes, bytes_to_come));
  };
  std::vector<Bucket> buckets;
  std::map<DType, Bucket> open;
  const auto close = [&](Bucket& bucket) {
    if (bucket.nodes.size() > 1) buckets.push_back(std::move(bucket));
    bucket = {};
  };
  for (NodeId n = 0; n < rw.nodes().size(); ++n) {
    for (auto& [dtype, bucket] : open)
      if (needs_any_of(rw, n, bucket.nodes)) close(bucket);
    if (!is_collective(rw, n)) continue;
    const std::size_t bytes = bytes_of(rw, n);
    bytes_to_come -= bytes;
    if (bytes >= most_bytes) continue;
    Bucket& bucket = open[rw.type(rw.node(n).inputs[0]).dtype];
    if (!bucket.nodes.empty()) {
      const NodeId first = bucket.nodes.front();
      if (rw.node(first).phase != rw.node(n).phase || !(*rw.op(first) == *rw.op(n)) ||
          bucket.bytes + bytes > limit())
        close(bucket);
    }
    bucket.nodes.push_back(n);
    bucket.bytes += bytes;
  }
  for (auto& [dtype, bucket] : open) close(bucket);
  for (Bucket& bucket : buckets) {
    const NodeId at = bucket.nodes.back();
    rw.replace(bucket.nodes, at, [&rw, nodes = bucket.nodes] {
      std::vector<ValueId> in, out;
      for (const NodeId n : nodes) {
        in.insert(in.end(), rw.node(n).inputs.begin(), rw.node(n).inputs.end());
        out.insert(out.end(), rw.node(n).outputs.begin(), rw.node(n).outputs.end());
      }
      return Rewriter::each(out, rw.graph().apply(rw.node(nodes.front()).op, rw.values(in)));
    });
  }
  return rw.commit();
}

}  // namespace ridge
