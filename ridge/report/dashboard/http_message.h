#pragma once

// Requests and replies of HTTP/1.1 (RFC 9112), as far as a dashboard needs them: GET and HEAD,
// without content.

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/base/error.h"

namespace ridge {

using HttpFields = std::map<std::string, std::string, std::less<>>;

struct HttpRequest {
  std::string method;  // "GET" or "HEAD"
  std::string path;    // as it was sent, without what follows a question mark
  // What followed it, decoded, as UTF-8 without zero bytes; of a name that comes twice the last.
  HttpFields parameters;
  HttpFields headers;  // under names in lower case
  bool keep_alive = true;

  // Empty if there is none.
  std::string_view parameter(std::string_view name) const;
  std::string_view header(std::string_view name) const;
};

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  HttpFields headers = {};
  // Of a stream of events, which has no end: called every now and then for what is new, as
  // text/event-stream has it, or nothing. Calls follow one another, on any thread.
  std::function<std::string()> events = {};
};

// A request that cannot be answered; the reply has the status and the message.
struct HttpFault : Error {
  HttpFault(int code, const std::string& message) : Error(message), status(code) {}
  int status;
};

struct HttpLimits {
  std::size_t target_bytes = 8192, head_bytes = 16384, headers = 64;
};

// The size of the head that `text` begins with, its empty line included; none if that has not come
// yet. HttpFault (431) if it is larger than allowed.
std::optional<std::size_t> http_head_size(std::string_view text, const HttpLimits& limits = {});
// HttpFault: 400 for what is no request, 405 for another method, 413 for content, 414, 431, 505.
HttpRequest http_request_of(std::string_view head, const HttpLimits& limits = {});

// A reply as it is sent; of HEAD, without its body.
std::string http_text_of(const HttpReply& reply, bool keep_alive, bool with_body);

// Text with %20 and + decoded; HttpFault (400) for what is no such text.
std::string percent_decoded(std::string_view text);

// A cookie of a request; empty if there is none.
std::string_view cookie_of(const HttpRequest& request, std::string_view name);

}  // namespace ridge
