// `ridge trace record`: what the machine does while a command runs.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "ridge/base/child_process.h"
#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/ranges.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/gpu/vendor/nvml.h"
#include "ridge/profile/system_events.h"
#include "ridge/profile/system_report.h"
#include "ridge/profile/system_sampler.h"

namespace ridge {
namespace {

constexpr std::int64_t most_interval = 60'000;  // ms

struct RecordRequest {
  std::vector<std::string> words;
  std::string out = "system_trace.json", summary;
  std::int64_t interval = 20;
};

// What a signal handler passes signals on to, and the signal that came before there was something.
// The terminal sends its own to the whole process group, and so to the command too.
volatile std::sig_atomic_t command_id = 0, early_signal = 0;

void pass_on(int signal, siginfo_t* sender, void*) {
  if (sender->si_code > 0) return;
  if (command_id == 0)
    early_signal = signal;
  else
    ::kill(command_id, signal);
}

void keep_signals() {
  struct sigaction action {};
  action.sa_sigaction = pass_on;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
    sigaction(signal, &action, nullptr);
}

void pass_on_signals_to(pid_t command) {
  command_id = command;
  if (early_signal != 0) ::kill(command, early_signal);
}

// Samples all cards of the machine; none where the driver does not tell.
class Cards {
 public:
  explicit Cards(std::chrono::milliseconds interval) {
    try {
      nvml_ = std::make_unique<gpu::Nvml>();
      for (int card = 0; card < nvml_->card_count(); ++card)
        samplers_.push_back(std::make_unique<gpu::CardSampler>(*nvml_, card, interval));
    } catch (const DeviceError&) {  // a machine without cards, or one that is gone
    }
  }
  std::vector<SystemSamples> stop() {
    std::vector<SystemSamples> cards;
    for (std::size_t card = 0; card < samplers_.size(); ++card)
      cards.push_back(samples_of_card(samplers_[card]->stop(),
                                      samplers_.size() > 1 ? fmt::format("GPU {}", card) : "GPU"));
    return cards;
  }

 private:
  std::unique_ptr<gpu::Nvml> nvml_;
  std::vector<std::unique_ptr<gpu::CardSampler>> samplers_;
};

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// What the system says of the command and of all that it waited for, beside what was sampled.
std::string command_text(const RecordedCommand& command, const ChildEnd& end) {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  constexpr std::uint64_t kibibyte = 1024;
  return fmt::format("{}: {} after {}; {} user and {} system; the largest process had {}\n",
                     shortened(printable(command.line), sentence_width), to_string(end),
                     format_duration(1e-9 * static_cast<double>(command.end_ns - command.begin_ns)),
                     format_duration(seconds_of(usage.ru_utime)),
                     format_duration(seconds_of(usage.ru_stime)),
                     format_bytes(static_cast<std::uint64_t>(usage.ru_maxrss) * kibibyte));
}

struct Recorded {
  RecordedCommand command;
  ChildEnd end;
  SystemSamples samples;  // with times since the first
  std::vector<SystemSamples> cards;
};

Recorded run_command(const RecordRequest& request) {
  const std::chrono::milliseconds interval(request.interval);
  // What the command leaves behind becomes ours, and so is known to be of its family.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  SystemSampler sampler({.interval = interval, .family = ::getpid(), .follows_family = true});
  Cards cards(interval);
  Recorded recorded{.command = {.line = shell_line(request.words)}};
  recorded.command.begin_ns = SystemSampler::now_ns();
  keep_signals();
  ChildProcess command({.words = request.words, .shares_output = true, .shares_terminal = true});
  pass_on_signals_to(command.pid());
  recorded.end = command.wait();
  recorded.command.end_ns = SystemSampler::now_ns();
  recorded.samples = sampler.stop();
  recorded.cards = cards.stop();
  const std::int64_t first = recorded.samples.time_ns.front(), now = SystemSampler::now_ns();
  recorded.command.epoch_ns =
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count() -
      (now - first);
  recorded.command.begin_ns -= first;
  recorded.command.end_ns -= first;
  recorded.samples.shift(-first);
  for (SystemSamples& card : recorded.cards) card.shift(-first);
  return recorded;
}

// Tells on standard error, because standard output is the command's.
void tell(const std::string& text) { std::fputs(text.c_str(), stderr); }

void keep(const RecordRequest& request, const Recorded& recorded) {
  const SystemReport report = report_system(recorded.samples, recorded.cards);
  tell("\n" + command_text(recorded.command, recorded.end) + system_text(recorded.samples, report));
  const TraceSize size =
      write_system_trace(request.out, recorded.samples, recorded.cards, recorded.command);
  tell(fmt::format("Wrote {} ({}): ridge trace report reads it, and ui.perfetto.dev\n", request.out,
                   counted(static_cast<std::int64_t>(size.events), "event")));
  if (size.left_out > 0)
    tell(fmt::format("{} were left out beyond {}\n",
                     counted(static_cast<std::int64_t>(size.left_out), "event"),
                     format_bytes(size.bytes)));
  if (request.summary.empty()) return;
  write_text_file(request.summary, system_json(recorded.samples, recorded.cards, report));
  tell(fmt::format("Wrote {}\n", request.summary));
}

int record(const RecordRequest& request) {
  if (request.words.empty())
    throw UsageError("record which command? give it behind --: ridge trace record -- COMMAND");
  check_range("interval", request.interval, 1, most_interval);
  probe_writing(request.out);
  if (!request.summary.empty()) probe_writing(request.summary);
  const Recorded recorded = run_command(request);
  const int code = recorded.end.signal != 0 ? 128 + recorded.end.signal : recorded.end.exit_code;
  try {
    keep(request, recorded);
  } catch (const IoError& error) {
    if (code == 0) throw;
    tell(fmt::format("ridge: {}\n", printable(error.what())));  // the command's failure comes first
  }
  return code;
}

}  // namespace

void add_trace_record(Command trace_command, Action& action) {
  const Command recording = trace_command.add_subcommand(
      "record", "Run a command, and trace what the machine does meanwhile");
  const auto request = std::make_shared<RecordRequest>();
  recording.take_words_behind_dashes(request->words);
  add_value(recording, "--out", request->out,
            "Write the trace to this file, by gzip if it ends in .gz")
      .type_name("FILE")
      .default_text("system_trace.json");
  add_value(recording, "--summary", request->summary, "Write the tables and findings as JSON, too")
      .type_name("FILE");
  add_value(recording, "--interval", request->interval, "Sample every so many milliseconds")
      .type_name("MS")
      .default_text("20");
  recording.footer(
      R"(The command stands behind --. Its output and its exit code are passed on; signals reach it; the
tables go to standard error when it has ended.
Examples:
  ridge trace record -- python train.py --epochs 1
  ridge trace record --out run.json.gz --summary run_summary.json -- make -j8
  ridge trace report system_trace.json)");
  recording.callback([request, &action] { action = [request] { return record(*request); }; });
}

}  // namespace ridge
