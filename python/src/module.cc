// The extension module feedline._feedline. Everything that Python code can do as well is in the package's Python files.
#include "python/src/module.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "feedline/error.h"
#include "feedline/log.h"
#include "python/src/text.h"
#include "tool/commands/run_tool.h"

namespace nb = nanobind;

namespace feedline::python {
namespace {

/// Raises the Python exception feedline.Error with the message, category and place of the C++ exception.
void raise(const Error& error) {
  const Place& place = error.place();
  const auto number = [](int64_t value) { return value < 0 ? nb::object(nb::none()) : nb::object(nb::int_(value)); };
  const auto text = [](const std::string& value) { return value.empty() ? nb::object(nb::none()) : text_of(value); };
  try {
    const nb::object type = nb::module_::import_("feedline._errors").attr("Error");
    const std::string category(name(error.category()));
    const nb::object raised = type(text_of(error.what()), category, text_of(error.message()), text(place.file),
                                   number(place.offset), number(place.record), text(place.feature));
    PyErr_SetObject(type.ptr(), raised.ptr());
  } catch (nb::python_error& failed) {
    failed.restore();
  } catch (const std::exception& failed) {
    PyErr_SetString(PyExc_RuntimeError, failed.what());
  }
}

/// Lines of the library's log on their way to Python. A thread that logs a line does not run Python code for it,
/// because that could wait for the interpreter's lock, or drop the last reference to a loader.
class LogQueue {
 public:
  void put(LogLevel level, std::string_view line) {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(level, line);
    changed_.notify_all();
  }
  /// Waits until there is a line, but at most for `most`. Returns whether there is a line.
  bool wait(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [&] { return !lines_.empty(); });
  }
  std::deque<std::pair<LogLevel, std::string>> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<LogLevel, std::string>> lines_;
};

// A forked child gets a new queue, because the mutex of its parent's queue may be locked in the child. A queue is never
// destroyed.
std::atomic<LogQueue*> log_queue = nullptr;

void begin_log() {
  if (!log_queue.exchange(new LogQueue))
    set_log_sink([](LogLevel level, std::string_view line) { log_queue.load()->put(level, line); });
}

bool wait_for_log(int64_t milliseconds) {
  nb::gil_scoped_release released;
  return log_queue.load()->wait(std::chrono::milliseconds(milliseconds));
}

nb::list take_log() {
  nb::list lines;
  for (const auto& [level, line] : log_queue.load()->take())
    lines.append(nb::make_tuple(std::string(name(level)), text_of(line)));
  return lines;
}

/// Lets the library log to standard error, as the tool does.
void log_to_stderr() { set_log_sink(stderr_log_sink()); }

int run_tool(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  nb::gil_scoped_release released;
  return tool::run_tool(static_cast<int>(arguments.size()), argv.data());
}

}  // namespace
}  // namespace feedline::python

NB_MODULE(_feedline, module) {
  using namespace feedline;
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      python::raise(error);
    }
  });
  python::add_pipeline(module);
  python::add_tensor(module);
  python::add_feeder(module);
  python::add_records(module);
  nb::set_leak_warnings(false);  // daemon threads may hold loaders when the interpreter ends
  module.def("begin_log", python::begin_log);
  module.def("wait_for_log", python::wait_for_log);
  module.def("take_log", python::take_log);
  module.def("log_to_stderr", python::log_to_stderr);
  module.def("run_tool", python::run_tool);
  module.attr("version") = FEEDLINE_VERSION;
}
