// Decides where the lines of the library's log go.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "feedline/export.h"

namespace feedline {

enum class LogLevel : uint8_t { info, warning, error };

/// Returns the name of the enumerator: "warning".
FEEDLINE_PUBLIC std::string_view name(LogLevel level) noexcept;

/// Takes a line of the log, without a line end. It is called on any thread of the library, one call at a time. It must
/// not throw, and must not call feedline.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;

/// Sends the log to `sink` from now on, and returns the previous sink. An empty sink drops every line. Does not return
/// while a call of the previous sink is running. So what that sink refers to may be destroyed afterwards. Thread-safe.
///
/// The first sink is stderr_log_sink(). The library logs little, and never for a record or a batch.
FEEDLINE_PUBLIC LogSink set_log_sink(LogSink sink);

/// Returns a sink that writes warnings and errors to standard error, as "feedline: warning: LINE", and drops the rest.
FEEDLINE_PUBLIC LogSink stderr_log_sink();

}  // namespace feedline
