#include "flowgraph/filter.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/audit.h"
#include "flowgraph/graph.h"
#include "flowgraph/plan.h"
#include "io/crc32c.h"
#include "io/index_store.h"
#include "io/output_file.h"

namespace feedline::flow {
namespace {

constexpr char magic[9] = "feedflt1";

/// What the filter says of every sample, in order.
struct Answer {
  std::vector<uint64_t> kept;    // bit i % 64 of word i / 64 is that of sample i
  std::vector<uint64_t> audits;  // by file: sum over those that are kept
  std::vector<Error> bad;        // the first ones
  uint64_t bad_total = 0;
};

uint64_t digest_of(const PipelineSpec& spec, const DataSet& data) {
  uint64_t digest = data.digest;
  const auto add = [&](uint64_t value) { digest = mix64(digest ^ mix64(value)); };
  add(hash64(spec.filter_text));
  add(static_cast<uint64_t>(spec.on_error));
  for (const DataFile& file : data.files) {
    add(file.samples.samples());
    add(file.samples.samples() > 0 ? file.samples.record(0) : 0);
  }
  return digest;
}

// Sizes are part of the digest. Layout: magic, digest, words of `kept`, words of `audits`, CRC32C of all before it.
std::string bytes_of(const Answer& answer, uint64_t digest) {
  std::string bytes(magic, 8);
  const auto add = [&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); };
  add(&digest, sizeof digest);
  add(answer.kept.data(), answer.kept.size() * sizeof(uint64_t));
  add(answer.audits.data(), answer.audits.size() * sizeof(uint64_t));
  const uint32_t crc = io::crc32c(std::as_bytes(std::span(bytes)));
  add(&crc, sizeof crc);
  return bytes;
}

std::optional<Answer> load(const std::string& path, uint64_t digest, const DataSet& data) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  Answer answer;
  answer.kept.resize((data.samples + 63) / 64);
  answer.audits.resize(data.files.size());
  const size_t kept = answer.kept.size() * sizeof(uint64_t), audits = answer.audits.size() * sizeof(uint64_t);
  if (bytes.size() != 16 + kept + audits + 4) return std::nullopt;
  std::memcpy(answer.kept.data(), bytes.data() + 16, kept);
  std::memcpy(answer.audits.data(), bytes.data() + 16 + kept, audits);
  if (bytes != bytes_of(answer, digest)) return std::nullopt;
  return answer;
}

// The filter as the only output of a feed in file order.
Answer evaluate(const PipelineSpec& spec, const DataSet& data, const FilterRun& run) {
  Answer answer;
  answer.kept.resize((data.samples + 63) / 64);
  answer.audits.resize(data.files.size());
  DataSet whole = data;
  whole.raised.clear();  // told when the feed that is wanted comes there
  const Plan plan(*spec.filter, std::move(whole), {}, run.threads);
  Graph graph(plan, {.devices = {host()}, .io = run.io, .start = {}, .deliver_before_error = false});
  uint64_t sample = 0;
  for (Batch batch; graph.delivery().next(0, std::nullopt, batch) == Delivery::Outcome::batch;) {
    const auto keeps = batch.at("filter").as<double>();
    const auto valid = batch.at("@valid").as<bool>();
    const auto file = batch.at("@file").as<int64_t>(), audit = batch.at("@audit").as<int64_t>();
    for (size_t i = 0; i < keeps.size(); i++, sample++) {
      if (!valid[i] || keeps[i] == 0) continue;
      answer.kept[sample / 64] |= uint64_t{1} << sample % 64;
      answer.audits[static_cast<size_t>(file[i])] += static_cast<uint64_t>(audit[i]);
    }
    if (run.on_progress) run.on_progress(data.bytes * sample / data.samples, data.bytes);
  }
  const GraphReport report = graph.report();
  answer.bad = report.errors;
  answer.bad_total = report.errors_total;
  return answer;
}

void keep(const std::string& path, const Answer& answer, uint64_t digest, DataSet& data) {
  try {
    std::error_code refused;  // the file's error tells
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), refused);
    io::OutputFile out(path);
    const std::string bytes = bytes_of(answer, digest);
    out.write(std::as_bytes(std::span(bytes)));
    out.publish_unsynced();
  } catch (const Error& error) {
    data.warnings.push_back(fmt::format("what the filter keeps will be computed again: {}", error.what()));
  }
}

void apply(const Answer& answer, DataSet& data) {
  uint64_t sample = 0;
  for (size_t f = 0; f < data.files.size(); f++) {
    DataFile& file = data.files[f];
    const uint64_t samples = file.samples.samples(), first = samples > 0 ? file.samples.record(0) : 0;
    std::vector<uint64_t> words((first + samples + 63) / 64);
    for (uint64_t i = 0; i < samples; i++, sample++)
      if (answer.kept[sample / 64] >> sample % 64 & 1) words[(first + i) / 64] |= uint64_t{1} << (first + i) % 64;
    file.samples = Selection(std::make_shared<const NumberSet>(std::move(words)));
    file.kept_audit = answer.audits[f];
  }
  data.samples = 0;
  for (const DataFile& file : data.files) data.samples += file.samples.samples();
}

}  // namespace

void apply_filter(const PipelineSpec& spec, DataSet& data, const FilterRun& run) {
  if (!spec.filter || data.samples == 0) return;
  const uint64_t digest = digest_of(spec, data);
  const std::string path = io::cache_place(fmt::format("{:016x}.feedline-filter", digest), spec.sources[0].index.dir);
  std::optional<Answer> answer;
  if (!path.empty()) answer = load(path, digest, data);
  if (!answer) {
    answer = evaluate(spec, data, run);
    // Errors are told where they are found; a kept answer would pass over them.
    if (!path.empty() && answer->bad_total == 0) keep(path, *answer, digest, data);
  }
  for (Error& error : answer->bad) data.skip(std::move(error));
  data.skipped_total += answer->bad_total - answer->bad.size();
  apply(*answer, data);
}

}  // namespace feedline::flow
