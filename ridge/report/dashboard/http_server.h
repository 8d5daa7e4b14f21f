#pragma once

// A server of HTTP/1.1 for a few users on one machine, by Boost.Beast. One thread waits for all
// connections, so that a client that is slow, or says nothing, costs a descriptor and delays
// nobody; a few others compute replies. There is no TLS.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ridge/report/dashboard/http_message.h"

namespace ridge {

struct HttpSettings {
  std::size_t target_bytes = 8192, head_bytes = 16384, headers = 64;
  std::size_t connections = 64;  // at once; a new one then takes the place of the idlest
  std::size_t streams = 16;      // of events; further ones are refused
  std::size_t workers = 4;
  std::chrono::milliseconds head_time{10'000};   // from a head's first byte to its last
  std::chrono::milliseconds idle_time{60'000};   // between requests
  std::chrono::milliseconds stall_time{20'000};  // in which nothing of a reply can be sent
  std::chrono::milliseconds events_interval{500};
};

// Called on any of the workers, at the same time. What it throws becomes a reply with status 500.
using HttpHandler = std::function<HttpReply(const HttpRequest&)>;

class HttpServer {
 public:
  // Listens on an address such as "127.0.0.1" or "::1"; port 0 takes any that is free. UsageError
  // for what is no address; IoError, with the remedy, for a port that is in use.
  HttpServer(const std::string& address, int port, HttpHandler handler, HttpSettings settings = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  // Serves until the descriptor `stop` can be read; connections end then at once.
  void run(int stop);

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

// Whether an address is one of this machine alone: 127.0.0.0/8 or ::1.
bool is_loopback(std::string_view address);

}  // namespace ridge
