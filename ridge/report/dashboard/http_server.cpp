#include "ridge/report/dashboard/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

namespace ridge {

namespace {

constexpr std::size_t bytes_at_once = std::size_t{64} << 10;
constexpr std::size_t max_waiting_bytes = std::size_t{64} << 10;  // that a client may send ahead
constexpr std::chrono::milliseconds farewell_time{1000};
constexpr std::chrono::seconds heartbeat{15};
constexpr int tick_ms = 100;

struct AddressList {
  addrinfo* list = nullptr;
  ~AddressList() {
    if (list != nullptr) ::freeaddrinfo(list);
  }
};

int listen_on(const std::string& address, int port) {
  AddressList found;
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found.list) != 0)
    throw UsageError("{} is no address to listen on: give one such as 127.0.0.1, ::1 or 0.0.0.0",
                     address);
  const int listener =
      ::socket(found.list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  if (listener >= 0 && ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      ::bind(listener, found.list->ai_addr, found.list->ai_addrlen) == 0 &&
      ::listen(listener, SOMAXCONN) == 0)
    return listener;
  const int reason = errno;
  if (listener >= 0) ::close(listener);
  if (reason == EADDRINUSE)
    throw IoError(
        "port {} of {} is in use, perhaps by another dashboard: give another with --port, "
        "or --port 0 for any that is free",
        port, address);
  throw IoError("cannot listen on port {} of {}: {}", port, address, std::strerror(reason));
}

int port_of(int listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace

struct HttpServer::Connection {
  enum class State : std::uint8_t {
    reading,  // a head, or nothing yet
    busy,     // a worker computes what to send
    writing,
    streaming,  // between events
    leaving,    // all is sent; what the client still sends is dropped
  };
  explicit Connection(std::uint64_t number, int socket) : id(number), descriptor(socket) {}
  ~Connection() { ::close(descriptor); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void enter(State next) {
    state = next;
    since = Clock::now();
  }
  void send(std::string text, bool keeps) {
    out = std::move(text);
    sent = 0;
    keep_alive = keeps;
    enter(State::writing);
  }
  short wanted() const {
    switch (state) {
      case State::reading:
      case State::leaving:
        return POLLIN;
      case State::writing:
        return POLLOUT;
      case State::streaming:
        return POLLRDHUP;
      case State::busy:
        break;
    }
    return 0;  // of its end poll() tells all the same
  }

  std::uint64_t id;
  int descriptor;
  State state = State::reading;
  Clock::time_point since = Clock::now();  // when the state, or the head, began, or bytes went out
  Clock::time_point last_event = since;
  std::string in, out;
  std::size_t sent = 0;
  bool keep_alive = true, gone = false;
  std::function<std::string()> events;
};

HttpServer::HttpServer(const std::string& address, int port, HttpHandler handler,
                       HttpSettings settings)
    : handler_(std::move(handler)),
      settings_(settings),
      listener_(listen_on(address, port)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  port_ = port_of(listener_);
}

HttpServer::~HttpServer() {
  ::close(listener_);
  ::close(wake_);
}

void HttpServer::run(int stop) {
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < settings_.workers; ++i) workers.emplace_back([this] { work(); });
  loop(stop);
  connections_.clear();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    jobs_.clear();
  }
  has_jobs_.notify_all();
  for (std::thread& worker : workers) worker.join();
}

void HttpServer::loop(int stop) {
  for (;;) {
    std::vector<pollfd> waited{{.fd = stop, .events = POLLIN, .revents = 0},
                               {.fd = wake_, .events = POLLIN, .revents = 0},
                               {.fd = listener_, .events = POLLIN, .revents = 0}};
    std::vector<Connection*> order;
    for (const auto& [id, connection] : connections_) {
      waited.push_back(
          {.fd = connection->descriptor, .events = connection->wanted(), .revents = 0});
      order.push_back(connection.get());
    }
    if (::poll(waited.data(), waited.size(), connections_.empty() ? -1 : tick_ms) < 0 &&
        errno != EINTR)
      throw IoError("cannot wait for connections: {}", std::strerror(errno));
    if (waited[0].revents != 0) return;
    const Clock::time_point now = Clock::now();
    for (std::size_t i = 0; i < order.size(); ++i) {
      const int seen = waited[i + 3].revents;
      if ((seen & (POLLERR | POLLHUP | POLLRDHUP)) != 0 && (seen & POLLIN) == 0)
        order[i]->gone = true;
      else if ((seen & POLLIN) != 0)
        read_from(*order[i]);
      else if ((seen & POLLOUT) != 0)
        write_to(*order[i]);
      look_after(*order[i], now);
    }
    if (waited[1].revents != 0) take_results();
    std::erase_if(connections_, [](const auto& entry) { return entry.second->gone; });
    if (waited[2].revents != 0) accept_one();
  }
}

void HttpServer::accept_one() {
  if (connections_.size() >= settings_.connections) make_room();
  const int descriptor = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (descriptor < 0) {
    // Without descriptors left, the listener would be ready again at once.
    if (errno == EMFILE || errno == ENFILE) make_room();
    return;
  }
  if (connections_.size() >= settings_.connections) {
    ::close(descriptor);
    return;
  }
  const std::uint64_t id = next_id_++;
  connections_.emplace(id, std::make_unique<Connection>(id, descriptor));
}

// Closes the connection that has been waiting for its client for the longest time.
void HttpServer::make_room() {
  using State = Connection::State;
  auto idlest = connections_.end();
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    const State state = it->second->state;
    if (state == State::busy || state == State::streaming) continue;
    if (idlest == connections_.end() || it->second->since < idlest->second->since) idlest = it;
  }
  if (idlest != connections_.end()) connections_.erase(idlest);
}

void HttpServer::read_from(Connection& connection) {
  char buffer[4096];
  const ssize_t got = ::recv(connection.descriptor, buffer, sizeof buffer, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    connection.gone = true;
    return;
  }
  if (connection.state == Connection::State::leaving) return;
  if (connection.in.empty()) connection.since = Clock::now();
  connection.in.append(buffer, static_cast<std::size_t>(got));
  if (connection.in.size() > max_waiting_bytes) connection.gone = true;
  begin_request(connection);
}

// Begins to answer the request that stands first, if it is all there.
void HttpServer::begin_request(Connection& connection) {
  try {
    const std::optional<std::size_t> size = http_head_size(connection.in, settings_.limits);
    if (!size) return;
    HttpRequest request =
        http_request_of(std::string_view(connection.in).substr(0, *size), settings_.limits);
    connection.in.erase(0, *size);
    submit(connection, [this, asked = std::move(request)] { return answer(asked); });
  } catch (const HttpFault& fault) {
    refuse(connection, fault);
  }
}

// After what cannot be understood, nobody knows where the next request begins.
void HttpServer::refuse(Connection& connection, const HttpFault& fault) {
  HttpReply reply{.status = fault.status, .body = std::string(fault.what()) + "\n"};
  reply.headers["X-Content-Type-Options"] = "nosniff";
  if (fault.status == 405) reply.headers["Allow"] = "GET, HEAD";
  connection.in.clear();
  connection.send(http_text_of(reply, false, true), false);
}

HttpServer::Result HttpServer::answer(const HttpRequest& request) const {
  HttpReply reply;
  try {
    reply = handler_(request);
  } catch (const std::exception& error) {
    reply = {.status = 500, .body = fmt::format("{}\n", error.what())};
  }
  const bool with_body = request.method == "GET";
  if (!with_body && reply.events) reply.events = [] { return std::string(); };
  Result result{.text = http_text_of(reply, request.keep_alive, with_body),
                .keep_alive = request.keep_alive && !reply.events};
  if (with_body) result.events = std::move(reply.events);
  return result;
}

void HttpServer::submit(Connection& connection, std::function<Result()> job) {
  connection.enter(Connection::State::busy);
  const std::lock_guard lock(mutex_);
  jobs_.emplace_back(connection.id, std::move(job));
  has_jobs_.notify_one();
}

void HttpServer::work() {
  for (;;) {
    std::pair<std::uint64_t, std::function<Result()>> job;
    {
      std::unique_lock lock(mutex_);
      has_jobs_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    Result result = job.second();
    result.connection = job.first;
    {
      const std::lock_guard lock(mutex_);
      results_.push_back(std::move(result));
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
  }
}

void HttpServer::take_results() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_, &count, sizeof count);
  std::deque<Result> results;
  {
    const std::lock_guard lock(mutex_);
    results.swap(results_);
  }
  const auto streams = static_cast<std::size_t>(std::ranges::count_if(
      connections_, [](const auto& entry) { return bool(entry.second->events); }));
  for (Result& result : results) {
    const auto found = connections_.find(result.connection);
    if (found == connections_.end()) continue;  // the client has left
    Connection& connection = *found->second;
    if (result.events && !connection.events && streams >= settings_.streams) {
      refuse(connection, HttpFault(503, "too many pages look at runs in progress; close some"));
      continue;
    }
    if (result.events) connection.events = std::move(result.events);
    connection.send(std::move(result.text), result.keep_alive);
    write_to(connection);
  }
}

void HttpServer::write_to(Connection& connection) {
  while (connection.sent < connection.out.size()) {
    const std::size_t left = std::min(connection.out.size() - connection.sent, bytes_at_once);
    const ssize_t wrote = ::send(connection.descriptor, connection.out.data() + connection.sent,
                                 left, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (wrote < 0) {
      connection.gone = errno != EAGAIN && errno != EINTR;
      return;
    }
    connection.sent += static_cast<std::size_t>(wrote);
    connection.since = Clock::now();
  }
  connection.out = {};
  if (connection.events) return connection.enter(Connection::State::streaming);
  if (connection.keep_alive) {
    connection.enter(Connection::State::reading);
    if (!connection.in.empty()) begin_request(connection);  // it was sent ahead
    return;
  }
  // Closed at once, a reply could be lost to a client that is still sending.
  ::shutdown(connection.descriptor, SHUT_WR);
  connection.enter(Connection::State::leaving);
}

// Ends what takes too long, and sends events when it is time.
void HttpServer::look_after(Connection& connection, Clock::time_point now) {
  const auto waited = now - connection.since;
  switch (connection.state) {
    case Connection::State::reading:
      connection.gone |=
          waited > (connection.in.empty() ? settings_.idle_time : settings_.head_time);
      return;
    case Connection::State::writing:
      connection.gone |= waited > settings_.stall_time;
      return;
    case Connection::State::leaving:
      connection.gone |= waited > farewell_time;
      return;
    case Connection::State::busy:
      return;
    case Connection::State::streaming:
      break;
  }
  if (waited < settings_.events_interval || connection.gone) return;
  const bool is_quiet = now - connection.last_event > heartbeat;
  if (is_quiet) connection.last_event = now;
  submit(connection, [next = connection.events, is_quiet] {
    Result result{.events = next};
    try {
      result.text = next();
    } catch (const std::exception& error) {
      result.text = fmt::format("event: fault\ndata: {}\n\n", error.what());
    }
    // Of a client that left without a word one learns by writing.
    if (result.text.empty() && is_quiet) result.text = ": still here\n\n";
    return result;
  });
}

bool is_loopback(std::string_view address) {
  const std::string text(address);
  in_addr four{};
  if (::inet_pton(AF_INET, text.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  in6_addr six{};
  return ::inet_pton(AF_INET6, text.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

}  // namespace ridge
