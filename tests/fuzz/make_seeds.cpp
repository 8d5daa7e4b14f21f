// make_seeds DIR: writes first inputs for each fuzzer into DIR/<fuzzer>/.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/file.h"
#include "ridge/base/gzip.h"
#include "ridge/base/safetensors.h"

namespace {

using ridge::DType;
using ridge::NamedType;
using ridge::Shape;

void safetensors(const std::filesystem::path& directory) {
  const std::vector<NamedType> tensors = {{"a", {DType::bf16, Shape{3}}},
                                          {"layers.0.weight", {DType::f32, Shape{2, 2}}},
                                          {"tokens \"x\"\n", {DType::i32, Shape{}}}};
  const std::vector<std::byte> zeros(64);
  const auto bytes_of = [&](std::size_t i) {
    return std::span<const std::byte>(zeros).first(tensors[i].type.bytes());
  };
  const std::filesystem::path temporary = directory / "file";
  ridge::write_safetensors(temporary, tensors, {{"step", "3"}, {"format", "pt"}}, bytes_of);
  const std::string file = ridge::read_text_file(temporary, 1 << 20);
  std::filesystem::remove(temporary);
  ridge::write_text_file(directory / "whole", '\0' + file);
  const std::size_t header = file.rfind('}') + 1;
  ridge::write_text_file(directory / "framed", '\1' + file.substr(8, header - 8) + '\xFF' +
                                                   file.substr(file.size() - 26));
  ridge::write_text_file(directory / "empty", "\1{}");
  ridge::write_text_file(directory / "escapes",
                         "\1{\"\\u0041\\ud83d\\ude00\\/"
                         "\\\\\":{\"shape\":[0,3],\"dtype\":\"I64\",\"data_offsets\":[0,0]}}");
}

std::string word(std::uint32_t value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

void tokens(const std::filesystem::path& directory) {
  const std::string bin("\0\1\x20\0", 4), text("\1\1\x20\0", 4), vocab = word(1000);
  const auto llmc = [](std::uint32_t magic, std::uint32_t version, std::size_t width) {
    std::string file = word(magic) + word(version) + word(8);
    file.resize(1024);
    return file + std::string(8 * width, '\1');
  };
  ridge::write_text_file(directory / "llmc16", bin + vocab + llmc(20240520, 1, 2));
  ridge::write_text_file(directory / "llmc32", bin + word(0x01010101) + llmc(20240801, 7, 4));
  ridge::write_text_file(directory / "headerless", bin + vocab + std::string(32, '\1'));
  ridge::write_text_file(directory / "text", text + vocab + "a text of some letters");
}

void config(const std::filesystem::path& directory) {
  ridge::write_text_file(directory / "options",
                         R"({"vocab-size": 300, "learning-rate": 1e-3, "use-amp": true,)"
                         R"( "data": "input.txt", "dtype": "bf16", "n-heads": 4})");
  ridge::write_text_file(directory / "empty", "{}");
}

// Pieces of 64 bytes, so that texts of a few events are cut.
void trace(const std::filesystem::path& directory) {
  const std::string head(2, '\0');
  const std::string events =
      R"({"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":9,"tid":9,"ts":0,"dur":90},
{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":9,"tid":9,"ts":1.5,"dur":9,"args":{"Input Dims":[[2,3],[3,4]]}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":2,"dur":3,"args":{"correlation":7}},
{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":9,"dur":20,"args":{"device":0,"stream":7,"correlation":7}},
{"ph":"i","name":"[memory]","pid":9,"tid":9,"ts":4,"args":{"Bytes":8,"Total Allocated":64,"Device Type":1}},
{"ph":"M","name":"thread_name","pid":9,"tid":9,"args":{"name":"main"}},
{"ph":"B","name":"outer","pid":9,"tid":"t","ts":1},{"ph":"E","pid":9,"tid":"t","ts":5})";
  const std::string whole =
      R"({"distributedInfo":{"rank":0},"traceEvents":[)" + events + R"(],"traceName":"x"})";
  ridge::write_text_file(directory / "whole", head + whole);
  ridge::write_text_file(directory / "list", head + "[" + events);
  ridge::write_text_file(directory / "packed", head + ridge::gzipped(whole));
  ridge::write_text_file(directory / "rocprofv3",
                         head +
                             R"({"rocprofiler-sdk-tool":[{"metadata":{"pid":9},
"agents":[{"id":{"handle":2},"type":2,"node_id":4,"logical_node_type_id":1,"name":"gfx942"}],
"strings":{"buffer_records":[{"kind":"HIP","operations":["none","hipLaunchKernel"]},
{"kind":"MARKER_CORE_RANGE_API","operations":["roctxThreadRangeA"]}],
"marker_api":[{"key":8,"value":"ProfilerStep#1"}]},
"kernel_symbols":[{"kernel_id":3,"formatted_kernel_name":"gemm"}],
"buffer_records":{"hip_api":[{"kind":0,"operation":1,"correlation_id":{"internal":5},
"start_timestamp":10,"end_timestamp":15,"thread_id":9}],
"kernel_dispatch":[{"correlation_id":{"internal":5},"start_timestamp":20,"end_timestamp":30,
"dispatch_info":{"agent_id":{"handle":2},"queue_id":{"handle":1},"kernel_id":3,
"grid_size":{"x":64,"y":1,"z":1}}}],
"marker_api":[{"kind":1,"operation":0,"correlation_id":{"internal":8},
"start_timestamp":1,"end_timestamp":40,"thread_id":9}]}}]})");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path directory = argv[1];
  for (const std::string_view fuzzer : {"safetensors", "tokens", "config", "trace"})
    std::filesystem::create_directories(directory / fuzzer);
  safetensors(directory / "safetensors");
  tokens(directory / "tokens");
  config(directory / "config");
  trace(directory / "trace");
}
