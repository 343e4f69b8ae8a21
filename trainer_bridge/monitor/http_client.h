// Asks a monitor.
#pragma once

#include <string>
#include <string_view>

#include "base/net/sockets.h"
#include "trainer_bridge/monitor/http_server.h"

namespace feedline {

/// Returns the body of the answer of an HttpServer to GET `path`. Shows that it knows `token`, unless that is empty, and
/// does not send it (monitor_token.h). Throws Error io_error if the server cannot be reached, refuses, or has not answered
/// by `until`; the message of a refusal is the server's.
std::string http_get(const HttpAddress& address, std::string_view path, std::string_view token, net::Deadline until);

}  // namespace feedline
