// A store under load: many processes that write while some are killed, and a store of many runs.
//
//   store_load write FILE PROCESSES RUNS SECONDS   each process writes so many runs, while one of
//                                                  them is killed every so many seconds; of a
//                                                  FILE "temporary" nothing is left
//   store_load fill FILE RUNS                      a store of so many runs
//   store_load ask FILE                            how long lists, filters and trends of it take

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/study/store.h"
#include "ridge/study/store_schema.h"
#include "tests/base/temporary_directory.h"
#include "tests/study/made_runs.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

// One process that writes, and says of each run that it is written: after that it may be killed.
class Writer {
 public:
  Writer(fs::path store, fs::path reports, std::int64_t runs)
      : store_(std::move(store)), reports_(std::move(reports)), runs_(runs) {
    start();
  }

  void kill() const { ::kill(pid_, SIGKILL); }
  // Whether there is nothing left to do; one that died goes on where it was.
  bool finished() {
    int status = 0;
    if (done_ || ::waitpid(pid_, &status, WNOHANG) == 0) return done_;
    done_ = WIFEXITED(status);
    if (done_ && WEXITSTATUS(status) != 0) throw Error("a writer failed; see above");
    if (!done_) start();
    return done_;
  }
  std::vector<Uuid> reported() const {
    std::error_code fault;
    const auto bytes = fs::file_size(reports_, fault);
    std::vector<Uuid> uuids(fault ? 0 : bytes / sizeof(Uuid));
    if (uuids.empty()) return uuids;
    const MappedFile file(reports_);
    std::memcpy(uuids.data(), file.bytes().data(), uuids.size() * sizeof(Uuid));
    return uuids;
  }

 private:
  void start() {
    const std::int64_t left = runs_ - std::ssize(reported());
    pid_ = ::fork();
    if (pid_ == 0) ::_exit(write(left));
  }

  int write(std::int64_t left) const {
    try {
      Store store(store_);
      const int reports = ::open(reports_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
      for (; left > 0; --left) {
        RunDocument run = testing::document_of({.seed = left}, {"load"});
        run.uuid = random_uuid();
        store.add(run);
        if (::write(reports, run.uuid.data(), run.uuid.size()) != sizeof(Uuid)) return 1;
      }
      return 0;
    } catch (const std::exception& error) {
      say(fmt::format("a writer: {}", error.what()));
      return 1;
    }
  }

  fs::path store_, reports_;
  std::int64_t runs_;
  pid_t pid_ = -1;
  bool done_ = false;
};

int check(const fs::path& file, const std::vector<Writer>& writers, std::int64_t kills,
          double seconds) {
  Store store(file);
  std::vector<Uuid> kept;
  store.each({}, [&](const RunRow& row) { kept.push_back(row.uuid); });
  std::ranges::sort(kept);
  std::int64_t reported = 0, lost = 0;
  for (const Writer& writer : writers)
    for (const Uuid& uuid : writer.reported()) {
      ++reported;
      lost += std::ranges::binary_search(kept, uuid) ? 0 : 1;
    }
  const std::vector<std::string> faults = store.faults();
  for (const std::string& fault : faults) say(fault);
  say(
      fmt::format("{} runs reported as written, {} in the store, {} lost, {} kills, {} faults; "
                  "{:.1f} s, {:.0f} runs/s",
                  reported, kept.size(), lost, kills, faults.size(), seconds,
                  static_cast<double>(reported) / seconds));
  // Each kill may have met a run that was written and not yet reported.
  const bool extra = std::ssize(kept) > reported + kills;
  if (extra) say("there are more runs in the store than were written");
  return lost == 0 && faults.empty() && !extra ? 0 : 1;
}

int write(const fs::path& file, int processes, std::int64_t runs, double kill_every) {
  if (!make_store(file)) throw Error("{} exists already", file.string());
  std::vector<Writer> writers;
  for (int i = 0; i < processes; ++i)
    writers.emplace_back(file, fs::path(fmt::format("{}.reports{}", file.string(), i)), runs);
  std::mt19937 random(1);
  const auto begin = Clock::now();
  std::int64_t kills = 0;
  for (bool busy = true; busy;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::vector<Writer*> alive;
    for (Writer& writer : writers)
      if (!writer.finished()) alive.push_back(&writer);
    busy = !alive.empty();
    if (!busy || seconds_since(begin) < kill_every * static_cast<double>(kills + 1)) continue;
    alive[random() % alive.size()]->kill();
    ++kills;
  }
  return check(file, writers, kills, seconds_since(begin));
}

testing::MadeRun nth_run(std::int64_t n, std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<const char*> names) {
    return *(names.begin() + random() % names.size());
  };
  testing::MadeRun run{.version = one_of({"v1", "v2", "v3", "v4"}),
                       .dtype = one_of({"fp32", "bf16", "fp16"}),
                       .commit = fmt::format("{:040x}", n / 500),
                       .created = 1'767'225'600 + 20 * n,
                       .batch_size = std::int64_t{1} << (2 + random() % 4),
                       .seed = static_cast<std::int64_t>(random() % 20),
                       .median_seconds = 1e-3 * static_cast<double>(1 + random() % 1000),
                       .peak_bytes = static_cast<std::int64_t>(random() % 4'000'000'000u),
                       .steps = 20};
  if (random() % 3 == 0)
    run.device = "cuda", run.gpu = one_of({"NVIDIA H100 80GB HBM3", "NVIDIA A100"});
  if (random() % 2 == 0) {
    run.workload = one_of({"resnet18", "resnet50", "vit_b_16", "swin_t"});
    run.mode = "inference";
    run.image_size = 224;
  }
  return run;
}

int fill(const fs::path& file, std::int64_t runs) {
  if (!make_store(file)) throw Error("{} exists already", file.string());
  Store store(file);
  std::mt19937 random(1);
  const auto begin = Clock::now();
  std::vector<RunDocument> batch;
  for (std::int64_t n = 0; n < runs; ++n) {
    batch.push_back(testing::document_of(nth_run(n, random)));
    if (n % 10'000 == 0) batch.back().tags = {fmt::format("release-{}", n / 10'000)};
    if (batch.size() < 2000 && n + 1 < runs) continue;
    store.add(batch);
    batch.clear();
  }
  say(fmt::format("{} runs in {:.1f} s, {} bytes", runs, seconds_since(begin),
                  fs::file_size(file)));
  return 0;
}

double processor_seconds() {
  return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

// The best of some repetitions, since others may use the machine; the processor's time beside it.
template <class F>
void time(const char* what, const F& function) {
  double wall = 1e9, processor = 1e9;
  std::size_t found = 0;
  for (int i = 0; i < 5; ++i) {
    const auto begin = Clock::now();
    const double before = processor_seconds();
    found = function();
    wall = std::min(wall, seconds_since(begin));
    processor = std::min(processor, processor_seconds() - before);
  }
  say(fmt::format("{:<74} {:>9} found {:7.3f} s, {:7.3f} s of the processor", what, found, wall,
                  processor));
}

int ask(const fs::path& file) {
  const auto list = [&](const std::string& filter, const std::string& order = "created") {
    return [=, &file] {
      Store store(file);
      return static_cast<std::size_t>(
          store.list({.filter = filter, .order = order, .limit = 50}).total);
    };
  };
  time("list", list(""));
  time("list, sorted by median_seconds", list("", "median_seconds"));
  for (const char* filter :
       {"version=v4 and gpu~H100", "batch_size>=8 or tag=release-7", "not dtype=fp32",
        "median_seconds<0.002", "version~V4", "created>2026-08", "hidden_dim=512",
        "commit~00000001", "tag=release-7", "peak_bytes<1000 and workload=nothing"})
    time(filter, list(filter));
  time("version=v4, sorted by samples_per_second", list("version=v4", "samples_per_second"));
  for (const char* filter :
       {"workload=tiny_llama and version=v4 and dtype=bf16 and batch_size=8 and gpu~H100",
        "workload=tiny_llama and version=v4 and dtype=bf16"})
    time(fmt::format("trend of median_seconds, {}", filter).c_str(),
         [&] { return Store(file).series(filter, "median_seconds").size(); });
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  const TemporaryDirectory temporary;
  if (arguments.size() == 5 && arguments[0] == "write")
    return write(arguments[1] == "temporary" ? temporary.path / "runs.db" : fs::path(arguments[1]),
                 std::stoi(arguments[2]), std::stoll(arguments[3]), std::stod(arguments[4]));
  if (arguments.size() == 3 && arguments[0] == "fill")
    return fill(arguments[1], std::stoll(arguments[2]));
  if (arguments.size() == 2 && arguments[0] == "ask") return ask(arguments[1]);
  say("store_load write FILE PROCESSES RUNS SECONDS | fill FILE RUNS | ask FILE");
  return 2;
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  try {
    return ridge::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    ridge::say(error.what());
    return 1;
  }
}
