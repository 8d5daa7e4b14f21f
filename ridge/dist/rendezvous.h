#pragma once

// Where the ranks of a run leave what the others have to know before they can reach each other: a
// few short texts under names, kept by one process and asked for over TCP.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ridge {

struct HostAndPort {
  std::string host;  // a name or an address
  int port = 0;
  bool operator==(const HostAndPort&) const = default;
};

// Keeps what is left with it for as long as it lives, on a thread of its own.
class RendezvousServer {
 public:
  // Listens on this address alone; port 0 takes any that is free. IoError, with the reason, if it
  // cannot.
  explicit RendezvousServer(const HostAndPort& at);
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  int port() const;
  // What was left under a name; nothing if nobody has left it by now.
  std::optional<std::string> left(std::string_view name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What a rank asks the server for. Each call makes a connection of its own; RankError, here and
// below, if nobody answers for so long.
class Rendezvous {
 public:
  Rendezvous(HostAndPort server, std::chrono::milliseconds patience)
      : server_(std::move(server)), patience_(patience) {}

  // Leaves a text of any bytes under a name without spaces.
  void leave(std::string_view name, std::string_view text) const;
  // Waits until somebody has left it.
  std::string find(std::string_view name) const;
  // The address by which this machine reaches the server, and so by which others reach it.
  std::string own_address() const;

 private:
  HostAndPort server_;
  std::chrono::milliseconds patience_;
};

}  // namespace ridge
