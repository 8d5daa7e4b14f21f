#include "ridge/trace/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "ridge/base/error.h"
#include "ridge/trace/database.h"
#include "ridge/trace/report.h"
#include "tests/base/message_of.h"
#include "tests/base/temporary_directory.h"
#include "tests/trace/made_trace.h"

namespace ridge::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Two steps with a launch, a collective, a copy, memory and a name that SQL and CSV have to quote.
Trace made_trace() {
  MadeTrace made;
  made.step(3, 0, 500)
      .operation("aten::mm", 5, 20, "[[8,4],[4,16]]")
      .launched("gemm", 10, 100, 300)
      .step(4, 500, 400)
      .launched("ncclDevKernel_AllReduce", 510, 520, 100, 9)
      .launched("Memcpy HtoD (Pageable -> Device)", 530, 700, 40, 7, "gpu_memcpy", 4096)
      .launched(R"(it's, \"quoted\"; DROP TABLE events)", 600, 800, 5)
      .event(R"({"ph":"i","name":"[memory]","ts":50,"pid":1,"tid":1,"args":{"Bytes":512,)"
             R"("Total Allocated":1024,"Total Reserved":4096,"Device Type":1,"Device Id":0}})")
      .event(R"({"ph":"M","name":"thread_name","pid":100,"tid":100,"args":{"name":"main"}})");
  return read_text(
      made.text(
          R"("distributedInfo":{"rank":2},"deviceProperties":[{"id":0,"name":"Some card"}],)"),
      "made.json");
}

// The rows of a query, fields separated by '|', NULL as "NULL".
std::vector<std::string> ask(const std::filesystem::path& file, const std::string& sql,
                             int columns) {
  Database database = Database::to_fill(file, "the export");  // which runs views, too
  Statement statement(database, sql);
  std::vector<std::string> rows;
  while (statement.step()) {
    std::string& row = rows.emplace_back();
    for (int i = 0; i < columns; ++i) {
      if (i > 0) row += '|';
      row += statement.is_null(i) ? "NULL" : statement.text(i);
    }
  }
  return rows;
}

class SqliteExportTest : public ::testing::Test {
 protected:
  SqliteExportTest() { export_sqlite(trace_, file_); }
  std::vector<std::string> ask(const std::string& sql, int columns) const {
    return trace::ask(file_, sql, columns);
  }

  TemporaryDirectory directory_;
  std::filesystem::path file_ = directory_.path / "out.db";
  Trace trace_ = made_trace();
};

TEST_F(SqliteExportTest, HasAllEventsWithTheirNames) {
  EXPECT_THAT(ask("SELECT count(*) FROM events", 1),
              ElementsAre(fmt::format("{}", trace_.events.size())));
  EXPECT_THAT(ask("SELECT kind, name, begin_ns, duration_ns, correlation, bytes, shape, process, "
                  "thread, thread_name FROM named_events "
                  "WHERE kind IN ('operation', 'kernel', 'copy') ORDER BY begin_ns",
                  10),
              ElementsAre("operation|aten::mm|5000|20000|NULL|NULL|[[8,4],[4,16]]|100|100|main",
                          "kernel|gemm|100000|300000|1001|NULL|NULL|0|7|NULL",
                          "kernel|ncclDevKernel_AllReduce|520000|100000|1002|NULL|NULL|0|9|NULL",
                          "copy|Memcpy HtoD (Pageable -> Device)|700000|40000|1003|4096|NULL|0|7|"
                          "NULL",
                          "kernel|it's, \"quoted\"; DROP TABLE events|800000|5000|1004|NULL|NULL|"
                          "0|7|NULL"));
}

TEST_F(SqliteExportTest, TellsWhatLaunchedTheWorkAndInWhichStep) {
  EXPECT_THAT(ask("SELECT work.name, calls.name, operators.name, class, step FROM work "
                  "JOIN named_events AS work ON work.id = event_id "
                  "LEFT JOIN named_events AS calls ON calls.id = call_id "
                  "LEFT JOIN named_events AS operators ON operators.id = operator_id "
                  "ORDER BY work.begin_ns LIMIT 2",
                  5),
              ElementsAre("gemm|cudaLaunchKernel|aten::mm|compute|3",
                          "ncclDevKernel_AllReduce|cudaLaunchKernel|NULL|communication|4"));
}

TEST_F(SqliteExportTest, HasWhatTheReportHas) {
  const Report report = report_of(trace_);
  EXPECT_THAT(ask("SELECT schema, file, device, rank, of_host, cut_short FROM trace", 6),
              ElementsAre("ridge-trace-export/1|made.json|Some card|2|0|0"));
  EXPECT_THAT(ask("SELECT step, begin_ns, end_ns, kernels FROM steps", 4),
              ElementsAre("3|0|500000|1", "4|500000|900000|2"));
  EXPECT_THAT(ask("SELECT sum(compute_us), sum(communication_us), sum(copy_us) FROM steps", 3),
              ElementsAre("305.0|100.0|40.0"));
  EXPECT_THAT(ask("SELECT count(*), sum(end_ns - begin_ns) / 1000 FROM idle", 2),
              ElementsAre(fmt::format("{}|{}", report.idle.stretches.size(), report.use.idle)));
  EXPECT_THAT(ask("SELECT cause, names.text FROM idle JOIN events ON events.id = next_event_id "
                  "JOIN texts AS names ON names.id = name_id ORDER BY idle.begin_ns LIMIT 1",
                  2),
              ElementsAre("step_end|ncclDevKernel_AllReduce"));
  EXPECT_THAT(ask("SELECT time_ns, device, bytes, allocated_bytes, reserved_bytes FROM memory", 5),
              ElementsAre("50000|0|512|1024|4096"));
  EXPECT_THAT(ask("SELECT value FROM properties WHERE name = 'distributedInfo'", 1),
              ElementsAre(R"({"rank":2})"));
  EXPECT_EQ(ask("SELECT rule FROM findings", 1).size(), report.findings.size());
  EXPECT_FALSE(report.findings.empty());
}

// What a page says between ```sql and ```.
std::vector<std::string> queries_of(const std::string& page) {
  std::vector<std::string> queries;
  for (std::size_t at = page.find("```sql\n"); at != std::string::npos;
       at = page.find("```sql\n", at)) {
    at += 7;
    queries.push_back(page.substr(at, page.find("```", at) - at));
  }
  return queries;
}

TEST_F(SqliteExportTest, AnswersTheQueriesOfItsPage) {
  const std::vector<std::string> queries =
      queries_of(file_text(std::filesystem::path(RIDGE_SOURCE_DIR) / "docs/use/traces.md"));
  ASSERT_EQ(queries.size(), 3U);
  EXPECT_THAT(ask(queries[0], 3), ElementsAre("aten::mm|1|300.0"));
  EXPECT_THAT(
      ask(queries[1], 4),
      ElementsAre("100|step_end|1|120.0", "100|stream_dependency|1|80.0", "100|unknown|1|60.0"));
  EXPECT_THAT(ask(queries[2], 3), ElementsAre("Memcpy HtoD (Pageable -> Device)|1|0.1024"));
}

// The page's table of tables: "| `work` | `event_id`, `call_id`: ... |".
TEST_F(SqliteExportTest, HasTheColumnsOfItsPage) {
  std::istringstream page(
      file_text(std::filesystem::path(RIDGE_SOURCE_DIR) / "docs/use/traces.md"));
  std::map<std::string, std::set<std::string>> told;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `")) continue;
    std::vector<std::string> words;
    for (std::size_t at = line.find('`'); at != std::string::npos; at = line.find('`', at + 1)) {
      const std::size_t end = line.find('`', at + 1);
      words.push_back(line.substr(at + 1, end - at - 1));
      at = end;
    }
    told[words.front()].insert(words.begin() + 1, words.end());
  }
  for (const std::string& table :
       ask("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND "
           "name NOT LIKE 'sqlite_%'",
           1))
    for (const std::string& column : ask("SELECT name FROM pragma_table_info('" + table + "')", 1))
      EXPECT_TRUE(told[table].contains(column)) << table << "." << column;
}

TEST(SqliteExport, ReplacesAFileAndLeavesNothingBeside) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path / "out.db";
  std::ofstream(file) << "what was there";
  std::ofstream(directory.path / ".out.db.ridge-tmp") << "what one who died left";
  export_sqlite(made_trace(), file);
  EXPECT_EQ(ask(file, "PRAGMA integrity_check", 1), std::vector<std::string>{"ok"});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path), {}), 1);
}

TEST(SqliteExport, SaysInOneLineWhereItCannotWrite) {
  const Trace trace = made_trace();
  const auto refusal = [&](const std::string& file) {
    return message_of<IoError>([&] { export_sqlite(trace, file); });
  };
  EXPECT_THAT(refusal("/no/such/place/out.db"), HasSubstr("cannot write /no/such/place/out.db"));
  EXPECT_EQ(refusal("/dev"), "cannot write /dev: it is a directory");
  EXPECT_EQ(refusal("/dev/full"), "cannot write /dev/full: it is no regular file");
}

// Runs f while no file may have more than so many bytes.
template <class F>
void with_small_files(rlim_t bytes, const F& f) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = bytes;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  f();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
}

TEST(Export, LeavesNoFileWhereThereIsNoRoom) {
  const TemporaryDirectory directory;
  MadeTrace made;
  for (int i = 0; i < 2000; ++i)
    made.launched(fmt::format("a kernel of its own name, number {}", i), i * 10, i * 10 + 5, 3);
  const Trace trace = made.read();
  std::string of_sqlite, of_csv;
  with_small_files(64 << 10, [&] {
    of_sqlite = message_of<IoError>([&] { export_sqlite(trace, directory.path / "out.db"); });
    of_csv = message_of<IoError>([&] { export_csv(trace, directory.path / "tables"); });
  });
  EXPECT_THAT(of_sqlite, HasSubstr("cannot write " + (directory.path / "out.db").string()));
  EXPECT_THAT(of_csv, HasSubstr("cannot write "));
  EXPECT_FALSE(std::filesystem::exists(directory.path / "out.db"));
  EXPECT_THAT(std::vector<std::filesystem::path>(
                  std::filesystem::directory_iterator(directory.path / "tables"), {}),
              IsEmpty());
}

TEST(CsvExport, WritesFiveTables) {
  const TemporaryDirectory directory;
  export_csv(made_trace(), directory.path / "new/tables");
  const auto text = [&](const std::string& name) {
    return file_text(directory.path / "new/tables" / name);
  };
  EXPECT_EQ(text("kernels.csv"),
            "name,class,count,us,min_us,max_us\n"
            "\"gemm\",\"compute\",1,300.000,300.000,300.000\n"
            "\"ncclDevKernel_AllReduce\",\"communication\",1,100.000,100.000,100.000\n"
            "\"it's, \"\"quoted\"\"; DROP TABLE events\",\"compute\",1,5.000,5.000,5.000\n");
  EXPECT_EQ(text("operators.csv"),
            "name,shape,types,count,host_us,self_host_us,device_us,kernels,flops,bytes,floor_us\n"
            "\"aten::mm\",\"[[8,4],[4,16]]\",\"\",1,20.000,18.000,300.000,1,1024,0,0.000\n");
  EXPECT_THAT(text("steps.csv"), HasSubstr("\n3,420.000,300.000,300.000,0.000,0.000,0.000,"
                                           "120.000,1\n4,285.000,"));
  EXPECT_THAT(text("idle.csv"), HasSubstr("\n400000,520000,\"step_end\",6,,4\n"));
  EXPECT_THAT(text("events.csv"),
              HasSubstr(",\"copy\",\"Memcpy HtoD (Pageable -> Device)\",\"0\",\"7\",700000,40000,"
                        "1003,,4096,\"\",\"\"\n"));
}

TEST(Export, TakesATraceWithoutEvents) {
  const TemporaryDirectory directory;
  const Trace trace = read_text("[]", "empty.json");
  export_sqlite(trace, directory.path / "out.db");
  export_csv(trace, directory.path);
  EXPECT_EQ(ask(directory.path / "out.db", "SELECT count(*) FROM named_events", 1),
            std::vector<std::string>{"0"});
  EXPECT_EQ(file_text(directory.path / "kernels.csv"), "name,class,count,us,min_us,max_us\n");
}

}  // namespace
}  // namespace ridge::trace
