#include "trainer_bridge/cli/infer_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <iterator>

#include "base/byte_size.h"
#include "trainer_bridge/cli/json.h"
#include "trainer_bridge/cli/terminal.h"

namespace feedline::cli {
namespace {

/// A literal of protobuf's text format.
std::string literal(std::string_view bytes) {
  const bool utf8 = is_utf8(bytes);
  std::string text = "\"";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !utf8)) {
      text += fmt::format("\\{:03o}", byte);
    } else {
      text += c;
    }
  }
  return text + '"';
}

struct Line {
  std::string text;
  bool usable = true;  // else a comment says why not
};

Line describe_feature(const std::string& key, size_t number, const FeatureStats& stats, uint64_t records) {
  std::vector<Kind> kinds;
  for (const Kind kind : {Kind::bytes_list, Kind::float_list, Kind::int64_list})
    if (stats.of(kind).records) kinds.push_back(kind);
  if (kinds.empty()) return {fmt::format("# feature {}: never has a value\n", literal(key)), false};
  if (kinds.size() > 1) {
    std::string found;
    for (const Kind kind : kinds) {
      found += fmt::format("{}{} in {} records", found.empty() ? "" : ", ", name(kind),
                           format_count(stats.of(kind).records));
    }
    return {fmt::format("# feature {}: of several kinds: {}\n", literal(key), found), false};
  }

  const Kind kind = kinds.front();
  const KindStats& values = stats.of(kind);
  const bool is_bytes = kind == Kind::bytes_list;
  const bool fixed = values.count_min == values.count_max && values.count_min > 0;
  const bool missing = values.records < records;
  const bool named = !key.empty() && is_printable(key) && key.front() != '@';

  std::string line = fmt::format("feature {{ name: {}", literal(named ? key : fmt::format("feature_{}", number)));
  if (!named) line += fmt::format(" key: {}", literal(key));
  line += fmt::format(" dtype: {}", is_bytes ? "BYTES" : kind == Kind::float_list ? "FLOAT32" : "INT64");
  std::string remarks;
  const auto remark = [&](const std::string& text) { remarks += (remarks.empty() ? "" : "; ") + text; };
  if (!fixed) {
    line += " kind: VARIABLE";
    remark(fmt::format("{} values", format_range(values.count_min, values.count_max)));
  } else if (values.count_min > 1) {
    line += fmt::format(" shape: [{}]", values.count_min);
  }
  if (is_bytes && values.total) {
    if (values.length_min == values.length_max && values.length_min > 0 && !(fixed && missing)) {
      line += fmt::format(" length: {}", values.length_min);
    } else {
      remark(fmt::format("{} bytes", format_range(values.length_min, values.length_max)));
    }
    if (values.jpeg == values.total) remark("JPEG files, delivered as they are");
    if (values.png == values.total) remark("PNG files, delivered as they are");
  }
  if (missing) {
    if (fixed) {
      line += fmt::format(" default_value {{ {} }}", is_bytes                   ? "bytes_value: \"\""
                                                     : kind == Kind::float_list ? "float32_value: 0"
                                                                                : "int64_value: 0");
    }
    remark(fmt::format("in {} of {} records", format_count(values.records), format_count(records)));
  }
  line += " }";
  if (!remarks.empty()) line += "  # " + remarks;
  return {line + "\n"};
}

/// A power of two, so that replicas divide it: at most 128, the records there are, and what 16 MiB hold.
uint64_t batch_size(uint64_t records, uint64_t payload_bytes) {
  const uint64_t record_bytes = records ? std::max<uint64_t>(payload_bytes / records, 1) : 1;
  const uint64_t most = std::min({uint64_t{128}, records, (uint64_t{16} << 20) / record_bytes});
  return std::bit_floor(std::max<uint64_t>(most, 1));
}

}  // namespace

std::string infer_pipeline(const DataStats& stats, const std::vector<FileSummary>& files) {
  uint64_t payload_bytes = 0, regions = 0;
  for (const FileSummary& file : files) {
    payload_bytes += file.payload_bytes;
    regions += file.damage.size();
  }
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "# Inferred by `feedline inspect --pipeline` from {} records, {}, in {} file{}.\n",
                 format_count(stats.records()), format_byte_size(payload_bytes), files.size(),
                 files.size() == 1 ? "" : "s");

  std::string lines;
  bool raw = true;
  if (stats.type() == MessageType::example) {
    size_t number = 0;
    for (const auto& [key, of_key] : stats.features()) {
      const Line line = describe_feature(key, number++, of_key, stats.records());
      lines += line.text;
      raw = raw && !line.usable;
    }
  }
  fmt::format_to(out, "source {{\n");
  for (const FileSummary& file : files) {
    if (!file.opened()) continue;
    fmt::format_to(out, "  files: {}\n", literal(std::filesystem::absolute(file.file).lexically_normal().string()));
  }
  if (raw) {
    fmt::format_to(out, "  record_type: RAW  # {}: each record is delivered as its bytes, `record`\n",
                   stats.type() == MessageType::example ? "no feature has values"
                                                        : fmt::format("message: {}", name(stats.type())));
  }
  fmt::format_to(out, "}}\n{}", lines);
  const uint64_t size = batch_size(stats.records(), payload_bytes);
  fmt::format_to(out, "batch {{ global_batch_size: {} last_batch_policy: DROP }}  # DROP, PARTIAL or PAD\n", size);
  if (regions || (stats.unparsed() && !raw)) {
    fmt::format_to(out, "errors {{ on_error: SKIP_RECORD }}  # {} damaged places, {} records of another type\n",
                   format_count(regions), format_count(stats.unparsed()));
  }
  if (!raw) fmt::format_to(out, "# No output is named, so that every feature is delivered as it is.\n");
  return text;
}

}  // namespace feedline::cli
