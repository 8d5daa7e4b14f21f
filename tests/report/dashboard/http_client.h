#pragma once

// A client of plain sockets, which sends what it is told, right or wrong.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

namespace ridge {

class HttpClient {
 public:
  explicit HttpClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  ~HttpClient() {
    if (socket_ >= 0) ::close(socket_);
  }
  HttpClient(HttpClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), got_(std::move(other.got_)) {}
  HttpClient& operator=(HttpClient&& other) noexcept {
    std::swap(socket_, other.socket_);
    got_ = std::move(other.got_);
    return *this;
  }

  // Whether the other side is still there to take it.
  bool send(std::string_view text) const {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  // Whether a text came within ten seconds.
  bool wait_for(std::string_view text) {
    while (got_.find(text) == std::string::npos)
      if (!read_some()) return false;
    return true;
  }
  // What comes until the other side closes.
  const std::string& all() {
    while (read_some()) {
    }
    return got_;
  }
  const std::string& got() const { return got_; }

 private:
  bool read_some() {
    pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 10'000) <= 0) return false;
    char buffer[16384];
    const ssize_t count = ::recv(socket_, buffer, sizeof buffer, 0);
    if (count > 0) got_.append(buffer, static_cast<std::size_t>(count));
    return count > 0;
  }

  int socket_;
  std::string got_;
};

// What a server answers to a text.
inline std::string asked(int port, std::string_view text) {
  HttpClient client(port);
  client.send(text);
  return client.all();
}

}  // namespace ridge
