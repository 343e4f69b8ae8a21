#include "manifest.h"

#include <openssl/evp.h>
#include <zip.h>

#include <cstring>
#include <fstream>
#include <stdexcept>

namespace feedline::test {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("golden: " + what); }

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

GoldenArray read_array(const json& j) {
  GoldenArray array;
  array.dtype = j.at("dtype");
  array.shape = j.at("shape").get<std::vector<int64_t>>();
  array.crc32c = j.at("crc32c");
  array.sha256 = j.at("sha256");
  array.stored = j.at("stored");
  array.value = j.value("value", json());
  return array;
}

GoldenFeature read_feature(const json& j) {
  GoldenFeature feature;
  feature.name = j.contains("name_hex") ? from_hex(j["name_hex"]) : j.at("name").get<std::string>();
  feature.kind = j.at("kind");
  feature.dtype = j.at("dtype");
  feature.where = j.value("where", "");
  feature.shape = j.value("shape", std::vector<int64_t>());
  feature.default_value = j.value("default", json());
  feature.allow_missing = j.value("allow_missing", false);
  return feature;
}

template <typename T>
std::vector<T> values_of(const NpyArray& array) {
  const auto values = array.as<T>();
  return {values.begin(), values.end()};
}

GoldenCase read_case(const json& j) {
  const std::string root = std::string(FEEDLINE_GOLDEN) + "/";
  GoldenCase c;
  c.name = j.at("name");
  c.description = j.at("description");
  c.group = c.name.substr(0, c.name.find('/'));
  for (const std::string file : j.at("files")) c.files.push_back(root + file);
  c.compression = j.at("compression");
  c.parse = j.at("parse");
  for (const json& feature : j.at("features")) c.features.push_back(read_feature(feature));
  c.post = j.value("post", json());
  c.oddity = j.value("oddity", json());

  const json& expect = j.at("expect");
  c.records = expect.at("records");
  c.payload_bytes = expect.at("payload_bytes");
  c.payload_sha256 = expect.at("payload_sha256");
  if (const json error = expect.value("error", json()); !error.is_null()) {
    c.error.category = error.at("category");
    c.error.stage = error.at("stage");
    c.error.failing_records = error.value("failing_records", std::vector<int64_t>());
    c.error.also_acceptable = error.value("also_acceptable", std::vector<std::string>());
    c.error.records_exact = error.value("records_exact", true);
  }
  for (const auto& [name, array] : expect.at("arrays").items()) c.arrays[name] = read_array(array);
  if (expect.contains("file")) c.npz = root + expect["file"].get<std::string>();
  if (expect.contains("record_lengths")) {
    c.record_lengths = expect["record_lengths"].get<std::vector<int64_t>>();
    c.record_crc32c = expect["record_crc32c"].get<std::vector<uint32_t>>();
  } else if (c.arrays.count("record_lengths")) {
    const auto arrays = load_npz(c.npz);
    c.record_lengths = values_of<int64_t>(arrays.at("record_lengths"));
    c.record_crc32c = values_of<uint32_t>(arrays.at("record_crc32c"));
  }
  return c;
}

// Parses an .npy file (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): magic, version, the
// length of the header, then a Python dictionary such as {'descr': '<i8', 'fortran_order': False, 'shape': (3, 4), }
NpyArray parse_npy(const std::vector<std::byte>& file, const std::string& where) {
  const auto* text = reinterpret_cast<const char*>(file.data());
  if (file.size() < 12 || std::memcmp(text, "\x93NUMPY", 6) != 0) fail(where + " is no .npy file");
  const bool short_header = text[6] == 1;
  uint32_t length = 0;
  std::memcpy(&length, text + 8, short_header ? 2 : 4);
  const size_t begin = short_header ? 10 : 12;
  if (file.size() - begin < length) fail(where + " is cut short");
  const std::string header(text + begin, length);

  NpyArray array;
  const auto value_of = [&](const std::string& key) {
    const size_t at = header.find("'" + key + "':");
    if (at == std::string::npos) fail(where + " has no " + key);
    return header.find_first_not_of(' ', at + key.size() + 3);
  };
  const size_t descr = value_of("descr") + 1;
  array.dtype = header.substr(descr, header.find('\'', descr) - descr);
  if (header.compare(value_of("fortran_order"), 5, "False") != 0) fail(where + " is in Fortran order");
  const size_t shape = value_of("shape");
  for (const char* c = header.data() + shape; *c != ')';) {
    char* end = nullptr;
    const long long axis = std::strtoll(c, &end, 10);
    if (end != c) array.shape.push_back(axis);
    c = end != c ? end : c + 1;
  }
  array.bytes.assign(file.begin() + static_cast<ptrdiff_t>(begin + length), file.end());
  return array;
}

}  // namespace

const std::vector<GoldenCase>& golden_cases() {
  static const std::vector<GoldenCase> cases = [] {
    std::ifstream in(std::string(FEEDLINE_GOLDEN) + "/cases.json");
    if (!in) fail("cases.json cannot be read");
    std::vector<GoldenCase> all;
    const json manifest = json::parse(in);
    for (const json& j : manifest.at("cases")) all.push_back(read_case(j));
    return all;
  }();
  return cases;
}

const GoldenCase& golden_case(const std::string& name) {
  for (const GoldenCase& c : golden_cases())
    if (c.name == name) return c;
  fail("no case " + name);
}

NpyArray load_npy(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("cannot read " + path);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const auto bytes = std::as_bytes(std::span(text));
  return parse_npy({bytes.begin(), bytes.end()}, path);
}

std::map<std::string, NpyArray> load_npz(const std::string& path) {
  int error = 0;
  const std::unique_ptr<zip_t, decltype(&zip_discard)> archive(zip_open(path.c_str(), ZIP_RDONLY, &error), zip_discard);
  if (!archive) fail(path + " is no archive (libzip error " + std::to_string(error) + ")");
  std::map<std::string, NpyArray> arrays;
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive.get(), 0); i++) {
    zip_stat_t stat;
    if (zip_stat_index(archive.get(), static_cast<zip_uint64_t>(i), 0, &stat) != 0) fail(path + ": no entry");
    const std::unique_ptr<zip_file_t, decltype(&zip_fclose)> member(
        zip_fopen_index(archive.get(), static_cast<zip_uint64_t>(i), 0), zip_fclose);
    std::vector<std::byte> bytes(stat.size);
    if (!member || zip_fread(member.get(), bytes.data(), stat.size) != static_cast<zip_int64_t>(stat.size))
      fail(path + ": cannot read " + stat.name);
    const std::string name(stat.name);
    arrays[name.substr(0, name.rfind(".npy"))] = parse_npy(bytes, path + ":" + name);
  }
  return arrays;
}

struct Sha256::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  if (EVP_DigestInit_ex(impl_->context, EVP_sha256(), nullptr) != 1) fail("no SHA-256");
}

Sha256::~Sha256() { EVP_MD_CTX_free(impl_->context); }

void Sha256::update(std::span<const std::byte> bytes) { EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()); }

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  EVP_DigestFinal_ex(impl_->context, digest, &length);
  std::string text;
  for (unsigned i = 0; i < length; i++)
    for (const int nibble : {digest[i] >> 4, digest[i] & 15}) text += "0123456789abcdef"[nibble];
  return text;
}

}  // namespace feedline::test
