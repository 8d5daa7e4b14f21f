#pragma once

// What a request asks of the dashboard, and what it answers. Sockets and the text of HTTP are
// http_server.cpp's.

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "ridge/base/error.h"

namespace ridge {

using HttpFields = std::map<std::string, std::string, std::less<>>;

struct HttpRequest {
  std::string method;  // "GET" or "HEAD"
  std::string path;    // as it was sent, without what follows a question mark
  // What followed it, decoded, as UTF-8 without zero bytes; of a name that comes twice the last.
  HttpFields parameters;
  HttpFields headers;  // under names in lower case

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

// Sets the path and the parameters of a request from the target that was sent, such as
// "/api/runs?filter=a%3D1". HttpFault (400) for what is no such target.
void read_target(HttpRequest& request, std::string_view target);

// Text with %20 and + decoded; HttpFault (400) for what is no such text.
std::string percent_decoded(std::string_view text);

// A cookie of a request; empty if there is none.
std::string_view cookie_of(const HttpRequest& request, std::string_view name);

}  // namespace ridge
