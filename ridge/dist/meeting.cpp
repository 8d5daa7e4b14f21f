#include "ridge/dist/meeting.h"

#include <charconv>
#include <optional>
#include <thread>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/text_table.h"
#include "ridge/dist/gloo.h"

namespace ridge {
namespace {

constexpr std::chrono::milliseconds patience{15'000};

int port_from(std::string_view text, std::string_view variable) {
  int port = 0;
  const auto [stop, fault] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (fault != std::errc() || stop != text.data() + text.size() || port < 1 || port > 65534)
    throw UsageError("the environment variable {} is '{}': it must name a port from 1 to 65534",
                     variable, printable(text));
  return port;
}

HostAndPort host_and_port(std::string_view text, std::string_view variable) {
  const auto colon = text.rfind(':');
  if (colon == text.npos || colon == 0)
    throw UsageError("the environment variable {} is '{}': it must be HOST:PORT", variable,
                     printable(text));
  return {std::string(text.substr(0, colon)), port_from(text.substr(colon + 1), variable)};
}

// The port that the first rank left in a file.
int noticed_port(const std::filesystem::path& notice) {
  constexpr std::size_t most_digits = 8;
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!std::filesystem::exists(notice)) {
    if (std::chrono::steady_clock::now() >= end)
      throw RankError("the first rank left no port in {} within {:g} seconds", notice.string(),
                      std::chrono::duration<double>(patience).count());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return port_from(read_text_file(notice, most_digits), notice.string());
}

// What lives as long as the connection does.
struct Connected {
  std::unique_ptr<RendezvousServer> server;
  std::unique_ptr<Communicator> communicator;
};

}  // namespace

Meeting meeting_of(const Rank& rank, const Environment& environment) {
  if (const auto at = environment(rendezvous_variable))
    return {.at = host_and_port(*at, rendezvous_variable), .is_served = true};
  const auto host = environment("MASTER_ADDR"), port = environment("MASTER_PORT");
  if (host && port) {
    const int first = port_from(*port, "MASTER_PORT");
    return {.at = {*host, rank.launcher == "torchrun" ? first + 1 : first}};
  }
  const auto directory = environment("PMIX_SERVER_TMPDIR"), job = environment("PMIX_NAMESPACE");
  if (directory && job && rank.on_host == rank.count)
    return {.at = {"127.0.0.1", 0},
            .notice = std::filesystem::path(*directory) / ("ridge-rendezvous-" + *job)};
  throw UsageError(
      "{} does not tell rank {} where the others are: set MASTER_ADDR to the first rank's host and "
      "MASTER_PORT to a free port there",
      rank.launcher, rank.index);
}

std::shared_ptr<Communicator> meet(const Rank& rank, const Meeting& meeting) {
  const auto connected = std::make_shared<Connected>();
  HostAndPort at = meeting.at;
  const bool serves = rank.index == 0 && !meeting.is_served;
  if (serves) {
    connected->server = std::make_unique<RendezvousServer>(at);
    at.port = connected->server->port();
    if (!meeting.notice.empty()) write_text_file(meeting.notice, std::to_string(at.port));
  } else if (!meeting.notice.empty()) {
    at.port = noticed_port(meeting.notice);
  }
  connected->communicator = connect_by_gloo(rank, Rendezvous(at, patience));
  return {connected, connected->communicator.get()};
}

}  // namespace ridge
