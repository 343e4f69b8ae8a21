// The stored answer of a filter, compared with a slow, simple reading of it.
// covers: flowgraph/feed/filter.cc
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/audit.h"
#include "base/syscall_hooks.h"
#include "draw.h"
#include "feedline/error.h"
#include "feedline/records.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/feed/filter.h"
#include "io/records/crc32c.h"
#include "require.h"
#include "tests/flowgraph/example_writer.h"
#include "tests/io/frames.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace feedline;
using test::Draw;
using test::little_endian;
using test::require;

const test::TempDir& folder() {
  static const test::TempDir dir;
  return dir;
}

flow::PipelineSpec filter_spec(const std::string& more) {
  return flow::validate(
      parse_pipeline("source { files: 'data' index { dir: '" + folder().path() +
                         "' } } feature { name: 'id' dtype: INT64 } output { name: 'id' feature: 'id' } "
                         "batch { global_batch_size: 1 } " +
                         more,
                     folder().path()));
}

/// The answer of a filter, as the comment of its file's bytes describes it (flowgraph/feed/filter.cc).
struct Answer {
  Answer(const flow::PipelineSpec& spec, const flow::DataSet& data)
      : words((data.samples + 63) / 64 * (spec.window ? 2 : 1) + data.files.size()), digest(data.digest) {
    const auto add = [&](uint64_t value) { digest = mix64(digest ^ mix64(value)); };
    add(hash64(spec.filter_text));
    add(static_cast<uint64_t>(spec.on_error));
    for (const flow::DataFile& file : data.files) {
      add(file.samples.samples());
      add(file.samples.samples() > 0 ? file.samples.record(0) : 0);
    }
  }
  std::string bytes() const {
    std::string bytes = "feedflt1" + little_endian(digest);
    for (const uint64_t word : words) bytes += little_endian(word);
    return bytes + little_endian(io::crc32c(test::bytes_of(bytes)));
  }
  std::string path() const {
    char name[40];
    std::snprintf(name, sizeof name, "%016llx.feedline-filter", static_cast<unsigned long long>(digest));
    return folder().file(name);
  }
  std::vector<uint64_t> words;  // kept, changes of the key if there is one, audits
  uint64_t digest;
};

// What a filter writes is what is read here, and is found the next time.
bool answer_is_as_described() {
  RecordWriter writer(folder().file("data"));
  for (int64_t id = 0; id < 70; id++)
    writer.write(test::bytes_of(test::wire::example(test::wire::entry("id", test::wire::int64_feature({id / 3})))));
  writer.close();
  const flow::PipelineSpec spec = filter_spec("filter: 'mod(id, 2) == 1' window { size: 2 key: 'id' } ");
  const flow::DataSet counted = flow::count_data(spec, 1, {});
  Answer answer(spec, counted);
  for (uint64_t id = 0; id < 70; id++) {
    answer.words[id / 64] |= static_cast<uint64_t>(id / 3 % 2) << id % 64;
    answer.words[2 + id / 64] |= static_cast<uint64_t>(id / 3 % 2 && id % 3 == 0) << id % 64;
  }
  for (int run = 0; run < 3; run++) {
    if (run == 0) test::find_hook("create")->fail_nth_call(1);
    flow::DataSet data = counted;
    flow::apply_filter(
        spec, data, {.io = {}, .on_progress = [run](uint64_t, uint64_t) { require(run < 2, "it is computed anew"); }});
    require((run == 0) == (data.warnings.size() == counted.warnings.size() + 1),
            "no warning says that it is not stored");
    answer.words[4] = data.files[0].kept_audit.value();
    require(data.samples == 34 && data.files[0].samples.record(33) == 69, "other samples than the filter keeps");
    if (run == 0) continue;
    std::ifstream in(answer.path(), std::ios::binary);
    require(std::string(std::istreambuf_iterator<char>(in), {}) == answer.bytes(), "another file than is described");
  }
  return true;
}

void filter_answer(Draw& draw) {
  [[maybe_unused]] static const bool as_described = answer_is_as_described();
  // The memory is too little to compute an answer, so one that is refused is an Error.
  static const flow::PipelineSpec specs[] = {filter_spec("filter: 'id > 3' memory { limit: '1' } "),
                                             filter_spec("window { size: 2 key: 'id' } memory { limit: '1' } ")};
  const flow::PipelineSpec& spec = specs[draw.below(2)];
  flow::DataSet data;
  data.digest = draw.any<uint8_t>();
  for (uint64_t f = draw.below(4); f < 4; f++) {
    flow::DataFile& file = data.files.emplace_back();
    const uint64_t begin = draw.near(64) % 200;
    file.samples = {begin, begin + draw.near(64) % 200};
    data.samples += file.samples.samples();
  }
  Answer answer(spec, data);
  for (uint64_t& word : answer.words) word = draw.coin() ? draw.any<uint64_t>() : ~uint64_t{0};
  const std::vector<uint64_t> words = answer.words;
  const std::string right = answer.bytes();
  std::string stored = right;
  switch (draw.below(8)) {
    case 0:
      stored[draw.near(stored.size()) % stored.size()] ^= static_cast<char>(1 << draw.below(8));
      break;
    case 1:
      stored.resize(draw.near(stored.size()) % (2 * stored.size()));
      break;
    case 2:
      answer.digest += draw.below(3);
      stored = answer.bytes();
      break;
    case 3:
      answer.words.resize(draw.near(words.size()) % (2 * words.size() + 1));
      stored = answer.bytes();
      break;
    default:
      break;
  }
  answer.digest = Answer(spec, data).digest;
  std::ofstream(answer.path(), std::ios::binary).write(stored.data(), static_cast<std::streamsize>(stored.size()));
  flow::DataSet applied = data;
  try {
    flow::apply_filter(spec, applied, {});
  } catch (const Error& error) {
    require(stored != right, error.what());
    std::filesystem::remove(answer.path());
    return;
  }
  std::filesystem::remove(answer.path());
  if (data.samples == 0) return;
  require(stored == right, "an answer that is damaged, or of something else, is used");
  const uint64_t set_words = (data.samples + 63) / 64;
  const auto has = [&](uint64_t set, uint64_t sample) {
    return words[set * set_words + sample / 64] >> sample % 64 & 1;
  };
  uint64_t sample = 0, all = 0;
  for (size_t f = 0; f < data.files.size(); f++) {
    const flow::DataFile &before = data.files[f], &after = applied.files[f];
    uint64_t kept = 0;
    for (uint64_t i = 0; i < before.samples.samples(); i++, sample++) {
      if (!has(0, sample)) continue;
      require(kept < after.samples.samples() && after.samples.record(kept) == before.samples.record(i),
              "another sample than the answer keeps");
      require(!spec.window || after.key_changes->has(kept) == has(1, sample), "the key changes elsewhere");
      kept++;
    }
    require(after.samples.samples() == kept && after.kept_audit == words[words.size() - data.files.size() + f],
            "more samples than the answer keeps, or another audit");
    require((after.key_changes != nullptr) == (spec.window && before.samples.samples() > 0),
            "changes of a key that there is not");
    all += kept;
  }
  require(applied.samples == all, "the number of samples is wrong");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Draw draw(data, size);
  filter_answer(draw);
  return 0;
}
