#pragma once

// Who may ask a dashboard, and what browsers may do with its answers.

#include <optional>
#include <string>
#include <string_view>

#include "ridge/report/dashboard/http_message.h"

namespace ridge {

struct DashboardDoor {
  std::string address = "127.0.0.1";
  int port = 0;
  std::string token;  // empty: none is needed
};

// 32 hexadecimal digits from the system's source of random numbers.
std::string random_token();
// Whether two texts are equal, in a time that does not tell where they differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// The reply to a request that is not let in. Refused are those that name another host than this
// machine on its own address, which a page of somebody else may have made a browser send (DNS
// rebinding); those of other sites; and those without the token. A token that comes in the address
// goes into a cookie, and the browser is sent on without it.
std::optional<HttpReply> refusal_of(const HttpRequest& request, const DashboardDoor& door);

// Lets browsers load nothing from elsewhere, run nothing but the dashboard's own scripts, and keep
// nothing.
void add_security_headers(HttpReply& reply);

// The same for the page of a profile, which is one file with its scripts inside: it may run them,
// but as a page of nobody (a sandbox), which can ask this server nothing; and the dashboard may
// show it in a frame.
void confine_profile(HttpReply& reply);

}  // namespace ridge
