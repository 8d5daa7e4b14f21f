#include "ridge/dist/rendezvous.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "ridge/base/error.h"

namespace ridge {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

// A conversation is a request and a reply. The request is "leave NAME" and a text, or "find NAME";
// the reply is "kept", "none", or "found" and the text. A text is its length and so many bytes.
constexpr std::size_t most_bytes = std::size_t{1} << 20;
constexpr auto time_of_request = std::chrono::seconds(2);
constexpr auto between_questions = std::chrono::milliseconds(10);

void write_text(std::ostream& out, std::string_view text) {
  out << ' ' << text.size() << '\n';
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
}

// Nothing if the other side broke off, or said something else.
std::optional<std::string> read_text(std::istream& in) {
  std::size_t bytes = 0;
  if (!(in >> bytes) || in.get() != '\n' || bytes > most_bytes) return std::nullopt;
  std::string text(bytes, '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(bytes))) return std::nullopt;
  return text;
}

}  // namespace

struct RendezvousServer::State {
  asio::io_context io;
  tcp::acceptor acceptor{io};
  tcp::iostream client;
  mutable std::mutex mutex;  // of texts
  std::map<std::string, std::string, std::less<>> texts;
  std::thread thread;

  void serve() {
    client = tcp::iostream();
    acceptor.async_accept(client.socket(), [this](const boost::system::error_code& fault) {
      if (!fault) answer();
      serve();
    });
  }
  void answer() {
    client.expires_after(time_of_request);
    std::string word, name;
    client >> word >> name;
    if (word == "leave") {
      if (auto text = read_text(client)) {
        const std::lock_guard lock(mutex);
        texts[name] = *std::move(text);
        client << "kept";
      }
    } else if (word == "find") {
      if (const auto found = left(name)) {
        client << "found";
        write_text(client, *found);
      } else {
        client << "none";
      }
    }
    client.flush();
  }
  std::optional<std::string> left(std::string_view name) const {
    const std::lock_guard lock(mutex);
    const auto found = texts.find(name);
    if (found == texts.end()) return std::nullopt;
    return found->second;
  }
};

RendezvousServer::RendezvousServer(const HostAndPort& at) : state_(std::make_unique<State>()) {
  try {
    tcp::resolver resolver(state_->io);
    const tcp::endpoint endpoint =
        *resolver.resolve(at.host, std::to_string(at.port), tcp::resolver::passive).begin();
    state_->acceptor.open(endpoint.protocol());
    state_->acceptor.set_option(tcp::acceptor::reuse_address(true));
    state_->acceptor.bind(endpoint);
    state_->acceptor.listen();
  } catch (const boost::system::system_error& error) {
    throw IoError("cannot listen for other ranks on {}, port {}: {}", at.host, at.port,
                  error.code().message());
  }
  state_->serve();
  state_->thread = std::thread([this] { state_->io.run(); });
}

RendezvousServer::~RendezvousServer() {
  state_->io.stop();
  state_->thread.join();
}

std::optional<std::string> RendezvousServer::left(std::string_view name) const {
  return state_->left(name);
}

int RendezvousServer::port() const { return state_->acceptor.local_endpoint().port(); }

namespace {

// Tries again until `ask` gives something: there may be no server yet.
template <class Ask>
auto until_answered(const HostAndPort& server, std::chrono::milliseconds patience,
                    std::string_view wanted, const Ask& ask) {
  const auto end = Clock::now() + patience;
  for (;;) {
    tcp::iostream stream;
    stream.expires_after(time_of_request);
    stream.connect(server.host, std::to_string(server.port));
    const bool connected = static_cast<bool>(stream);
    if (connected)
      if (auto answer = ask(stream)) return *answer;
    if (Clock::now() >= end) {
      const double seconds = std::chrono::duration<double>(patience).count();
      if (connected)
        throw RankError(
            "no rank left '{}' at {}, port {}, within {:g} seconds: have all ranks been "
            "started?",
            wanted, server.host, server.port, seconds);
      throw RankError(
          "nobody answered at {}, port {}, within {:g} seconds: the first rank has to "
          "be reached there",
          server.host, server.port, seconds);
    }
    std::this_thread::sleep_for(between_questions);
  }
}

}  // namespace

void Rendezvous::leave(std::string_view name, std::string_view text) const {
  until_answered(server_, patience_, name, [&](tcp::iostream& stream) -> std::optional<bool> {
    stream << "leave " << name;
    write_text(stream, text);
    stream.flush();
    std::string word;
    stream >> word;
    if (word != "kept") return std::nullopt;
    return true;
  });
}

std::string Rendezvous::find(std::string_view name) const {
  return until_answered(server_, patience_, name,
                        [&](tcp::iostream& stream) -> std::optional<std::string> {
                          stream << "find " << name << '\n' << std::flush;
                          std::string word;
                          stream >> word;
                          if (word != "found") return std::nullopt;
                          return read_text(stream);
                        });
}

std::string Rendezvous::own_address() const {
  return until_answered(server_, patience_, "an address",
                        [](tcp::iostream& stream) -> std::optional<std::string> {
                          return stream.socket().local_endpoint().address().to_string();
                        });
}

}  // namespace ridge
