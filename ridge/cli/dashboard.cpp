// `ridge dashboard`: the runs of a store in a browser.

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "ridge/base/error.h"
#include "ridge/base/ranges.h"
#include "ridge/base/units.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/terminal.h"
#include "ridge/report/dashboard/dashboard.h"
#include "ridge/report/dashboard/dashboard_page.h"
#include "ridge/report/dashboard/http_server.h"
#include "ridge/study/store_file.h"

extern char** environ;

namespace ridge {
namespace {

constexpr std::int64_t usual_port = 8321, last_port = 65535, most_exported = 20'000;

struct DashboardRequest {
  std::string store, listen, token, directory, filter;
  std::int64_t port = usual_port;
  std::optional<std::int64_t> limit;
  bool open = false;
};

// Readable when the user ends the program: from here on the signals do nothing else, on this thread
// and those that it starts.
class EndSignals {
 public:
  EndSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM}) {
      ::signal(signal, SIG_DFL);  // one that a shell has us ignore would never come
      sigaddset(&signals, signal);
    }
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    descriptor_ = ::signalfd(-1, &signals, SFD_CLOEXEC);
    if (descriptor_ < 0) throw IoError("cannot wait for signals: {}", std::strerror(errno));
  }
  ~EndSignals() { ::close(descriptor_); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  int descriptor() const { return descriptor_; }
  bool came() const {
    pollfd waited{.fd = descriptor_, .events = POLLIN, .revents = 0};
    return ::poll(&waited, 1, 0) > 0;
  }

 private:
  int descriptor_ = -1;
};

// Shows an address in the user's browser, which outlives us. Whether there is a program for that.
bool open_in_browser(std::string address) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  for (const int descriptor : {0, 1, 2})
    ::posix_spawn_file_actions_addopen(&files, descriptor, "/dev/null", O_RDWR, 0);
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  std::string program = "xdg-open";
  char* const words[] = {program.data(), address.data(), nullptr};
  pid_t pid = 0;
  const int fault = ::posix_spawnp(&pid, words[0], &files, &attributes, words, environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  return fault == 0;
}

// "http://127.0.0.1:8321/", with the token where one is needed. Who listens on all addresses is
// reached under this machine's name.
std::string url_of(const DashboardDoor& door) {
  std::string host =
      door.address.find(':') == std::string::npos ? door.address : "[" + door.address + "]";
  if (door.address == "0.0.0.0" || door.address == "::") {
    char name[256] = "localhost";
    ::gethostname(name, sizeof name - 1);
    host = name;
  }
  return fmt::format("http://{}:{}/{}", host, door.port,
                     door.token.empty() ? "" : "?token=" + door.token);
}

void check_token(const std::string& token) {
  constexpr std::size_t least = 8, most = 256;
  const bool is_plain = std::ranges::all_of(token, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
  });
  if (!is_plain || token.size() < least || token.size() > most)
    throw UsageError("--token has {} to {} letters, digits, - and _", least, most);
}

int serve(const DashboardRequest& request, const std::filesystem::path& store) {
  DashboardDoor door{.token = request.token};
  if (!request.listen.empty())
    door.address = request.listen == "localhost" ? "127.0.0.1" : request.listen;
  if (!door.token.empty()) check_token(door.token);
  const EndSignals signals;
  Dashboard dashboard(store, [&] { return signals.came(); });
  HttpServer server(door.address, static_cast<int>(request.port),
                    [&](const HttpRequest& asked) { return dashboard.answer(asked, door); });
  door.port = server.port();
  if (!is_loopback(door.address) && door.token.empty()) door.token = random_token();
  Terminal terminal;
  const std::string url = url_of(door);
  terminal.line(fmt::format("{} at {}", store.string(), url));
  if (!is_loopback(door.address))
    terminal.line(
        "Whoever can reach this address and knows the token sees all runs; nothing is "
        "encrypted");
  terminal.line("Ctrl-C ends it");
  if (request.open && !open_in_browser(url))
    terminal.line("There is no xdg-open here: open the address in a browser");
  server.run(signals.descriptor());
  return 0;
}

int export_page(const DashboardRequest& request, const std::filesystem::path& store) {
  DashboardExport wanted{.filter = request.filter};
  if (request.limit) wanted.limit = *request.limit;
  Terminal terminal;
  terminal.busy("Reading the store...");
  Dashboard dashboard(store);
  const DashboardExported written = export_dashboard(dashboard, request.directory, wanted);
  terminal.line(fmt::format("Wrote {}/index.html ({}): {}{}", request.directory,
                            format_bytes(written.bytes), counted(written.runs, "run"),
                            written.reports > 0 ? ", and " + counted(written.reports, "report") +
                                                      " of their profiles beside it"
                                                : ""));
  if (written.reports_left_out > 0)
    terminal.line(fmt::format("{} of older runs would have been too much: choose by --filter",
                              counted(written.reports_left_out, "report")));
  if (written.runs < written.total)
    terminal.line(
        fmt::format("These are the newest of {}; --limit N exports others, and --filter "
                    "chooses",
                    format_count(written.total)));
  return 0;
}

int dashboard(const DashboardRequest& request) {
  const bool exports = !request.directory.empty();
  check_range("port", request.port, 0, last_port);
  if (request.limit) check_range("limit", *request.limit, 1, most_exported);
  if (exports && (!request.listen.empty() || !request.token.empty() || request.open))
    throw UsageError(
        "--export writes a page and serves nothing: leave out --listen, --token, --open");
  if (!exports && (request.limit || !request.filter.empty()))
    throw UsageError("--filter and --limit say what --export DIR writes; the page has a filter");
  const std::filesystem::path store = existing_store_file(request.store);
  return exports ? export_page(request, store) : serve(request, store);
}

}  // namespace

void add_dashboard_command(Command program, Action& action) {
  const Command command =
      program.add_subcommand("dashboard", "Look at kept runs, and runs in progress, in a browser");
  const auto request = std::make_shared<DashboardRequest>();
  add_value(command, "--store", request->store,
            "Show this store (default: $RIDGE_STORE, else .ridge/runs.db here or above)")
      .type_name("FILE");
  add_value(command, "--port", request->port, "Listen on this port; 0 takes any that is free")
      .type_name("N");
  add_value(command, "--listen", request->listen,
            "Listen on this address (default: 127.0.0.1); any but this machine's own needs a token")
      .type_name("ADDRESS");
  add_value(command, "--token", request->token,
            "Let in those who know this token (default on other addresses: a random one)")
      .type_name("TOKEN");
  command.add_flag("--open", request->open, "Open the page in a browser");
  add_value(command, "--export", request->directory,
            "Write the page into this directory instead, for readers without a server")
      .type_name("DIR");
  add_value(command, "--filter", request->filter, "Export the runs for which this holds")
      .type_name("FILTER");
  add_value(command, "--limit", request->limit, "Export the newest N of them (default: 500)")
      .type_name("N");
  command.footer(
      R"(The page lists, filters, compares and draws the runs of a store, and shows those in progress that
will be kept. It changes nothing.

Examples:
  ridge dashboard --open
  ridge dashboard --store team.db --port 0
  ridge dashboard --listen 0.0.0.0
  ridge dashboard --export public --filter tag=release-1)");
  command.callback([request, &action] { action = [request] { return dashboard(*request); }; });
}

}  // namespace ridge
