// Texts that may not be UTF-8.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

namespace feedline::python {

/// Returns bytes as Python has file names: those that are not UTF-8 become surrogates.
inline nanobind::object text_of(std::string_view bytes) {
  PyObject* text = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
  if (!text) throw nanobind::python_error();
  return nanobind::steal(text);
}

}  // namespace feedline::python
