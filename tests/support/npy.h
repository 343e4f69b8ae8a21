// Files of NumPy's format, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace feedline::test {

/// Returns an .npy file. `elements` are its bytes, and `shape` and `order` what Python would write.
inline std::string npy(const std::string& descr, const std::string& shape, const std::string& elements,
                       const std::string& order = "False", int version = 1) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  const size_t length_bytes = version > 1 ? 4 : 2;
  header.resize(128 - 8 - length_bytes - 1, ' ');
  header += '\n';
  std::string text = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
  for (size_t i = 0; i < length_bytes; i++) text += static_cast<char>(header.size() >> 8 * i & 0xff);
  return text + header + elements;
}

/// Returns numbers as they lie in memory.
template <typename T>
std::string in_memory(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace feedline::test
