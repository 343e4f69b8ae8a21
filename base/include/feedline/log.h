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

/// A callback that gets one line of the log, without the end of the line. Any thread of the library may call it, one
/// call at a time. It must not throw, and must not call feedline.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;

/// Sends the log to `sink` from now on, and returns the previous sink. An empty sink drops every line. Does not return
/// while a call of the previous sink is running. So the caller may afterwards destroy whatever the previous sink refers
/// to. Thread-safe.
///
/// Until the first call, stderr_log_sink() is the sink. The library logs little, and never a line for each record or
/// batch.
FEEDLINE_PUBLIC LogSink set_log_sink(LogSink sink);

/// Returns a sink that writes warnings and errors to standard error, as "feedline: warning: LINE", and drops the rest.
FEEDLINE_PUBLIC LogSink stderr_log_sink();

}  // namespace feedline
