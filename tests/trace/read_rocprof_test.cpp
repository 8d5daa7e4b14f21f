#include "ridge/trace/read_rocprof.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ridge/base/error.h"
#include "ridge/base/gzip.h"
#include "ridge/trace/report.h"
#include "tests/base/message_of.h"
#include "tests/base/temporary_directory.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What rocprofv3 writes of one process, in the order in which it does.
std::string process_json(int pid, const std::string& records) {
  return fmt::format(
      R"json({{"metadata":{{"pid":{},"init_time":1,"fini_time":2,"command":["a, }}]"]}},
 "agents":[{{"size":336,"id":{{"handle":111}},"type":1,"node_id":0,"logical_node_type_id":0,
             "name":"EPYC","product_name":"EPYC"}},
           {{"size":336,"id":{{"handle":222}},"type":2,"node_id":4,"logical_node_type_id":1,
             "name":"gfx942","product_name":"AMD Instinct MI300X"}}],
 "counters":[],
 "strings":{{"callback_records":[],
   "buffer_records":[{{"kind":"NONE","operations":[]}},
     {{"kind":"HIP_RUNTIME_API","operations":["none","hipLaunchKernel","hipMemcpyAsync"]}},
     {{"kind":"KERNEL_DISPATCH","operations":["NONE","COMPLETE"]}},
     {{"kind":"MEMORY_COPY","operations":["NONE","HOST_TO_HOST","MEMORY_COPY_HOST_TO_DEVICE",
        "DEVICE_TO_HOST"]}},
     {{"kind":"MARKER_CORE_API","operations":["roctxMarkA","roctxRangePushA","roctxRangePop"]}},
     {{"kind":"MARKER_CORE_RANGE_API","operations":["roctxMarkA","roctxThreadRangeA"]}}],
   "marker_api":[{{"key":7,"value":"aten::mm, seq = 3, sizes = [[8, 4], [4, 16]]"}},
                 {{"key":8,"value":"a mark"}},{{"key":9,"value":"ProfilerStep#2"}}],
   "correlation_id":{{"external":[]}}}},
 "code_objects":[],
 "kernel_symbols":[{{"size":0,"kernel_id":0}},
   {{"kernel_id":3,"kernel_name":"_Z4gemm.kd","formatted_kernel_name":"gemm<float>(int)",
     "demangled_kernel_name":"gemm<float>(int) [clone]"}}],
 "host_functions":[],
 "callback_records":{{"counter_collection":[]}},
 "buffer_records":{{{}}}}})json",
      pid, records);
}

std::string file_of(const std::string& processes) {
  return "{\n  \"rocprofiler-sdk-tool\": [" + processes + "]}";
}

std::string hip_call(int operation, int begin, int end, int correlation) {
  return fmt::format(
      R"({{"size":72,"kind":1,"operation":{},"correlation_id":{{"internal":{},"external":0,)"
      R"("ancestor":0}},"start_timestamp":{},"end_timestamp":{},"thread_id":11,"args":[],)"
      R"("retval":{{"uint64_t_retval":0}}}})",
      operation, correlation, begin, end);
}

std::string dispatch(int begin, int end, int correlation, const std::string& after = "") {
  return fmt::format(
      R"({{"size":160,"kind":2,"operation":1,"thread_id":11,"correlation_id":{{"internal":{},)"
      R"("external":0}},"start_timestamp":{},"end_timestamp":{},"dispatch_info":{{"size":64,)"
      R"("agent_id":{{"handle":222}},"queue_id":{{"handle":5}},"kernel_id":3,"dispatch_id":1,)"
      R"("private_segment_size":0,"group_segment_size":0,"workgroup_size":{{"x":64,"y":2,"z":1}},)"
      R"("grid_size":{{"x":1000,"y":4,"z":1}}}}{}}})",
      correlation, begin, end, after);
}

std::string copy(int operation, int from, int to) {
  return fmt::format(
      R"({{"size":80,"kind":3,"operation":{},"thread_id":11,"correlation_id":{{"internal":6,)"
      R"("external":0}},"start_timestamp":300,"end_timestamp":310,"dst_agent_id":{{"handle":{}}},)"
      R"("src_agent_id":{{"handle":{}}},"bytes":4096,"stream_id":{{"handle":2}}}})",
      operation, to, from);
}

std::string marker(int operation, int begin, int end, int correlation, int kind = 4) {
  return fmt::format(
      R"({{"size":72,"kind":{},"operation":{},"correlation_id":{{"internal":{},"external":0}},)"
      R"("start_timestamp":{},"end_timestamp":{},"thread_id":11}})",
      kind, operation, correlation, begin, end);
}

const std::string some_records =
    R"("kernel_dispatch":[)" + dispatch(100, 120, 5, R"(,"stream_id":{"handle":2})") + "," +
    dispatch(130, 150, 6) + R"(],"hip_api":[)" + hip_call(1, 10, 15, 5) + "," +
    hip_call(2, 20, 25, 6) + R"(],"hsa_api":[],"marker_api":[)" + marker(1, 5, 30, 7) + "," +
    marker(0, 6, 6, 8) + "," + marker(2, 30, 31, 70) + "," + marker(1, 1, 400, 9) +
    R"(],"memory_copy":[)" + copy(2, 111, 222) + "," + copy(3, 222, 111) +
    R"(],"scratch_memory":[{"kind":9}])";

TEST(ReadRocprofJson, ReadsDispatchesCallsCopiesAndRanges) {
  const Trace trace = read_text(file_of(process_json(4242, some_records)), "made.json");
  EXPECT_THAT(
      rows_of(trace),
      ElementsAre("3 gemm<float>(int) 1/2 100+20 5 -1 [16,2,1][64,2,1]",
                  "3 gemm<float>(int) 1/queue 5 130+20 6 -1 [16,2,1][64,2,1]",
                  "2 hipLaunchKernel 4242/11 10+5 5 -1 ", "2 hipMemcpyAsync 4242/11 20+5 6 -1 ",
                  "1 aten::mm 4242/11 5+25 -1 -1 [[8,4],[4,16]]",
                  "6 ProfilerStep#2 4242/11 1+399 -1 -1 ",
                  "4 Memcpy HtoD (Host -> Device) 1/2 300+10 6 4096 ",
                  "4 Memcpy DtoH (Device -> Host) 1/2 300+10 6 4096 "));
  EXPECT_FALSE(trace.damage.any());
  const Report report = report_of(trace);
  EXPECT_EQ(report.device, "AMD Instinct MI300X");
  EXPECT_EQ(report.steps.size(), 1U);
  ASSERT_EQ(report.launches.calls.size(), 2U);
  EXPECT_EQ(report.launches.calls[0].call, "hipMemcpyAsync") << "which has three pieces of work";
  EXPECT_EQ(report.operators.at(0).kernels, 2U + 2U) << "those of two launches within it";
}

TEST(ReadRocprofJson, ReadsARangeOnceThatIsRecordedWithItsCalls) {
  const std::string records =
      R"("marker_api":[)" + marker(1, 1, 2, 9) + "," + marker(1, 1, 400, 9, 5) + "]";
  EXPECT_THAT(rows_of(read_text(file_of(process_json(4242, records)), "made.json")),
              ElementsAre("6 ProfilerStep#2 4242/11 1+399 -1 -1 "));
}

TEST(ReadRocprofJson, TakesMembersInAnyOrder) {
  std::string process = process_json(4242, some_records);
  const std::size_t at = process.find("\"buffer_records\":{");
  const std::string records = process.substr(at, process.size() - 1 - at);
  process = "{" + records + "," + process.substr(1, at - 1);
  process.erase(process.find_last_of(','));
  const Trace trace = read_text(file_of(process + "}"), "made.json");
  EXPECT_EQ(rows_of(trace),
            rows_of(read_text(file_of(process_json(4242, some_records)), "made.json")));
}

TEST(ReadRocprofJson, KeepsProcessesApart) {
  const std::string records = R"("kernel_dispatch":[)" + dispatch(100, 120, 5) +
                              R"(],"hip_api":[)" + hip_call(1, 10, 15, 5) + "]";
  const Trace trace = read_text(
      file_of(process_json(4242, records) + "," + process_json(4343, records)), "made.json");
  ASSERT_EQ(trace.events.size(), 4U);
  EXPECT_EQ(trace.events.correlation[0], trace.events.correlation[1]);
  EXPECT_EQ(trace.events.correlation[2], trace.events.correlation[3]);
  EXPECT_NE(trace.events.correlation[0], trace.events.correlation[2]);
  EXPECT_EQ(trace.tracks[trace.events.track[2]].thread, "queue 5 of process 4343");
  EXPECT_EQ(trace.tracks[trace.events.track[3]].process, "4343");
}

TEST(ReadRocprofJson, ReadsWhatACutFileHas) {
  const std::string text = file_of(process_json(4242, some_records));
  std::size_t most = 0;
  for (std::size_t bytes = 30; bytes < text.size(); ++bytes) {
    try {
      const Trace trace = read_text(text.substr(0, bytes), "made.json");
      EXPECT_GE(trace.events.size(), most) << bytes;
      EXPECT_TRUE(trace.damage.cut_short) << bytes;
      for (std::size_t row = 0; row < trace.events.size(); ++row)
        EXPECT_FALSE(trace.name(row).empty()) << bytes << ": a part of a record";
      most = trace.events.size();
    } catch (const FormatError& error) {
      EXPECT_EQ(most, 0U) << bytes;
      EXPECT_THAT(error.what(), HasSubstr("\"made.json\" is no trace: its JSON is damaged"));
    }
  }
  EXPECT_EQ(most, 8U);
}

TEST(ReadRocprofJson, OutlivesDamage) {
  const std::string text = file_of(process_json(4242, some_records));
  for (std::size_t at = 30; at < text.size(); ++at)
    for (const char c : {'}', '"', ',', '\xFF', '9', '['}) {
      std::string damaged = text;
      damaged[at] = c;
      try {
        report_of(read_text(damaged, "made.json"));
      } catch (const FormatError&) {
      }
    }
}

// However large the pieces are in which it is taken in.
TEST(ReadRocprofJson, IsTheSameInPieces) {
  const std::string text =
      file_of(process_json(4242, some_records) + "," + process_json(4343, some_records));
  const std::vector<std::string> whole = rows_of(read_text(text, "made.json"));
  EXPECT_EQ(whole.size(), 16U);
  for (const std::size_t bytes : {1, 65, 100, 700, 4096})
    EXPECT_EQ(
        rows_of(read_text(text, "made.json", {.threads = 1, .piece_bytes = bytes, .progress = {}})),
        whole)
        << bytes;
}

TEST(ReadRocprofJson, LosesTheDamagedRecordAlone) {
  std::string text = file_of(process_json(4242, some_records));
  const std::size_t record = text.find(dispatch(130, 150, 6));
  const std::size_t number = text.find("\"internal\":6", record);
  text[number + 11] = 'x';
  text[text.find("hipLaunchKernel")] = '\xFF';
  const Trace trace = read_text(text, "made.json");
  EXPECT_EQ(trace.events.size(), 7U);
  EXPECT_EQ(trace.damage.lost_bytes, dispatch(130, 150, 6).size());
  EXPECT_EQ(trace.damage.first_at, record);
  EXPECT_EQ(trace.damage.repaired_bytes, 1U);
  EXPECT_FALSE(trace.damage.cut_short);
}

TEST(ReadRocprofJson, UnpacksGzip) {
  const std::string text = file_of(process_json(4242, some_records));
  EXPECT_EQ(read_text(gzipped(text), "made.json.gz").events.size(), 8U);
}

constexpr const char* kernel_csv =
    R"csv("Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"
"KERNEL_DISPATCH","Agent 4",1,2,11,1,11,"void add<float>(float*, ""x"")",5,100,120,0,0,8,0,16,64,1,1,1000,4,1
"KERNEL_DISPATCH",4,1,2,11,2,14,"sub(float*)",6,130,150,0,0,8,0,16,64,1,1,64,1,1
)csv";
constexpr const char* hip_csv =
    R"("Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
"HIP_RUNTIME_API_EXT","hipLaunchKernel",4242,11,5,10,15
)";
constexpr const char* marker_csv =
    "\"Domain\",\"Function\",\"Process_Id\",\"Thread_Id\",\"Correlation_Id\",\"Start_Timestamp\","
    "\"End_Timestamp\"\r\n"
    "\"MARKER_CORE_API\",\"aten::mm, seq = 3, sizes = [[8, 4], [4, 16]]\",4242,11,1,5,30\r\n"
    "\"MARKER_CORE_API\",\"a mark\",4242,11,2,6,6\r\n";
constexpr const char* copy_csv =
    R"("Kind","Direction","Stream_Id","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE",2,"Agent 0","Agent 4",7,300,310
"MEMORY_COPY","MEMORY_COPY_DEVICE_TO_HOST",2,"Agent 4","Agent 0",8,320,330
)";
constexpr const char* agent_csv =
    R"("Node_Id","Logical_Node_Id","Agent_Type","Name","Product_Name"
0,0,"CPU","EPYC","EPYC"
4,4,"GPU","gfx942","AMD Instinct MI300X"
)";

TEST(ReadRocprofCsv, ReadsWhatStandsBesideATable) {
  const TemporaryDirectory directory;
  const auto write = [&](const std::string& name, const char* text) {
    std::ofstream(directory.path / name, std::ios::binary) << text;
  };
  write("1_kernel_trace.csv", kernel_csv);
  write("1_hip_api_trace.csv", hip_csv);
  write("1_marker_api_trace.csv", marker_csv);
  write("1_memory_copy_trace.csv", copy_csv);
  write("1_agent_info.csv", agent_csv);
  write("1_kernel_stats.csv", "\"Name\",\"Calls\"\n\"a\",1\n");
  write("2_hip_api_trace.csv", hip_csv);
  const Trace trace = read(directory.path / "1_hip_api_trace.csv");
  EXPECT_THAT(rows_of(trace),
              ElementsAre("3 void add<float>(float*, \"x\") 4/2 100+20 5 -1 [16,4,1][64,1,1]",
                          "3 sub(float*) 4/2 130+20 6 -1 [1,1,1][64,1,1]",
                          "4 Memcpy HtoD (Host -> Device) 4/2 300+10 7 -1 ",
                          "4 Memcpy DtoH (Device -> Host) 4/2 320+10 8 -1 ",
                          "2 hipLaunchKernel 4242/11 10+5 5 -1 ",
                          "1 aten::mm 4242/11 5+25 -1 -1 [[8,4],[4,16]]"));
  EXPECT_FALSE(trace.damage.any());
  const Report report = report_of(trace);
  EXPECT_EQ(report.device, "AMD Instinct MI300X");
  EXPECT_EQ(report.operators.at(0).kernels, 1U);
  EXPECT_THAT(traces_in(directory.path), ElementsAre(directory.path / "1_kernel_trace.csv"));
  write("results.json", "[]");
  EXPECT_THAT(traces_in(directory.path), ElementsAre(directory.path / "results.json"));
}

TEST(ReadRocprofCsv, ReadsATableAloneUnderAnyName) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path / "kernels", std::ios::binary) << kernel_csv;
  EXPECT_EQ(read(directory.path / "kernels").events.size(), 2U);
  EXPECT_EQ(read_text(std::string("\xEF\xBB\xBF") + hip_csv, "calls").events.size(), 1U);
  const Trace older = read_text(
      "Kind,Agent_Id,Queue_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp\n"
      "KERNEL_DISPATCH,2,7,add,1,100,120",
      "older.csv");
  EXPECT_THAT(rows_of(older), ElementsAre("3 add 2/queue 7 100+20 1 -1 [1,1,1][1,1,1]"));
}

// rocprof counts threads along all axes together, as rocprofv2 does.
TEST(ReadRocprofCsv, ReadsTheCallsOfItsPredecessors) {
  const Trace first = read_text(
      "\"Index\",\"KernelName\",\"gpu-id\",\"queue-id\",\"queue-index\",\"pid\",\"tid\",\"grd\","
      "\"wgr\",\"BeginNs\",\"EndNs\"\n"
      "0,\"add(float*, int) [clone .kd]\",1,2,0,9,9,1000,64,100,120\n",
      "results.csv");
  EXPECT_THAT(
      rows_of(first),
      ElementsAre("3 add(float*, int) [clone .kd] 1/queue 2 100+20 -1 -1 [16,1,1][64,1,1]"));
  const Trace second = read_text(
      "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,Kernel_Name,Start_Timestamp,"
      "End_Timestamp,Correlation_ID\n1,1,2,9,9,128,64,add,100,120,5\n",
      "results.csv");
  EXPECT_THAT(rows_of(second), ElementsAre("3 add 1/queue 2 100+20 5 -1 [2,1,1][64,1,1]"));
}

TEST(ReadRocprofCsv, LeavesOutRowsThatAreDamagedOrCut) {
  std::string text = kernel_csv;
  const std::size_t row = text.find("\"KERNEL");
  text.replace(text.find(",100,120", row), 8, ",1x0,120");
  const Trace damaged = read_text(text, "x.csv");
  EXPECT_EQ(damaged.events.size(), 1U);
  EXPECT_EQ(damaged.damage.first_at, row);
  EXPECT_EQ(damaged.damage.lost_bytes, text.find("\"KERNEL", row + 1) - row);
  EXPECT_FALSE(damaged.damage.cut_short);
  const std::string whole = kernel_csv;
  for (std::size_t bytes = whole.find('\n') + 1; bytes < whole.size() - 2; ++bytes) {
    try {
      const Trace trace = read_text(whole.substr(0, bytes), "x.csv");
      EXPECT_LE(trace.events.size(), 2U);
      EXPECT_TRUE(trace.damage.cut_short || trace.damage.lost_bytes == 0) << bytes;
    } catch (const FormatError& error) {
      EXPECT_EQ(std::string(error.what()), "\"x.csv\" has no event that can be read");
    }
  }
}

TEST(ReadRocprofCsv, RefusesOtherTables) {
  const auto refusal = [](const std::string& text) {
    return message_of<FormatError>([&] { read_text(text, "x.csv"); });
  };
  EXPECT_EQ(refusal("Name,Calls\na,1\n"),
            "\"x.csv\" is no trace: it is a table without the columns of rocprofv3; of CSV, its "
            "*_kernel_trace.csv and the like are read");
  EXPECT_THAT(refusal("hello, world"), HasSubstr("there is no list of events"));
}

}  // namespace
}  // namespace ridge::trace
