#include "ridge/report/dashboard/http_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <exception>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <utility>

namespace ridge {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using Fault = boost::system::error_code;
using Parser = http::request_parser<http::empty_body>;

constexpr std::size_t max_waiting_bytes = std::size_t{64} << 10;  // that a client may send ahead
constexpr std::size_t bytes_at_once = 4096;
constexpr std::chrono::milliseconds farewell_time{1000};
constexpr std::chrono::milliseconds pause_without_descriptors{100};
constexpr std::chrono::seconds heartbeat{15};

// What a program that we start must not inherit.
void keep_from_children(int descriptor) { ::fcntl(descriptor, F_SETFD, FD_CLOEXEC); }

tcp::acceptor listening(asio::io_context& io, const std::string& address, int port) {
  Fault fault;
  const tcp::endpoint place(asio::ip::make_address(address, fault),
                            static_cast<std::uint16_t>(port));
  if (fault)
    throw UsageError("{} is no address to listen on: give one such as 127.0.0.1, ::1 or 0.0.0.0",
                     address);
  tcp::acceptor acceptor(io);
  acceptor.open(place.protocol(), fault);
  if (!fault) acceptor.set_option(asio::socket_base::reuse_address(true), fault);
  if (!fault) acceptor.bind(place, fault);
  if (!fault) acceptor.listen(asio::socket_base::max_listen_connections, fault);
  if (fault == asio::error::address_in_use)
    throw IoError(
        "port {} of {} is in use, perhaps by another dashboard: give another with --port, "
        "or --port 0 for any that is free",
        port, address);
  if (fault) throw IoError("cannot listen on port {} of {}: {}", port, address, fault.message());
  keep_from_children(acceptor.native_handle());
  return acceptor;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// Which type Beast's own is depends on its version.
std::string_view plain(beast::string_view text) { return {text.data(), text.size()}; }

// HttpFault for a request that is not served.
HttpRequest request_of(const Parser& parser, const HttpSettings& settings) {
  const auto& head = parser.get();
  if (head.method() != http::verb::get && head.method() != http::verb::head)
    throw HttpFault(405, "this server is asked by GET and HEAD; nothing can be changed");
  if (head.target().size() > settings.target_bytes) throw HttpFault(414, "the address is too long");
  if (std::distance(head.begin(), head.end()) > static_cast<std::ptrdiff_t>(settings.headers))
    throw HttpFault(431, "the request has too many headers");
  if (head.count(http::field::host) > 1) throw HttpFault(400, "the request names two hosts");
  if (head.count(http::field::transfer_encoding) > 0 || parser.content_length().value_or(0) > 0)
    throw HttpFault(413, "this server takes no content");
  HttpRequest request;
  request.method = plain(head.method_string());
  read_target(request, plain(head.target()));
  for (const auto& field : head)
    request.headers.emplace(lower_case(plain(field.name_string())), plain(field.value()));
  return request;
}

// What to say to a client whose head Beast refused; none if it is gone, or was too slow.
std::optional<HttpFault> fault_of(const Fault& fault, const Parser& parser,
                                  const beast::flat_buffer& unread) {
  if (fault == http::error::end_of_stream || fault == http::error::partial_message)
    return std::nullopt;
  // Without a method its first line has no end yet: it is the address that is too long.
  if (fault == http::error::header_limit || fault == http::error::buffer_overflow)
    return HttpFault(parser.get().method_string().empty() ? 414 : 431,
                     "the head of the request is too long");
  if (fault == http::error::bad_version) {
    std::string_view line(static_cast<const char*>(unread.data().data()), unread.size());
    line = line.substr(0, line.find("\r\n"));
    const bool has_two_blanks = std::ranges::count(line, ' ') == 2;
    if (has_two_blanks && line.find(" HTTP/") != std::string_view::npos)
      return HttpFault(505, "this server understands HTTP/1.1");
  }
  if (fault.category() == http::make_error_code(http::error::bad_method).category())
    return HttpFault(400, "this is no request of HTTP");
  return std::nullopt;
}

HttpReply refusal(const HttpFault& fault) {
  HttpReply reply{.status = fault.status, .body = std::string(fault.what()) + "\n"};
  reply.headers["X-Content-Type-Options"] = "nosniff";
  if (fault.status == 405) reply.headers["Allow"] = "GET, HEAD";
  return reply;
}

}  // namespace

// Everything but the workers runs on the thread that is in run().
class HttpServer::Listener {
 public:
  Listener(const std::string& address, int port, HttpHandler handler, HttpSettings settings)
      : handler_(std::move(handler)),
        settings_(settings),
        acceptor_(listening(io_, address, port)),
        pause_(io_) {}

  int port() const { return acceptor_.local_endpoint().port(); }

  void run(int stop);

 private:
  class Connection;

  void accept();
  void make_room();
  HttpReply reply_to(const HttpRequest& request) const {
    try {
      return handler_(request);
    } catch (const std::exception& error) {
      return {.status = 500, .body = fmt::format("{}\n", error.what())};
    }
  }

  asio::io_context io_{1};
  HttpHandler handler_;
  HttpSettings settings_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  std::optional<asio::thread_pool> workers_;
  std::set<std::shared_ptr<Connection>> connections_;
  std::size_t streams_ = 0;  // of events, among them
};

// One client: it is read, a worker computes the reply, that is written, and so on. What waits for
// the client or for a worker keeps the object alive.
class HttpServer::Listener::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Listener& server, tcp::socket socket)
      : server_(server), stream_(std::move(socket)), next_events_(stream_.get_executor()) {}

  void begin() { await_request(); }

  // Closes it, whatever it is waiting for.
  void end() {
    if (is_over_) return;
    is_over_ = true;
    if (events_) --server_.streams_;
    next_events_.cancel();
    stream_.close();
    server_.connections_.erase(shared_from_this());
  }

  // Since when it has been waiting for its client; none while it computes or streams.
  std::optional<Clock::time_point> waiting_since() const {
    return is_busy_ || events_ ? std::nullopt : std::optional(since_);
  }

 private:
  void await_request() {
    since_ = Clock::now();
    if (buffer_.size() > 0) return read_head();  // it was sent ahead
    stream_.expires_after(server_.settings_.idle_time);
    stream_.async_read_some(buffer_.prepare(bytes_at_once),
                            [self = shared_from_this()](const Fault& fault, std::size_t count) {
                              if (fault) return self->end();
                              self->buffer_.commit(count);
                              self->read_head();
                            });
  }

  void read_head() {
    since_ = Clock::now();
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(server_.settings_.head_bytes));
    parser_->body_limit(std::numeric_limits<std::uint64_t>::max());  // see request_of()
    stream_.expires_after(server_.settings_.head_time);
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](const Fault& fault, std::size_t) { self->take_head(fault); });
  }

  void take_head(const Fault& fault) {
    // After what cannot be understood, nobody knows where the next request begins.
    keep_alive_ = false;
    if (fault) {
      const auto known = fault_of(fault, *parser_, buffer_);
      return known ? send(refusal(*known), true) : end();
    }
    try {
      HttpRequest request = request_of(*parser_, server_.settings_);
      keep_alive_ = parser_->get().keep_alive();
      answer(std::move(request));
    } catch (const HttpFault& known) {
      send(refusal(known), true);
    }
  }

  void answer(HttpRequest request) {
    is_busy_ = true;
    asio::post(*server_.workers_, [self = shared_from_this(), request = std::move(request)] {
      HttpReply reply = self->server_.reply_to(request);
      asio::post(self->server_.io_,
                 [self, with_body = request.method == "GET", reply = std::move(reply)]() mutable {
                   self->is_busy_ = false;
                   self->send(std::move(reply), with_body);
                 });
    });
  }

  void send(HttpReply reply, bool with_body) {
    if (is_over_) return;
    if (reply.events && with_body && server_.streams_ >= server_.settings_.streams)
      reply = refusal(HttpFault(503, "too many pages look at runs in progress; close some"));
    const bool is_stream = bool(reply.events);  // which ends with its connection
    keep_alive_ = keep_alive_ && !is_stream;
    if (is_stream && with_body) {
      ++server_.streams_;
      events_ = std::move(reply.events);
    }
    response_.emplace(static_cast<http::status>(reply.status), 11);
    response_->set(http::field::content_type, reply.type);
    if (!is_stream) response_->content_length(reply.body.size());
    for (const auto& [name, value] : reply.headers) response_->set(name, value);
    response_->keep_alive(keep_alive_);
    if (with_body) response_->body() = std::move(reply.body);
    serializer_.emplace(*response_);
    write();
  }

  void write() {
    since_ = Clock::now();
    stream_.expires_after(server_.settings_.stall_time);  // renewed while something goes out
    http::async_write_some(stream_, *serializer_,
                           [self = shared_from_this()](const Fault& fault, std::size_t) {
                             if (fault) return self->end();
                             if (self->serializer_->is_done()) return self->written();
                             self->write();
                           });
  }

  void written() {
    serializer_.reset();
    response_.reset();
    if (events_) {
      stream_.expires_never();
      watch();
      return await_events();
    }
    if (keep_alive_) return await_request();
    // Closed at once, a reply could be lost to a client that is still sending.
    Fault ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(farewell_time);
    watch();
  }

  // Reads what nobody wants to know, until the client closes.
  void watch() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(bytes_at_once),
                            [self = shared_from_this()](const Fault& fault, std::size_t) {
                              if (fault) return self->end();
                              self->watch();
                            });
  }

  void await_events() {
    next_events_.expires_after(server_.settings_.events_interval);
    next_events_.async_wait([self = shared_from_this()](const Fault& fault) {
      if (!fault && !self->is_over_) self->ask_for_events();
    });
  }

  void ask_for_events() {
    asio::post(*server_.workers_, [self = shared_from_this()] {
      std::string text;
      try {
        text = self->events_();
      } catch (const std::exception& error) {
        text = fmt::format("event: fault\ndata: {}\n\n", error.what());
      }
      asio::post(self->server_.io_,
                 [self, text = std::move(text)]() mutable { self->send_events(std::move(text)); });
    });
  }

  void send_events(std::string text) {
    if (is_over_) return;
    // Of a client that left without a word one learns by writing.
    if (text.empty() && Clock::now() - since_ > heartbeat) text = ": still here\n\n";
    if (text.empty()) return await_events();
    since_ = Clock::now();
    out_ = std::move(text);
    stream_.expires_after(server_.settings_.stall_time);  // of the write: watch() is reading
    asio::async_write(stream_, asio::buffer(out_),
                      [self = shared_from_this()](const Fault& fault, std::size_t) {
                        if (fault) return self->end();
                        self->await_events();
                      });
  }

  Listener& server_;
  beast::tcp_stream stream_;
  asio::steady_timer next_events_;
  beast::flat_buffer buffer_{max_waiting_bytes};
  std::optional<Parser> parser_;
  std::optional<http::response<http::string_body>> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  std::function<std::string()> events_;  // of a stream
  std::string out_;
  Clock::time_point since_ = Clock::now();  // when it began to wait, or bytes went out
  bool keep_alive_ = false, is_busy_ = false, is_over_ = false;
};

void HttpServer::Listener::run(int stop) {
  asio::posix::stream_descriptor ended(io_, ::dup(stop));
  ended.async_wait(asio::posix::stream_descriptor::wait_read, [this](const Fault&) { io_.stop(); });
  workers_.emplace(settings_.workers);
  accept();
  io_.run();
  workers_->stop();
  workers_->join();
  while (!connections_.empty()) (*connections_.begin())->end();
}

void HttpServer::Listener::accept() {
  acceptor_.async_accept([this](const Fault& fault, tcp::socket socket) {
    if (fault) {  // no descriptor is left, or the client has gone already
      make_room();
      pause_.expires_after(pause_without_descriptors);
      pause_.async_wait([this](const Fault&) { accept(); });
      return;
    }
    keep_from_children(socket.native_handle());
    if (connections_.size() >= settings_.connections) make_room();
    if (connections_.size() < settings_.connections) {
      const auto connection = std::make_shared<Connection>(*this, std::move(socket));
      connections_.insert(connection);
      connection->begin();
    }
    accept();
  });
}

// Closes the connection that has been waiting for its client for the longest time.
void HttpServer::Listener::make_room() {
  std::shared_ptr<Connection> idlest;
  for (const auto& connection : connections_)
    if (const auto since = connection->waiting_since();
        since && (!idlest || since < idlest->waiting_since()))
      idlest = connection;
  if (idlest) idlest->end();
}

HttpServer::HttpServer(const std::string& address, int port, HttpHandler handler,
                       HttpSettings settings)
    : listener_(std::make_unique<Listener>(address, port, std::move(handler), settings)) {}

HttpServer::~HttpServer() = default;

int HttpServer::port() const { return listener_->port(); }

void HttpServer::run(int stop) { listener_->run(stop); }

bool is_loopback(std::string_view address) {
  Fault fault;
  const auto known = asio::ip::make_address(std::string(address), fault);
  return !fault && known.is_loopback();
}

}  // namespace ridge
