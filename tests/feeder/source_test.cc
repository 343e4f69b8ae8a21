// Data files that lie somewhere else than in the local file system: everything reaches them through io::Source.
#include "io/read/source.h"

#include <atomic>
#include <filesystem>
#include <fstream>

#include "data.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/feed/graph.h"
#include "flowgraph/plan/plan.h"
#include "ranks/rank_group.h"
#include "support/catch.h"
#include "support/memory_source.h"
#include "support/own_cache.h"

using namespace feedline;
using namespace feedline::test;

namespace {

using Files = MemorySource::Files;

/// Files in memory that can fail.
class StoredFiles final : public MemorySource {
 public:
  using MemorySource::MemorySource;

  Listing list(const std::string& folder, const std::string& pattern) const override {
    if (!reachable) throw Error(Category::io_error, "the store does not answer");
    return MemorySource::list(folder, pattern);
  }
  std::shared_ptr<const io::SourceFile> open(const std::string& uri) const override {
    opened++;
    return MemorySource::open(uri);
  }
  std::unique_ptr<io::ReadBackend> make_read_backend(std::vector<io::FileId> files, const io::BackendOptions&,
                                                     io::ReadDone done) const override {
    std::vector<const std::string*> all;
    std::vector<uint64_t> broken;
    for (const io::FileId& file : files) {
      all.push_back(&bytes_of(file.uri));
      broken.push_back(broken_file.empty() || broken_file == file.uri ? broken_from : UINT64_MAX);
    }
    return std::make_unique<MemoryBackend>(std::move(all), std::move(broken), std::move(done));
  }

  bool reachable = true;
  uint64_t broken_from = UINT64_MAX;  // reads that reach this offset fail,
  std::string broken_file;            // of this file, or of all files
  mutable std::atomic<int> opened{0};
};

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns a source with the files of `plain`, and those of `zipped` after them.
Files files_of(const Data& plain, const Data& zipped) {
  return {{"memory://b/part-000.tfrecord", content_of(plain.path(0))},
          {"memory://b/part-001.tfrecord", content_of(plain.path(1))},
          {"memory://b/part-002.tfrecord", content_of(zipped.path(0))}};
}

flow::PipelineSpec spec_of(const std::string& more) {
  return flow::validate(
      parse_pipeline("source { files: 'memory://b/part-*.tfrecord' index {} } "
                     "feature { name: 'id' dtype: INT64 } batch { global_batch_size: 10 } " +
                     more));
}

flow::DataSet counted(const flow::PipelineSpec& spec) { return flow::count_data(spec, 2, {}); }

std::vector<int64_t> ids_of_epoch(const flow::Plan& plan) {
  flow::Graph graph(plan, {.copied_to = {host()}, .io = {}, .start = {}, .deliver_before_error = false});
  std::vector<int64_t> ids;
  Batch batch;
  while (graph.delivery().next(0, std::nullopt, batch) == flow::Delivery::Outcome::batch) {
    const auto of_batch = batch.at("id").as<int64_t>();
    ids.insert(ids.end(), of_batch.begin(), of_batch.end());
  }
  return ids;
}

}  // namespace

TEST_CASE("files of another source are listed, counted and fed as local ones are") {
  const Data plain({300, 200}), zipped({100}, Compression::gzip);
  const TempDir cache;
  const OwnCache own_cache(cache.path());
  std::vector<int64_t> wanted = numbers(500);
  Files files = files_of(plain, zipped);
  {
    Files uncompressed = files;
    uncompressed.erase("memory://b/part-002.tfrecord");
    const StoredFiles source(std::move(uncompressed));
    const Mounted mounted(source);
    for (const char* mode : {"BLOCK", "GLOBAL"}) {
      INFO(mode);
      const auto spec = spec_of(std::string("shuffle { mode: ") + mode + " }");
      std::vector<int64_t> ids = ids_of_epoch(flow::Plan(spec, counted(spec), {}, 2));
      CHECK(ids != wanted);
      std::sort(ids.begin(), ids.end());
      CHECK(ids == wanted);
    }
  }
  const StoredFiles source(std::move(files));
  const Mounted mounted(source);
  const flow::PipelineSpec spec = spec_of("");
  const flow::Plan plan(spec, counted(spec), {}, 2);
  CHECK(plan.data.files.size() == 3);
  for (const int64_t id : numbers(100)) wanted.push_back(id);
  CHECK(ids_of_epoch(plan) == wanted);
}

TEST_CASE("a feed has files of a store and local ones") {
  const Data local({300, 200}), plain({100, 50}), zipped({70}, Compression::gzip);
  const TempDir cache;
  const OwnCache own_cache(cache.path());
  const StoredFiles source(files_of(plain, zipped));
  const Mounted mounted(source);
  const auto fed = [&](const std::string& stored, const std::string& more) {
    const flow::PipelineSpec spec = flow::validate(parse_pipeline(
        "source { files: '" + local.path(0) + "' files: '" + stored + "' files: '" + local.path(1) + "' index {" +
        (more == "lazy" ? "mode: LAZY" : "") + "} } " +
        "feature { name: 'id' dtype: INT64 } batch { global_batch_size: 10 } " + (more == "lazy" ? "" : more)));
    return ids_of_epoch(flow::Plan(spec, counted(spec), {}, 2));
  };
  std::vector<int64_t> wanted = numbers(300);
  for (const size_t count : {100, 50, 70, 200})
    for (size_t i = 0; i < count; i++)
      wanted.push_back(static_cast<int64_t>(i) + (count == 200 ? 300 : count == 50 ? 100 : 0));
  for (const char* more : {"", "lazy"}) CHECK(fed("memory://b/part-*", more) == wanted);
  std::erase_if(wanted, [&, at = 0](int64_t) mutable { return at++ >= 450 && at <= 520; });  // the compressed file
  std::sort(wanted.begin(), wanted.end());
  for (const char* mode : {"BLOCK", "GLOBAL", "BUFFER buffer_size: 100"}) {
    INFO(mode);
    std::vector<int64_t> ids = fed("memory://b/part-00[01].tfrecord", std::string("shuffle { mode: ") + mode + " }");
    std::sort(ids.begin(), ids.end());
    CHECK(ids == wanted);
  }
}

TEST_CASE("a read that fails names the file and the place that it was of, beside reads of other files") {
  const Data data({300, 300, 300});
  const TempDir cache;
  const OwnCache own_cache(cache.path());
  Files files;
  for (size_t f = 0; f < 3; f++) files["memory://b/part-00" + std::to_string(f)] = content_of(data.path(f));
  for (const std::string broken : {"memory://b/part-000", "memory://b/part-001", "memory://b/part-002"})
    for (const char* shuffle : {"mode: GLOBAL", "mode: BUFFER buffer_size: 600"}) {
      StoredFiles source(files);
      const Mounted mounted(source);
      const flow::PipelineSpec spec = flow::validate(
          parse_pipeline("source { files: 'memory://b/part-*' index {} } feature { name: 'id' dtype: INT64 } batch { "
                         "global_batch_size: 150 } shuffle { " +
                         std::string(shuffle) + " }"));
      const flow::Plan plan(spec, counted(spec), {}, 2);
      source.broken_file = broken;
      source.broken_from = 0;
      flow::Graph graph(plan, {.copied_to = {host()}, .io = {}, .start = {}, .deliver_before_error = false});
      Batch batch;
      std::optional<Error> error;
      try {
        while (graph.delivery().next(0, std::nullopt, batch) == flow::Delivery::Outcome::batch) {
        }
      } catch (const Error& failed) {
        error = failed;
      }
      REQUIRE(error);
      CHECK(error->category() == Category::io_error);
      CHECK(error->place().file == broken);
    }
}

TEST_CASE("index.mode LAZY reads another source while it feeds") {
  const Data plain({300, 200}), zipped({100}, Compression::gzip);
  const TempDir cache;
  const OwnCache own_cache(cache.path());
  const StoredFiles source(files_of(plain, zipped));
  const Mounted mounted(source);
  flow::PipelineSpec spec = spec_of("");
  spec.sources[0].index.mode = flow::IndexMode::lazy;
  const flow::Plan plan(spec, counted(spec), {}, 2);
  CHECK(plan.data.lazy);
  CHECK(ids_of_epoch(plan).size() == 600);
}

TEST_CASE("an index of another source's file lies in the cache folder, and goes with the file's version") {
  const Data plain({300, 200}), zipped({100}, Compression::gzip);
  const TempDir cache;
  const OwnCache own_cache(cache.path());
  StoredFiles source(files_of(plain, zipped));
  const Mounted mounted(source);
  const flow::PipelineSpec spec = spec_of("");
  const flow::DataSet data = counted(spec);
  CHECK(data.warnings.empty());
  const uint64_t digest = data.digest;
  size_t kept = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(cache.file("feedline"))) kept++;
  CHECK(kept == 3);

  source.opened = 0;
  CHECK(counted(spec).digest == digest);
  CHECK(source.opened == 0);
  source.version = 2;
  CHECK(counted(spec).digest == digest);
  CHECK(source.opened > 0);
}

TEST_CASE("what a source refuses is an error with its reason and place") {
  const Data plain({300, 200}), zipped({100}, Compression::gzip);
  const TempDir cache;
  const OwnCache own_cache(cache.path());
  StoredFiles source(files_of(plain, zipped));
  const Mounted mounted(source);
  const flow::PipelineSpec spec = spec_of("");
  {
    const StoredFiles empty((Files()));
    const Mounted instead(empty);
    CHECK_THROWS_WITH(spec_of(""), Catch::Contains("no file matches 'memory://b/part-*.tfrecord'; nothing is there"));
    CHECK_THROWS_WITH(counted(spec), Catch::Contains("memory://b/part-00") &&
                                         Catch::Contains(".tfrecord: cannot be opened: No such file or directory"));
  }
  const Mounted again(source);
  source.reachable = false;
  CHECK_THROWS_WITH(spec_of(""), Catch::Contains("files: the store does not answer"));

  source.broken_from = 3000;
  const flow::Plan plan(spec, counted(spec), {}, 2);
  try {
    ids_of_epoch(plan);
    FAIL("the feed did not end with an error");
  } catch (const Error& error) {
    CHECK(error.category() == Category::io_error);
    CHECK(error.place().file == "memory://b/part-000.tfrecord");
    CHECK(error.place().record == 0);
  }
}
