#include "ridge/report/dashboard/door.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "ridge/base/error.h"
#include "ridge/report/dashboard/http_server.h"

namespace ridge {
namespace {

// The page loads its own scripts and styles, asks its own server, and nothing else happens.
constexpr const char* content_policy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
constexpr const char* profile_policy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts";

// Cookies are of a host, whatever the port: each server has its own.
std::string cookie_name(const DashboardDoor& door) {
  return fmt::format("ridge_dashboard_{}", door.port);
}

// Whether a request names this server as one reaches it on this machine.
bool names_this_host(std::string_view host, const DashboardDoor& door) {
  const bool is_six = door.address.find(':') != std::string::npos;
  const std::string port = fmt::format(":{}", door.port);
  return host == (is_six ? "[" + door.address + "]" : door.address) + port ||
         host == "localhost" + port;
}

HttpReply forbidden(std::string text) { return {.status = 403, .body = std::move(text) + "\n"}; }

}  // namespace

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw IoError("the system gives no random numbers: {}", std::strerror(errno));
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

std::optional<HttpReply> refusal_of(const HttpRequest& request, const DashboardDoor& door) {
  if (is_loopback(door.address) && !names_this_host(request.header("host"), door))
    return forbidden("this dashboard answers to the name of this machine alone, 127.0.0.1");
  const std::string_view site = request.header("sec-fetch-site");
  if (request.path != "/" && !site.empty() && site != "same-origin" && site != "none")
    return forbidden("this dashboard answers to its own page alone");
  if (door.token.empty()) return std::nullopt;
  if (equal_in_constant_time(cookie_of(request, cookie_name(door)), door.token))
    return std::nullopt;
  if (!equal_in_constant_time(request.parameter("token"), door.token))
    return forbidden("open the address that ridge dashboard printed, with its token");
  HttpReply reply{.status = 303};
  reply.headers["Location"] = "/";
  reply.headers["Set-Cookie"] =
      fmt::format("{}={}; HttpOnly; SameSite=Strict; Path=/", cookie_name(door), door.token);
  return reply;
}

void add_security_headers(HttpReply& reply) {
  reply.headers["Content-Security-Policy"] = content_policy;
  reply.headers["X-Content-Type-Options"] = "nosniff";
  reply.headers["Referrer-Policy"] = "no-referrer";
  reply.headers["X-Frame-Options"] = "DENY";
  reply.headers["Cross-Origin-Opener-Policy"] = "same-origin";
  reply.headers["Cross-Origin-Resource-Policy"] = "same-origin";
  reply.headers["Cache-Control"] = "no-store";
}

void confine_profile(HttpReply& reply) {
  reply.headers["Content-Security-Policy"] = profile_policy;
  reply.headers["X-Frame-Options"] = "SAMEORIGIN";
  // Browsers refuse a sandbox with a policy about openers (HTML, "Cross-origin opener policies").
  reply.headers.erase("Cross-Origin-Opener-Policy");
}

}  // namespace ridge
