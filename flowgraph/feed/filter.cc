#include "flowgraph/feed/filter.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <span>

#include "base/audit.h"
#include "base/mul_div.h"
#include "flowgraph/feed/graph.h"
#include "flowgraph/plan/plan.h"
#include "io/file.h"
#include "io/index/index_store.h"
#include "io/output_file.h"
#include "io/records/crc32c.h"

namespace feedline::flow {
namespace {

constexpr char magic[9] = "feedflt1";

/// The results of filter and window key for all samples, in order.
struct Answer {
  Answer(const PipelineSpec& spec, const DataSet& data)
      : kept((data.samples + 63) / 64),
        changes(spec.window && !spec.window->key.empty() ? kept.size() : 0),
        audits(data.files.size()) {}
  std::vector<uint64_t> kept;  // bit i % 64 of word i / 64 says whether sample i is kept
  // In the same form as `kept`: whether the key of a kept sample differs from that of the kept sample before it. Empty
  // if there is no key.
  std::vector<uint64_t> changes;
  std::vector<uint64_t> audits;  // by file: the sum of the audit terms of the kept samples
  std::vector<Error> bad;        // the first bad records
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

bool has(const std::vector<uint64_t>& set, uint64_t number) { return (set[number / 64] >> number % 64 & 1) != 0; }
void put(std::vector<uint64_t>& set, uint64_t number) { set[number / 64] |= uint64_t{1} << number % 64; }

// Returns the bytes of an answer's file: magic, digest, the words of `kept`, `changes` and `audits`, and the CRC32C of
// all bytes before it. The numbers of words are not stored: they follow from the pipeline and the data, of which
// `digest` is a digest.
std::string bytes_of(const Answer& answer, uint64_t digest) {
  std::string bytes(magic, 8);
  const auto add = [&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); };
  add(&digest, sizeof digest);
  for (const auto* words : {&answer.kept, &answer.changes, &answer.audits})
    add(words->data(), words->size() * sizeof(uint64_t));
  const uint32_t crc = io::crc32c(std::as_bytes(std::span(bytes)));
  add(&crc, sizeof crc);
  return bytes;
}

std::optional<Answer> load(const std::string& path, uint64_t digest, Answer answer) {
  std::string bytes = bytes_of(answer, digest);
  try {
    // keep() writes only regular files of exactly this size, so a file of a different kind or size is not read.
    const auto file = io::InputFile::find(path);
    if (!file || file->size() != bytes.size()) return std::nullopt;
    file->read_at(0, std::as_writable_bytes(std::span(bytes)));
  } catch (const Error&) {
    return std::nullopt;
  }
  size_t at = 16;
  for (auto* words : {&answer.kept, &answer.changes, &answer.audits}) {
    const size_t size = words->size() * sizeof(uint64_t);
    if (size > 0) std::memcpy(words->data(), bytes.data() + at, size);  // an empty vector may have no memory
    at += size;
  }
  if (bytes != bytes_of(answer, digest)) return std::nullopt;
  return answer;
}

// Evaluates filter and key as the only outputs of a feed in file order.
Answer evaluate(const PipelineSpec& spec, const DataSet& data, const FilterRun& run) {
  Answer answer(spec, data);
  DataSet whole = data;
  whole.raised.clear();  // the main feed throws this error when it reaches the bad record
  const Plan plan(*spec.filter, std::move(whole), {}, run.threads);
  Graph graph(plan, {.copied_to = {host()}, .io = run.io});
  uint64_t sample = 0;
  std::optional<int64_t> key;  // the key of the sample that was kept last
  for (Batch batch; graph.delivery().next(0, std::nullopt, batch) == Delivery::Outcome::batch;) {
    const auto keeps = batch.at("filter").as<double>();
    const auto valid = batch.at("@valid").as<bool>();
    const auto file = batch.at("@file").as<int64_t>(), audit = batch.at("@audit").as<int64_t>();
    const auto keys = answer.changes.empty() ? std::span<const int64_t>() : batch.at("@key").as<int64_t>();
    for (size_t i = 0; i < keeps.size(); i++, sample++) {
      if (!valid[i] || keeps[i] == 0) continue;
      put(answer.kept, sample);
      answer.audits[static_cast<size_t>(file[i])] += static_cast<uint64_t>(audit[i]);
      if (keys.empty() || key == keys[i]) continue;
      put(answer.changes, sample);
      key = keys[i];
    }
    if (run.on_progress) run.on_progress(mul_div(data.bytes, sample, data.samples), data.bytes);
  }
  Counters counted;
  graph.add_to(counted);
  answer.bad = graph.errors();
  answer.bad_total = counted.bad_records;
  return answer;
}

void keep(const std::string& path, const Answer& answer, uint64_t digest, DataSet& data) {
  try {
    std::error_code refused;  // ignored here: opening the file fails, too, and reports the error
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), refused);
    io::OutputFile out(path);
    const std::string bytes = bytes_of(answer, digest);
    out.write(std::as_bytes(std::span(bytes)));
    out.publish_unsynced();
  } catch (const Error& error) {
    data.warnings.push_back(
        fmt::format("the result of 'filter' and window.key cannot be stored, so it will be computed again at the next "
                    "start: {}",
                    error.what()));
  }
}

void apply(const Answer& answer, DataSet& data) {
  uint64_t sample = 0;
  for (size_t f = 0; f < data.files.size(); f++) {
    DataFile& file = data.files[f];
    const uint64_t samples = file.samples.samples(), first = samples > 0 ? file.samples.record(0) : 0;
    std::vector<uint64_t> kept((first + samples + 63) / 64), changes(answer.changes.empty() ? 0 : (samples + 63) / 64);
    uint64_t left = 0;
    for (uint64_t i = 0; i < samples; i++, sample++) {
      if (!has(answer.kept, sample)) continue;
      put(kept, first + i);
      if (!changes.empty() && has(answer.changes, sample)) put(changes, left);
      left++;
    }
    if (left < samples) file.samples = Selection(std::make_shared<const NumberSet>(std::move(kept)));
    if (!changes.empty()) file.key_changes = std::make_shared<const NumberSet>(std::move(changes));
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
  if (!path.empty()) answer = load(path, digest, Answer(spec, data));
  if (!answer) {
    answer = evaluate(spec, data, run);
    // A run that loads an answer does not meet the bad records, but every run must report them. So an answer with bad
    // records is not stored.
    if (!path.empty() && answer->bad_total == 0) keep(path, *answer, digest, data);
  }
  for (Error& error : answer->bad) data.skip(std::move(error));
  data.skipped_total += answer->bad_total - answer->bad.size();
  apply(*answer, data);
}

}  // namespace feedline::flow
