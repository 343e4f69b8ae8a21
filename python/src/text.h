// Names of files, and other texts that may not be UTF-8.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace feedline::python {

/// Returns the bytes of a file's name, which is a str, bytes, or an os.PathLike. Raises TypeError for anything else.
inline std::string file_name(nanobind::handle name) {
  PyObject* bytes = nullptr;
  if (!PyUnicode_FSConverter(name.ptr(), &bytes)) throw nanobind::python_error();
  const auto owned = nanobind::steal<nanobind::bytes>(bytes);
  return {owned.c_str(), owned.size()};
}

/// Returns bytes as a str, as Python does with file names: bytes that are not UTF-8 become surrogates.
inline nanobind::object text_of(std::string_view bytes) {
  PyObject* text = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
  if (!text) throw nanobind::python_error();
  return nanobind::steal(text);
}

}  // namespace feedline::python
