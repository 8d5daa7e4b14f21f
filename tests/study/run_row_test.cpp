#include "ridge/study/run_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "ridge/base/error.h"
#include "tests/base/message_of.h"
#include "tests/study/made_runs.h"

namespace ridge {
namespace {

using testing::document_of;
using ::testing::HasSubstr;
using testing::MadeRun;
using testing::record_of;

RunRow row(const MadeRun& run) { return row_of(document_of(run)).row; }

TEST(RunRow, IsReadOffTheRecordAndItsContext) {
  const RunRow run = row({.version = "v4",
                          .dtype = "bf16",
                          .device = "cuda",
                          .gpu = "NVIDIA H100",
                          .median_seconds = 0.5});
  EXPECT_EQ(run.created, 1'790'000'000);
  EXPECT_EQ(run.workload, "tiny_llama");
  EXPECT_EQ(run.mode, "training");
  EXPECT_EQ(run.version, "v4");
  EXPECT_EQ(run.dtype, "bf16");
  EXPECT_EQ(run.device, "cuda");
  EXPECT_EQ(run.batch_size, 8);
  EXPECT_EQ(run.seq_len, 128);
  EXPECT_EQ(run.image_size, std::nullopt);
  EXPECT_EQ(run.median_seconds, 0.5);
  EXPECT_EQ(run.samples_per_second, 16.0);
  EXPECT_EQ(run.tokens_per_second, 2048.0);
  EXPECT_EQ(run.peak_bytes, 1'000'000);
  EXPECT_EQ(run.kernels, 293);
  EXPECT_EQ(run.flops, 8'000'000);
  EXPECT_EQ(run.final_loss, 6.5);
  EXPECT_EQ(run.outcome, "completed");
  EXPECT_EQ(run.cpu, "AMD EPYC");
  EXPECT_EQ(run.cores, 2);
  EXPECT_EQ(run.gpu, "NVIDIA H100");
  EXPECT_EQ(run.gpu_uuid, "GPU-1");
  EXPECT_EQ(run.driver, "580.1");
  EXPECT_EQ(run.libraries, "oneDNN 3.7.0");
  EXPECT_EQ(run.commit, "c0ffee");
  EXPECT_EQ(run.binary, "0123456789abcdef");
  EXPECT_EQ(run.compiler, "gcc 12.2.0");
}

TEST(RunRow, KnowsImagesFromSequences) {
  const RunRow run = row({.image_size = 224});
  EXPECT_EQ(run.image_size, 224);
  EXPECT_EQ(run.seq_len, std::nullopt) << "though the record names one";
  EXPECT_EQ(run.tokens_per_second, std::nullopt) << "0 is none";
  RunDocument chosen_by_the_network = document_of({.image_size = 224});
  chosen_by_the_network.record = [] {
    nlohmann::ordered_json record = record_of({.image_size = 224});
    record["config"]["image_size"] = 0;
    return record.dump();
  }();
  EXPECT_EQ(row_of(chosen_by_the_network).row.image_size, std::nullopt);
  chosen_by_the_network.context = R"({"input_shape": [8, 3, 299, 299]})";
  EXPECT_EQ(row_of(chosen_by_the_network).row.image_size, 299);
  EXPECT_EQ(row_of(chosen_by_the_network).row.seq_len, std::nullopt);
  EXPECT_EQ(row({.diverged = true}).final_loss, std::nullopt);
}

TEST(RunRow, NamesAMachineByWhatDecidesItsSpeed) {
  const std::string one = row({}).machine;
  EXPECT_EQ(one.size(), 16u);
  EXPECT_EQ(row({.version = "v4", .commit = "other", .host = "another"}).machine, one);
  EXPECT_NE(row({.gpu = "NVIDIA H100"}).machine, one);
}

TEST(RunRow, ReadsRecordsThatLackWhatItKnows) {
  const RunRow run =
      row_of({.record = R"({"schema": "ridge-record-2", "timestamp": "2026-01-31T12:00:00Z",
    "workload": 7, "options": [], "performance_summary": {"peak_memory_bytes": 1e300,
    "median_batch_time": "fast", "flops_per_step": 3}})"})
          .row;
  EXPECT_EQ(run.workload, "");
  EXPECT_EQ(run.peak_bytes, std::nullopt);
  EXPECT_EQ(run.median_seconds, std::nullopt);
  EXPECT_EQ(run.flops, std::nullopt);
  EXPECT_EQ(run.created, 1'769'860'800);
}

TEST(RunRow, RefusesWhatIsNoRecord) {
  const auto message = [](const std::string& record, const std::string& context = "{}") {
    return message_of<FormatError>([&] { row_of({.record = record, .context = context}); });
  };
  EXPECT_THAT(message(""), HasSubstr("the record is not JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("the record is no JSON object"));
  EXPECT_THAT(message("{} x"), HasSubstr("not JSON"));
  EXPECT_THAT(message("{\"schema\": \"\xff\"}"), HasSubstr("not JSON"));
  EXPECT_THAT(message("{}"), HasSubstr("none of ridge-record-1"));
  EXPECT_THAT(message(R"({"schema": "ridge-record-1", "timestamp": "now"})"),
              HasSubstr("\"now\", which is no time"));
  const std::string good = record_of({}).dump();
  EXPECT_THAT(message(good, "7"), HasSubstr("the context is no JSON object"));
  EXPECT_EQ(message(good), "nothing was thrown");
  // The stack of a reader is not for a file to choose.
  const std::string deep =
      R"({"schema":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  EXPECT_THAT(message(deep), HasSubstr("nested too deeply"));
}

TEST(RunRow, KeepsHostileText) {
  EXPECT_EQ(stored_text("a\xff\xc3(b"), "a\xEF\xBF\xBD\xEF\xBF\xBD(b");
  EXPECT_EQ(stored_text(std::string("a\0b", 3)),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(stored_text("\x1b[31m'; DROP TABLE runs\n"), "\x1b[31m'; DROP TABLE runs\n");
  nlohmann::ordered_json record = record_of({});
  record["workload"] = std::string("x\0y", 3);
  EXPECT_EQ(row_of({.record = record.dump()}).row.workload, "x\xEF\xBF\xBDy");
}

TEST(RunRow, HasColumnsWithNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const RunColumn& column : run_columns()) {
    EXPECT_TRUE(names.insert(column.name).second) << column.name;
    EXPECT_TRUE(column.alias.empty() || names.insert(column.alias).second) << column.alias;
    EXPECT_EQ(find_run_column(column.name), &column);
  }
  EXPECT_EQ(find_run_column("batch-size")->name, "batch_size");
  EXPECT_EQ(find_run_column("network")->name, "workload");
  EXPECT_EQ(find_run_column(""), nullptr);
}

}  // namespace
}  // namespace ridge
