// The golden cases (README.md beside this file) as the tests see them: cases.json and the arrays of the .npz files.
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

/// An array that a case expects: what it is and its checksums. `value` is null unless the manifest spells it out.
struct GoldenArray {
  std::string dtype;  // numpy's notation, little-endian: "<i8", "<f4", "|u1", ...
  std::vector<int64_t> shape;
  uint32_t crc32c = 0;  // of its bytes in C order
  std::string sha256;
  bool stored = false;  // in the case's .npz
  nlohmann::json value;
};

struct GoldenFeature {
  std::string name;   // the key's bytes
  std::string kind;   // fixed, var, ragged, fixed_sequence
  std::string dtype;  // bytes, float32, int64
  std::string where;  // of a SequenceExample: context or feature_list; else empty
  std::vector<int64_t> shape;
  nlohmann::json default_value;  // null: none
  bool allow_missing = false;
};

/// `category` is empty where all is well; else the fields are those of the README.
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

  /// Per record; empty where the manifest has neither list nor array of it.
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

/// All cases in the manifest's order; read once. Throws std::runtime_error when the manifest is not as described.
const std::vector<GoldenCase>& golden_cases();
/// By name; throws std::runtime_error.
const GoldenCase& golden_case(const std::string& name);

/// An .npy file. Throws std::runtime_error.
NpyArray load_npy(const std::string& path);
/// All members of an .npz file (stored or deflated), by name without ".npy". Throws std::runtime_error.
std::map<std::string, NpyArray> load_npz(const std::string& path);

/// SHA-256, as lower-case hexadecimal digits; update() as often as needed, then hex() once.
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
