// Asks a monitor over HTTP.
#pragma once

#include <string>
#include <string_view>

#include "base/net/sockets.h"
#include "trainer_bridge/monitor/http_server.h"

namespace feedline {

/// Returns the body with which an HttpServer answers GET `path`. Unless `token` is empty, proves to the server that it
/// knows the token, without sending it (monitor_token.h). Throws Error io_error if the server cannot be reached,
/// refuses the request, or has not answered by `until`. If the server refuses the request, the message is the server's.
std::string http_get(const HttpAddress& address, std::string_view path, std::string_view token, net::Deadline until);

}  // namespace feedline
