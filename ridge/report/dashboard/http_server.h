#pragma once

// A server of HTTP for a few users on one machine. One thread waits for all connections, so that a
// client that is slow, or says nothing, costs a descriptor and delays nobody; a few others compute
// replies. There is no TLS.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ridge/report/dashboard/http_message.h"

namespace ridge {

struct HttpSettings {
  HttpLimits limits = {};
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

  int port() const { return port_; }
  // Serves until the descriptor `stop` can be read; connections end then at once.
  void run(int stop);

 private:
  struct Connection;
  struct Result {
    std::uint64_t connection = 0;
    std::string text;
    std::function<std::string()> events;
    bool keep_alive = true;
  };
  using Clock = std::chrono::steady_clock;

  void loop(int stop);
  void accept_one();
  void make_room();
  void read_from(Connection& connection);
  void begin_request(Connection& connection);
  void refuse(Connection& connection, const HttpFault& fault);
  void write_to(Connection& connection);
  void look_after(Connection& connection, Clock::time_point now);
  void take_results();
  void submit(Connection& connection, std::function<Result()> job);
  Result answer(const HttpRequest& request) const;
  void work();

  HttpHandler handler_;
  HttpSettings settings_;
  int port_ = 0, listener_ = -1, wake_ = -1;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;

  std::mutex mutex_;  // of what follows
  std::condition_variable has_jobs_;
  std::deque<std::pair<std::uint64_t, std::function<Result()>>> jobs_;
  std::deque<Result> results_;
  bool stopping_ = false;
};

// Whether an address is one of this machine alone: 127.0.0.0/8 or ::1.
bool is_loopback(std::string_view address);

}  // namespace ridge
