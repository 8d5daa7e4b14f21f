#include "ridge/report/dashboard/http_message.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/study/run_row.h"

namespace ridge {
namespace {

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 303:
      return "See Other";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Internal Server Error";
  }
}

// RFC 9110's token, of which names of headers and methods consist.
bool is_token(std::string_view text) {
  constexpr std::string_view signs = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           signs.find(c) != std::string_view::npos;
  });
}

// Printable ASCII without blanks, as a target has it.
bool is_target(std::string_view text) {
  return text.starts_with('/') &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F; });
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Takes what stands before a separator, or all of it, off the front.
std::string_view take(std::string_view& text, std::string_view separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + separator.size());
  return part;
}

void read_target(HttpRequest& request, std::string_view target, const HttpLimits& limits) {
  if (target.size() > limits.target_bytes) throw HttpFault(414, "the address is too long");
  if (!is_target(target)) throw HttpFault(400, "this is no address of this server");
  std::string_view query = target;
  request.path = take(query, "?");
  while (!query.empty()) {
    std::string_view value = take(query, "&");
    const std::string name = percent_decoded(take(value, "="));
    if (!name.empty()) request.parameters[name] = percent_decoded(value);
  }
}

void read_request_line(HttpRequest& request, std::string_view line, const HttpLimits& limits) {
  const std::string_view method = take(line, " "), target = take(line, " ");
  if (!is_token(method)) throw HttpFault(400, "this is no request of HTTP");
  if (line != "HTTP/1.1" && line != "HTTP/1.0")
    throw HttpFault(line.starts_with("HTTP/") ? 505 : 400, "this server understands HTTP/1.1");
  if (method != "GET" && method != "HEAD")
    throw HttpFault(405, "this server is asked by GET and HEAD; nothing can be changed");
  request.method = method;
  request.keep_alive = line == "HTTP/1.1";
  read_target(request, target, limits);
}

void read_header(HttpRequest& request, std::string_view line) {
  std::string_view value = line;
  const std::string name = lower_case(take(value, ":"));
  const bool has_controls = std::ranges::any_of(
      value, [](char c) { return (c >= 0 && c < ' ' && c != '\t') || c == 0x7F; });
  if (!is_token(name) || line.find(':') == std::string_view::npos || has_controls)
    throw HttpFault(400, "a header of the request is malformed");
  if (!request.headers.emplace(name, trimmed(value)).second && name == "host")
    throw HttpFault(400, "the request names two hosts");
}

}  // namespace

std::string_view HttpRequest::parameter(std::string_view name) const {
  const auto found = parameters.find(name);
  return found == parameters.end() ? std::string_view() : found->second;
}

std::string_view HttpRequest::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : found->second;
}

std::optional<std::size_t> http_head_size(std::string_view text, const HttpLimits& limits) {
  const std::size_t end = text.substr(0, limits.head_bytes).find("\r\n\r\n");
  if (end != std::string_view::npos) return end + 4;
  if (text.size() < limits.head_bytes) return std::nullopt;
  // Without the end of its first line it is the address that is too long.
  const bool in_target = text.find("\r\n") == std::string_view::npos;
  throw HttpFault(in_target ? 414 : 431, "the head of the request is too long");
}

HttpRequest http_request_of(std::string_view head, const HttpLimits& limits) {
  HttpRequest request;
  head.remove_suffix(std::min<std::size_t>(head.size(), 2));  // the empty line
  read_request_line(request, take(head, "\r\n"), limits);
  for (std::size_t count = 0; !head.empty(); ++count) {
    if (count == limits.headers) throw HttpFault(431, "the request has too many headers");
    read_header(request, take(head, "\r\n"));
  }
  const std::string_view length = request.header("content-length");
  if (request.headers.contains("transfer-encoding") || (!length.empty() && length != "0"))
    throw HttpFault(413, "this server takes no content");
  if (lower_case(request.header("connection")).find("close") != std::string::npos)
    request.keep_alive = false;
  return request;
}

std::string http_text_of(const HttpReply& reply, bool keep_alive, bool with_body) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", reply.status,
                                 reason_of(reply.status), reply.type);
  // A stream ends with its connection.
  if (!reply.events) text += fmt::format("Content-Length: {}\r\n", reply.body.size());
  text += fmt::format("Connection: {}\r\n", keep_alive && !reply.events ? "keep-alive" : "close");
  for (const auto& [name, value] : reply.headers) text += fmt::format("{}: {}\r\n", name, value);
  text += "\r\n";
  if (with_body) text += reply.body;
  return text;
}

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const bool has_two = i + 2 < text.size();
    const int high = has_two ? digit(text[i + 1]) : -1, low = has_two ? digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) throw HttpFault(400, "the address has a % without two digits");
    out += static_cast<char>(16 * high + low);
    i += 2;
  }
  return stored_text(out);
}

std::string_view cookie_of(const HttpRequest& request, std::string_view name) {
  std::string_view cookies = request.header("cookie");
  while (!cookies.empty()) {
    std::string_view value = trimmed(take(cookies, ";"));
    if (take(value, "=") == name) return value;
  }
  return {};
}

}  // namespace ridge
