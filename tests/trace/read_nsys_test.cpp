#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <fstream>
#include <random>
#include <sstream>

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

constexpr std::int64_t process = std::int64_t{4242} << 24;
constexpr std::int64_t other_process = std::int64_t{4343} << 24;

// The tables as Nsight Systems 2024.6 declares them, without the columns that nobody reads.
constexpr const char* schema = R"(
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
  gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
  blockZ INTEGER NOT NULL, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,
  srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL,
  memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, graphId INTEGER NOT NULL,
  graphExecId INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
  returnValue INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT NULL, eventId INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
  rangeId INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL, name TEXT);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
)";

// A database as Nsight Systems would export it, in nanoseconds.
class MadeExport {
 public:
  explicit MadeExport(const char* tables = schema) {
    sqlite3* opened = nullptr;
    sqlite3_open((directory_.path / "made").c_str(), &opened);
    database_.reset(opened);
    run("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; BEGIN").run(tables);
  }
  MadeExport& run(const std::string& sql) {
    char* error = nullptr;
    sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, &error);
    EXPECT_EQ(error, nullptr) << error << ": " << sql;
    sqlite3_free(error);
    return *this;
  }
  std::int64_t string(const std::string& text) {
    ++strings_;
    run(fmt::format("INSERT INTO StringIds VALUES ({}, '{}')", strings_, text));
    return strings_;
  }
  MadeExport& call(const std::string& name, int begin, int end, int correlation,
                   std::int64_t of = process) {
    return run(
        fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({}, {}, 0, {}, {}, {}, 0)",
                    begin, end, of + 7, correlation, string(name)));
  }
  MadeExport& kernel(const std::string& name, int begin, int end, int correlation,
                     std::int64_t of = process) {
    const std::int64_t id = string(name);
    return run(
        fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, 0, 1, 13, {}, {}, "
                    "{}, {}, 8, 4, 1, 128, 2, 1, NULL)",
                    begin, end, correlation, of, id, id));
  }
  MadeExport& range(const std::string& text, int begin, const std::string& end, int type = 59) {
    return run(
        fmt::format("INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) "
                    "VALUES ({}, {}, {}, '{}', {})",
                    begin, end, type, text, process + 7));
  }
  std::string file() {
    run("COMMIT");
    database_.reset();
    std::ifstream made(directory_.path / "made", std::ios::binary);
    std::ostringstream bytes;
    bytes << made.rdbuf();
    return bytes.str();
  }
  Trace read() { return read_text(file(), "made"); }

 private:
  struct Close {
    void operator()(sqlite3* database) const { sqlite3_close(database); }
  };
  TemporaryDirectory directory_;
  std::unique_ptr<sqlite3, Close> database_;
  std::int64_t strings_ = 0;
};

TEST(ReadNsys, ReadsKernelsWithTheirLaunches) {
  const Trace trace = MadeExport()
                          .kernel("void gemm<float>(int)", 100, 120, 5)
                          .call("cudaLaunchKernel_v7000", 10, 15, 5)
                          .call("cuMemFree_v2", 20, 25, 6)
                          .read();
  EXPECT_THAT(
      rows_of(trace),
      ElementsAre("3 void gemm<float>(int) 0/13 100+20 5 -1 [8,4,1][128,2,1]",
                  "2 cudaLaunchKernel 4242/7 10+5 5 -1 ", "2 cuMemFree_v2 4242/7 20+5 6 -1 "));
  EXPECT_TRUE(trace.tracks[trace.events.track[0]].device);
  EXPECT_FALSE(trace.tracks[trace.events.track[1]].device);
  EXPECT_EQ(trace.event_count, 3U);
  const Report report = report_of(trace);
  ASSERT_EQ(report.launches.calls.size(), 1U);
  EXPECT_EQ(report.launches.calls[0].call, "cudaLaunchKernel");
}

TEST(ReadNsys, NamesCopiesAsPyTorchDoes) {
  MadeExport made;
  made.run("INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (77, 'CUDA_MEMCPY_KIND_DTOH', 'new')");
  const auto copy = [&](int kind, const char* from, const char* to) {
    made.run(
        fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (100, 110, 0, 1, 13, 5, {}, "
                    "4096, {}, {}, {})",
                    process, kind, from, to));
  };
  copy(1, "0", "2");
  copy(8, "2", "2");
  copy(11, "NULL", "NULL");
  copy(77, "2", "1");
  copy(99, "0", "2");
  made.run(
      fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (200, 210, 0, 1, 13, 6, {}, 0, "
                  "64, 2)",
                  process));
  EXPECT_THAT(
      rows_of(made.read()),
      ElementsAre("4 Memcpy HtoD (Pageable -> Device) 0/13 100+10 5 4096 ",
                  "4 Memcpy DtoD (Device -> Device) 0/13 100+10 5 4096 ",
                  "4 Memcpy HtoD of unified memory 0/13 100+10 5 4096 ",
                  "4 Memcpy DtoH (Device -> Pinned) 0/13 100+10 5 4096 ",
                  "4 Memcpy (kind 99) 0/13 100+10 5 4096 ", "5 Memset (Device) 0/13 200+10 6 64 "));
}

TEST(ReadNsys, MakesOperatorsOfTheRangesOfPyTorch) {
  MadeExport made;
  made.range("aten::mm, seq = 3, op_id = 12, sizes = [[8, 4], [4, 16]], input_op_ids = [(1,0)]", 10,
             "50")
      .range("aten::relu", 60, "70")
      .range("MmBackward0, seq = 3, op_id = 13", 80, "90")
      .range("ProfilerStep#2, op_id = 1", 0, "100")
      .range("my range, with a comma", 5, "95", 60)
      .range("a mark", 7, "NULL", 34)
      .range("never closed", 8, "NULL")
      .range("a domain", 9, "9", 75);
  const std::int64_t id = made.string("registered");
  made.run(
      fmt::format("INSERT INTO NVTX_EVENTS (start, end, eventType, textId, globalTid) VALUES "
                  "(1, 2, 59, {}, {})",
                  id, process + 7));
  const Trace trace = made.read();
  EXPECT_THAT(
      rows_of(trace),
      ElementsAre("1 aten::mm 4242/7 10+40 -1 -1 [[8,4],[4,16]]",
                  "1 aten::relu 4242/7 60+10 -1 -1 ", "1 MmBackward0 4242/7 80+10 -1 -1 ",
                  "6 ProfilerStep#2 4242/7 0+100 -1 -1 ",
                  "6 my range, with a comma 4242/7 5+90 -1 -1 ", "6 registered 4242/7 1+1 -1 -1 "));
  EXPECT_EQ(report_of(trace).steps.size(), 1U);
}

TEST(ReadNsys, ReadsGraphsAndWaits) {
  const Trace trace =
      MadeExport()
          .run(
              fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (100, 190, 0, 1, 13, "
                          "5, {}, 3, 4)",
                          process))
          .run(
              fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (200, 210, 0, 1, "
                          "13, 6, {}, 3, 0)",
                          process))
          .read();
  EXPECT_THAT(rows_of(trace), ElementsAre("3 CUDA graph 3 0/13 100+90 5 -1 ",
                                          "9 Stream Synchronize 0/13 200+10 6 -1 "));
}

TEST(ReadNsys, KeepsProcessesApart) {
  const Trace trace = MadeExport()
                          .kernel("a", 100, 120, 5)
                          .kernel("b", 100, 120, 5, other_process)
                          .call("cudaLaunchKernel", 10, 15, 5)
                          .call("cuLaunchKernel", 10, 15, 5, other_process)
                          .read();
  EXPECT_EQ(trace.events.correlation[0], trace.events.correlation[2]);
  EXPECT_EQ(trace.events.correlation[1], trace.events.correlation[3]);
  EXPECT_NE(trace.events.correlation[0], trace.events.correlation[1]);
  EXPECT_EQ(trace.tracks[trace.events.track[0]].thread, "13");
  EXPECT_EQ(trace.tracks[trace.events.track[1]].thread, "13 of process 4343");
  EXPECT_EQ(trace.tracks[trace.events.track[3]].process, "4343");
}

TEST(ReadNsys, NamesThreadsAndCards) {
  MadeExport made;
  made.kernel("a", 100, 120, 5).call("cudaLaunchKernel", 10, 15, 5);
  const std::int64_t name = made.string("main");
  made.run(fmt::format("INSERT INTO ThreadNames VALUES ({}, 0, {})", name, process + 7))
      .run("INSERT INTO TARGET_INFO_GPU VALUES (0, 'Not seen'), (3, 'Seen card')")
      .run("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (3, 0, 4242)");
  const Trace trace = made.read();
  EXPECT_EQ(trace.tracks[trace.events.track[1]].thread_name, "main");
  EXPECT_EQ(report_of(trace).device, "Seen card");
}

TEST(ReadNsys, MissesNeitherTablesNorColumns) {
  const Trace trace =
      MadeExport(
          "CREATE TABLE StringIds (id INTEGER, value TEXT);"
          "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId "
          "INTEGER, streamId INTEGER, correlationId INTEGER, shortName INTEGER)")
          .run("INSERT INTO StringIds VALUES (1, 'short')")
          .run("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 120, 0, 7, 5, 1)")
          .read();
  EXPECT_THAT(rows_of(trace), ElementsAre("3 short 0/7 100+20 5 -1 "));
}

TEST(ReadNsys, BelievesNoTimesThatCannotBe) {
  const Trace trace =
      MadeExport()
          .run(
              "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES "
              "(-9223372036854775808, 9223372036854775807, 0, 1, 1, 1, 0), (20, 10, 0, 1, 1, 1, "
              "0), "
              "(-9223372036854775808, 10, 0, 1, 1, 1, 0), (10, 9223372036854775807, 0, 1, 1, 1, 0)")
          .read();
  EXPECT_THAT(trace.events.duration_ns, ElementsAre(0));
  EXPECT_EQ(trace.event_count, 4U);
}

std::string database_refusal(const std::string& file) {
  return message_of<FormatError>([&] { read_text(file, "made"); });
}

TEST(ReadNsys, RefusesOtherDatabases) {
  EXPECT_EQ(database_refusal(MadeExport("CREATE TABLE rocpd_kernel_dispatch (id INTEGER)").file()),
            "\"made\" is no trace: it is a database without the tables of Nsight Systems; of "
            "databases, those are read that `nsys export --type sqlite` writes");
}

TEST(ReadNsys, RunsNothingThatADatabaseBrings) {
  EXPECT_THAT(database_refusal(
                  MadeExport("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(start) "
                             "AS (SELECT 1 UNION ALL SELECT start FROM n) SELECT * FROM n")
                      .file()),
              HasSubstr("without the tables of Nsight Systems"));
  const Trace trace = MadeExport().kernel("''); DROP TABLE StringIds; --", 100, 120, 5).read();
  EXPECT_EQ(trace.name(0), "'); DROP TABLE StringIds; --");
}

TEST(ReadNsys, SaysThatAFileIsDamaged) {
  MadeExport made;
  for (int i = 0; i < 400; ++i) made.kernel(fmt::format("kernel {}", i), i * 10, i * 10 + 5, i);
  const std::string whole = made.file();
  EXPECT_EQ(read_text(whole, "made").events.size(), 400U);
  EXPECT_THAT(database_refusal(whole.substr(0, 100)), HasSubstr("SQLite cannot read \"made\""));
  EXPECT_THAT(database_refusal(whole.substr(0, whole.size() / 2)),
              HasSubstr("\"made\" is no trace: "));
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 30; ++i) damaged[16 + random() % (damaged.size() - 16)] = char(random());
    try {
      report_of(read_text(damaged, "made"));
    } catch (const FormatError&) {
    }
  }
}

TEST(ReadNsys, ReadsFilesPackedOnesToo) {
  const TemporaryDirectory directory;
  const std::string file = MadeExport().kernel("a", 100, 120, 5).file();
  std::ofstream(directory.path / "odd?na#me%", std::ios::binary) << file;
  std::ofstream(directory.path / "packed", std::ios::binary) << gzipped(file);
  std::uint64_t told = 0;
  const Trace trace =
      read(directory.path / "odd?na#me%", {.progress = [&](std::uint64_t bytes) { told = bytes; }});
  EXPECT_EQ(trace.events.size(), 1U);
  EXPECT_EQ(trace.bytes, file.size());
  EXPECT_EQ(told, file.size());
  EXPECT_EQ(read(directory.path / "packed").events.size(), 1U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path), {}), 2);
}

TEST(ReadNsys, IsFoundInADirectory) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path / "report.sqlite") << "";
  EXPECT_EQ(traces_in(directory.path).size(), 1U);
}

}  // namespace
}  // namespace ridge::trace
