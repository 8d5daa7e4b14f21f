#include "ridge/study/live_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace ridge {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view live_schema = "ridge-live-1";
constexpr std::size_t max_bytes = std::size_t{1} << 20;  // of a file; ours have some 30 kB
constexpr std::chrono::hours dead_run_kept{1};

fs::path directory_of(const fs::path& store) { return fs::path(store.string() + "-live"); }

std::int64_t unix_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// Puts a file in the place of another, without waiting for the disk: what a loss of power leaves of
// it is of no use to anybody.
bool replace(const fs::path& file, std::string_view text) {
  const fs::path temporary = file.string() + ".tmp";
  const int descriptor =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor < 0) return false;
  const bool complete = write_all(descriptor, text);
  ::close(descriptor);
  if (complete && ::rename(temporary.c_str(), file.c_str()) == 0) return true;
  ::unlink(temporary.c_str());
  return false;
}

// A regular file of moderate size, no link; empty for anything else.
std::string content_of(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return {};
  struct stat status {};
  std::string text;
  if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
      std::cmp_less_equal(status.st_size, max_bytes)) {
    text.resize(static_cast<std::size_t>(status.st_size));
    const ssize_t got = ::read(descriptor, text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  ::close(descriptor);
  return text;
}

// Whether a process holds the lock of a report.
bool is_alive(fs::path report) {
  const int descriptor = ::open(report.replace_extension(".lock").c_str(),
                                O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return false;
  const bool is_held = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0;
  ::close(descriptor);
  return is_held;
}

// The files of a store's runs in progress.
std::vector<std::pair<Uuid, fs::path>> reports_of(const fs::path& store) {
  std::vector<std::pair<Uuid, fs::path>> reports;
  std::error_code fault;
  for (fs::directory_iterator entry(directory_of(store), fault), end; !fault && entry != end;
       entry.increment(fault)) {
    const fs::path& path = entry->path();
    const std::optional<Uuid> uuid = uuid_from(path.stem().string());
    if (path.extension() == ".json" && uuid && path.stem() == to_string(*uuid))
      reports.emplace_back(*uuid, path);
  }
  std::ranges::sort(reports);
  return reports;
}

void remove_report(fs::path report) {
  ::unlink(report.c_str());
  ::unlink(report.replace_extension(".lock").c_str());
}

}  // namespace

LiveRun::LiveRun(const fs::path& store, const Uuid& uuid, Json about) {
  const fs::path directory = directory_of(store);
  ::mkdir(directory.c_str(), 0777);
  remove_dead_live_runs(store, dead_run_kept);
  file_ = directory / (to_string(uuid) + ".json");
  lock_file_ = directory / (to_string(uuid) + ".lock");
  lock_ = ::open(lock_file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (lock_ >= 0 && ::flock(lock_, LOCK_EX | LOCK_NB) != 0) ::close(std::exchange(lock_, -1));
  head_ = {{"schema", live_schema},
           {"uuid", to_string(uuid)},
           {"pid", ::getpid()},
           {"started", unix_ms() / 1000},
           {"about", std::move(about)}};
  write();
}

LiveRun::~LiveRun() {
  if (lock_ < 0) return;
  remove_report(file_);
  ::close(lock_);
  ::rmdir(file_.parent_path().c_str());  // if it is empty
}

bool LiveRun::is_due() const {
  return lock_ >= 0 && std::chrono::steady_clock::now() - written_ >= interval;
}

void LiveRun::step(const LiveStep& step) {
  if (lock_ < 0) return;
  last_ = step;
  add(step);
  if (is_due()) write();
}

void LiveRun::add(const LiveStep& step) {
  open_.step = step.step;
  open_.loss += step.loss;
  open_.seconds += step.seconds;
  open_.slowest = std::max(open_.slowest, step.seconds);
  if (++gathered_ < stride_) return;
  const auto steps = static_cast<double>(gathered_);
  points_.push_back({open_.step, open_.loss / steps, open_.seconds / steps, open_.slowest});
  open_ = {};
  gathered_ = 0;
  if (points_.size() < max_points) return;
  for (std::size_t i = 0; 2 * i + 1 < points_.size(); ++i) {
    const Point a = points_[2 * i], b = points_[2 * i + 1];
    points_[i] = {b.step, (a.loss + b.loss) / 2, (a.seconds + b.seconds) / 2,
                  std::max(a.slowest, b.slowest)};
  }
  points_.resize(points_.size() / 2);
  stride_ *= 2;
}

void LiveRun::write() {
  if (lock_ < 0) return;
  written_ = std::chrono::steady_clock::now();
  Json json = head_;
  json["written_ms"] = unix_ms();
  json["last"] = {{"step", last_.step},
                  {"loss", last_.loss},
                  {"seconds", last_.seconds},
                  {"bytes", last_.bytes},
                  {"power_w", last_.power_w ? Json(*last_.power_w) : Json()}};
  json["stride"] = stride_;
  for (const char* name : {"step", "loss", "seconds", "slowest"}) json[name] = Json::array();
  for (const Point& point : points_) {
    json["step"].push_back(point.step);
    json["loss"].push_back(point.loss);
    json["seconds"].push_back(point.seconds);
    json["slowest"].push_back(point.slowest);
  }
  if (replace(file_, json.dump(-1, ' ', true, Json::error_handler_t::replace))) return;
  remove_report(file_);  // what cannot be kept up would be taken for a run that stands still
  ::close(std::exchange(lock_, -1));
}

std::vector<LiveReport> live_runs(const fs::path& store) {
  std::vector<LiveReport> runs;
  for (const auto& [uuid, path] : reports_of(store)) {
    // The lock first: a run that ends in between has removed its file.
    const bool alive = is_alive(path);
    Json json = Json::parse(content_of(path), nullptr, false);
    if (!json.is_object() || json.value("schema", Json()) != live_schema) continue;
    runs.push_back({.uuid = uuid, .alive = alive, .json = std::move(json)});
  }
  return runs;
}

void remove_dead_live_runs(const fs::path& store, std::chrono::seconds older_than) {
  for (const auto& [uuid, path] : reports_of(store)) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) continue;
    const auto age = std::chrono::seconds(unix_ms() / 1000 - status.st_mtim.tv_sec);
    if (age >= older_than && !is_alive(path)) remove_report(path);
  }
}

}  // namespace ridge
