// The extension module feedline._feedline. Everything that Python code can do as well is in the package's Python files.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/device.h"
#include "feedline/error.h"
#include "feedline/log.h"
#include "python/src/feeder.h"
#include "python/src/pipeline.h"
#include "python/src/records.h"
#include "python/src/tensor.h"
#include "tool/commands/run_tool.h"

namespace nb = nanobind;

namespace feedline::python {
namespace {

/// Raises feedline.Error, whose arguments are those of the C++ exception.
void raise(const Error& error) {
  const Place& place = error.place();
  const auto number = [](int64_t value) { return value < 0 ? nb::object(nb::none()) : nb::object(nb::int_(value)); };
  const auto text = [](const std::string& value) {
    return value.empty() ? nb::object(nb::none()) : nb::object(nb::str(value.c_str(), value.size()));
  };
  try {
    const nb::object type = nb::module_::import_("feedline._errors").attr("Error");
    const std::string category(name(error.category()));
    const nb::object raised = type(error.what(), category, error.message(), text(place.file), number(place.offset),
                                   number(place.record), text(place.feature));
    PyErr_SetObject(type.ptr(), raised.ptr());
  } catch (nb::python_error& failed) {
    failed.restore();
  }
}

/// Gives the library's log to `sink(level, line)`, or to standard error again if it is None.
void set_python_sink(nb::object sink) {
  static const LogSink standard = [] {
    LogSink first = set_log_sink({});
    set_log_sink(first);
    return first;
  }();
  LogSink next = standard;
  if (!sink.is_none()) {
    const std::shared_ptr<nb::object> kept(new nb::object(std::move(sink)), [](nb::object* object) {
      nb::gil_scoped_acquire gil;
      delete object;
    });
    next = [kept](LogLevel level, std::string_view line) {
      nb::gil_scoped_acquire gil;
      try {
        (*kept)(std::string(name(level)), nb::str(line.data(), line.size()));
      } catch (nb::python_error& error) {
        error.discard_as_unraisable("feedline's log");
      }
    };
  }
  nb::gil_scoped_release released;  // a line that is on its way to the old sink waits for the GIL
  set_log_sink(std::move(next));
}

int run_tool(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  nb::gil_scoped_release released;
  return cli::run_tool(static_cast<int>(arguments.size()), argv.data());
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
  module.def("set_log_sink", python::set_python_sink, nb::arg("sink").none());
  module.def("run_tool", python::run_tool);
  module.def("visible_gpus", [] { return visible_gpus().count; });
  module.attr("version") = FEEDLINE_VERSION;
}
