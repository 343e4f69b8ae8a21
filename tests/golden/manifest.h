// The golden cases (README.md beside this file) for the tests: cases.json and the arrays of the .npz files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace feedline::test {

/// An array that a case expects: its type, shape and checksums. `value` is null unless the manifest contains the
/// values.
struct GoldenArray {
  std::string dtype;  // numpy's notation, little-endian: "<i8", "<f4", "|u1", ...
  std::vector<int64_t> shape;
  uint32_t crc32c = 0;  // of its bytes in C order
  std::string sha256;
  bool stored = false;  // in the case's .npz
  nlohmann::json value;
};

struct GoldenFeature {
  std::string name;   // the bytes of the key
  std::string kind;   // fixed, var, ragged, fixed_sequence
  std::string dtype;  // bytes, float32, int64
  std::string where;  // in a SequenceExample: context or feature_list; otherwise empty
  std::vector<int64_t> shape;
  nlohmann::json default_value;  // null: none
  bool allow_missing = false;
};

/// The expected error. `category` is empty if there is none; README.md explains the other fields.
struct GoldenError {
  std::string category, stage;
  std::vector<int64_t> failing_records;
  std::vector<std::string> also_acceptable;
  bool records_exact = true;
};

struct GoldenCase {
  std::string name, description;
  std::string group;               // the name up to its '/'
  std::vector<std::string> files;  // full paths
  std::string compression;         // NONE, GZIP, ZLIB
  std::string parse;               // records, example, sequence_example, example_each
  std::vector<GoldenFeature> features;
  nlohmann::json post, oddity;  // null: none

  uint64_t records = 0, payload_bytes = 0;
  std::string payload_sha256;
  GoldenError error;
  std::map<std::string, GoldenArray> arrays;
  std::string npz;  // full path; empty: no stored arrays

  /// One value for each record; empty if the manifest has neither a list nor an array of them.
  std::vector<int64_t> record_lengths;
  std::vector<uint32_t> record_crc32c;
};

/// An array as numpy stores it: raw bytes in C order.
struct NpyArray {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

/// Returns all cases in the manifest's order; reads them once. Throws std::runtime_error if the manifest is not as
/// described.
const std::vector<GoldenCase>& golden_cases();
/// Returns the case of this name. Throws std::runtime_error if there is none.
const GoldenCase& golden_case(const std::string& name);

/// Reads an .npy file. Throws std::runtime_error.
NpyArray load_npy(const std::string& path);
/// Reads all members of an .npz file (stored or deflated). Their names lack ".npy". Throws std::runtime_error.
std::map<std::string, NpyArray> load_npz(const std::string& path);

/// Computes SHA-256 as lower-case hexadecimal digits. Call update() any number of times, then hex() once.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const std::byte> bytes);
  std::string hex();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedline::test
