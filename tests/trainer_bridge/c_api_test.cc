// The C interface: what it gives out, how it fails, and what outlives what.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "feedline/feedline.h"
#include "feedline/records.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using feedline::test::TempDir;

namespace {

const std::string digits = FEEDLINE_GOLDEN "/images/digits_raw.tfrecord";
const std::string text = "source { files: '" + digits +
                         "' } feature { name: 'image' dtype: BYTES length: 64 } feature { name: 'label' dtype: INT64 } "
                         "batch { global_batch_size: 50 } ";

struct Feed {
  explicit Feed(const std::string& more = "", const feedline_options* options = nullptr) {
    feedline_pipeline* plain = nullptr;
    REQUIRE(feedline_pipeline_parse(text.c_str(), "", &plain) == FEEDLINE_OK);
    REQUIRE(feedline_pipeline_with(plain, more.c_str(), &pipeline) == FEEDLINE_OK);
    feedline_pipeline_free(plain);
    const feedline_status status = feedline_feeder_new(pipeline, options, &feeder);
    INFO(feedline_last_error()->text);
    REQUIRE(status == FEEDLINE_OK);
  }
  ~Feed() {
    feedline_feeder_free(feeder);
    feedline_pipeline_free(pipeline);
  }
  feedline_batch* next() {
    feedline_batch* batch = nullptr;
    REQUIRE(feedline_feeder_next(feeder, 0, -1, &batch) == FEEDLINE_OK);
    return batch;
  }
  feedline_pipeline* pipeline = nullptr;
  feedline_feeder* feeder = nullptr;
};

thread_local int64_t allocations_left = -1;  // that succeed on this thread; negative: all

DLManagedTensorVersioned* tensor_of(const feedline_batch* batch, const char* name) {
  DLManagedTensorVersioned* tensor = nullptr;
  REQUIRE(feedline_batch_tensor(batch, name, &tensor) == FEEDLINE_OK);
  return tensor;
}

}  // namespace

// Not inlined, because g++ 12 would then see memory from operator new given to free(), and warn.
[[gnu::noinline]] void* operator new(size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) allocations_left--;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  if (allocations_left == 0) return nullptr;
  if (allocations_left > 0) allocations_left--;
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

TEST_CASE("c: an epoch, its batches and their tensors") {
  Feed feed;
  CHECK(feedline_feeder_replicas(feed.feeder) == 1);
  CHECK(feedline_feeder_steps_per_epoch(feed.feeder) == 3);
  CHECK(feedline_feeder_samples_per_epoch(feed.feeder) == 150);
  REQUIRE(feedline_feeder_element_count(feed.feeder) == 2);
  feedline_element element = {};
  element.struct_size = sizeof element;
  REQUIRE(feedline_feeder_element(feed.feeder, 0, &element) == FEEDLINE_OK);
  CHECK(std::string(element.name) == "image");
  CHECK(std::string(element.kind) == "dense");
  CHECK(element.strings == 0);
  REQUIRE(element.ndim == 1);
  CHECK(element.shape[0] == 64);
  CHECK(element.dtype.code == kDLUInt);
  CHECK(element.dtype.bits == 8);
  CHECK(feedline_feeder_element(feed.feeder, 2, &element) == FEEDLINE_FAILED);

  for (uint64_t step = 0; step < 3; step++) {
    feedline_batch* batch = feed.next();
    feedline_batch_info info = {};
    info.struct_size = sizeof info;
    REQUIRE(feedline_batch_get_info(batch, &info) == FEEDLINE_OK);
    CHECK(info.epoch == 0);
    CHECK(info.step == step);
    CHECK(info.rows == 50);
    CHECK(info.valid_count == 50);
    CHECK(info.tensors == 3);
    CHECK(feedline_batch_tensor_name(batch, 3) == nullptr);
    REQUIRE(feedline_batch_ready_on(batch, nullptr) == FEEDLINE_OK);
    DLManagedTensorVersioned* image = tensor_of(batch, "image");
    CHECK(image->version.major == 1);
    CHECK(image->flags == 0);
    CHECK(image->dl_tensor.device.device_type == kDLCPU);
    REQUIRE(image->dl_tensor.ndim == 2);
    CHECK(image->dl_tensor.shape[0] == 50);
    CHECK(image->dl_tensor.strides[0] == 64);
    image->deleter(image);
    feedline_batch_free(batch);
  }
  feedline_batch* none = nullptr;
  CHECK(feedline_feeder_next(feed.feeder, 0, -1, &none) == FEEDLINE_END_OF_EPOCH);
  CHECK(none == nullptr);
  char* report = nullptr;
  REQUIRE(feedline_feeder_report(feed.feeder, &report) == FEEDLINE_OK);
  CHECK(std::string(report).find("\"records\": 150") != std::string::npos);
  feedline_text_free(report);
}

TEST_CASE("c: a tensor outlives its batch and its feeder") {
  DLManagedTensorVersioned* label = nullptr;
  std::vector<int64_t> before;
  {
    Feed feed;
    feedline_batch* batch = feed.next();
    label = tensor_of(batch, "label");
    const auto* values = static_cast<const int64_t*>(label->dl_tensor.data);
    before.assign(values, values + 50);
    feedline_batch_free(batch);
    for (int step = 1; step < 3; step++) feedline_batch_free(feed.next());
  }
  CHECK(std::memcmp(label->dl_tensor.data, before.data(), 50 * sizeof(int64_t)) == 0);
  label->deleter(label);
}

TEST_CASE("c: batches that are held count") {
  Feed feed("parallelism { host_prefetch: 2 } batch { global_batch_size: 10 }");
  const size_t all = feedline_feeder_spare_batches(feed.feeder, 0);
  REQUIRE(all == 3);
  std::vector<feedline_batch*> held;
  for (size_t i = 0; i < all; i++) held.push_back(feed.next());
  CHECK(feedline_feeder_spare_batches(feed.feeder, 0) == 0);
  feedline_batch* more = nullptr;
  CHECK(feedline_feeder_next(feed.feeder, 0, -1, &more) == FEEDLINE_FAILED);
  CHECK(std::string(feedline_last_error()->category) == "stalled");
  feedline_batch* copy = nullptr;
  REQUIRE(feedline_batch_copy(held[0], &copy) == FEEDLINE_OK);
  for (feedline_batch* batch : held) feedline_batch_free(batch);
  CHECK(feedline_feeder_spare_batches(feed.feeder, 0) == 3);  // the copy does not count
  feedline_batch_info info = {};
  info.struct_size = sizeof info;
  REQUIRE(feedline_batch_get_info(copy, &info) == FEEDLINE_OK);
  CHECK((info.step == 0 && info.rows == 10));
  feedline_batch_free(copy);
}

TEST_CASE("c: states and epochs") {
  Feed feed, other;
  feedline_batch_free(feed.next());
  char* state = nullptr;
  REQUIRE(feedline_feeder_get_state(feed.feeder, -1, &state) == FEEDLINE_OK);
  REQUIRE(feedline_feeder_set_state(other.feeder, state, 0) == FEEDLINE_OK);
  feedline_text_free(state);
  feedline_batch* batch = other.next();
  feedline_batch_info info = {};
  info.struct_size = sizeof info;
  feedline_batch_get_info(batch, &info);
  CHECK(info.step == 1);
  feedline_batch_free(batch);
  REQUIRE(feedline_feeder_set_epoch(other.feeder, 7) == FEEDLINE_OK);
  batch = other.next();
  feedline_batch_get_info(batch, &info);
  CHECK(info.epoch == 7);
  CHECK(info.step == 0);
  feedline_batch_free(batch);
  CHECK(feedline_feeder_set_state(other.feeder, "nonsense", 0) == FEEDLINE_FAILED);
}

TEST_CASE("c: structs have a size") {
  Feed feed;
  feedline_batch* batch = feed.next();
  struct {
    feedline_batch_info info;
    uint64_t later;
  } longer = {{}, 7};
  longer.info.struct_size = sizeof longer;  // of a later version
  REQUIRE(feedline_batch_get_info(batch, &longer.info) == FEEDLINE_OK);
  CHECK(longer.info.rows == 50);
  CHECK(longer.info.struct_size == sizeof longer);
  CHECK(longer.later == 7);
  longer.info.struct_size = 0;
  CHECK(feedline_batch_get_info(batch, &longer.info) == FEEDLINE_FAILED);
  CHECK(std::string(feedline_last_error()->message).find("struct_size is 0") == 0);
  feedline_batch_free(batch);
  feedline_options options = {};
  feedline_feeder* feeder = nullptr;
  CHECK(feedline_feeder_new(feed.pipeline, &options, &feeder) == FEEDLINE_FAILED);
  options.struct_size = sizeof options;
  options.devices = "host:2";
  Feed two("", &options);
  CHECK(feedline_feeder_replicas(two.feeder) == 2);
  CHECK(std::string(feedline_feeder_monitor_address(two.feeder)).empty());

  options.monitor = "127.0.0.1:0";
  options.monitor_token = "secret";
  Feed shown("", &options);
  CHECK_THAT(feedline_feeder_monitor_address(shown.feeder), Catch::StartsWith("http://127.0.0.1:"));
  options.struct_size = offsetof(feedline_options, monitor);  // of a program that does not know of monitors
  Feed hidden("", &options);
  CHECK(std::string(feedline_feeder_monitor_address(hidden.feeder)).empty());
}

TEST_CASE("c: null pointers, long waits and texts") {
  feedline_pipeline* pipeline = nullptr;
  CHECK(feedline_pipeline_load(nullptr, &pipeline) == FEEDLINE_FAILED);
  CHECK(std::string(feedline_last_error()->message) == "file is NULL");
  CHECK(feedline_pipeline_parse(nullptr, nullptr, &pipeline) == FEEDLINE_FAILED);
  CHECK(feedline_feeder_new(nullptr, nullptr, nullptr) == FEEDLINE_FAILED);
  std::thread([] { CHECK(std::string(feedline_last_error()->text).empty()); }).join();
  Feed feed;
  const char* first = feedline_pipeline_text(feed.pipeline);
  CHECK(first == feedline_pipeline_text(feed.pipeline));
  feedline_batch* batch = nullptr;
  CHECK(feedline_feeder_next(feed.feeder, 0, INT64_MAX, &batch) == FEEDLINE_OK);
  DLManagedTensorVersioned* tensor = nullptr;
  CHECK(feedline_batch_tensor(batch, nullptr, &tensor) == FEEDLINE_FAILED);
  CHECK(feedline_batch_tensor(batch, "label", nullptr) == FEEDLINE_FAILED);
  CHECK(feedline_batch_copy(batch, nullptr) == FEEDLINE_FAILED);
  feedline_batch_free(batch);
  feedline_element element = {};
  char* text = nullptr;
  for (const feedline_status status :
       {feedline_feeder_next(feed.feeder, 0, 0, nullptr), feedline_feeder_next(nullptr, 0, 0, &batch),
        feedline_feeder_element(nullptr, 0, &element), feedline_feeder_get_state(feed.feeder, -1, nullptr),
        feedline_feeder_set_state(nullptr, "", 0), feedline_feeder_set_epoch(nullptr, 0),
        feedline_feeder_report(nullptr, &text), feedline_batch_ready_on(nullptr, nullptr),
        feedline_batch_get_info(nullptr, nullptr), feedline_pipeline_load("x", nullptr),
        feedline_feeder_next(feed.feeder, 3, 0, &batch)})
    CHECK(status == FEEDLINE_FAILED);
  CHECK(feedline_feeder_spare_batches(feed.feeder, 3) == 0);  // there is no such replica
  CHECK(feedline_feeder_spare_batches(nullptr, 0) == 0);
  CHECK(std::string(feedline_last_error()->message) == "feeder is NULL");
  CHECK(feedline_feeder_replicas(nullptr) == 0);
  CHECK(feedline_feeder_steps_per_epoch(nullptr) == -1);
  CHECK(feedline_feeder_samples_per_epoch(nullptr) == -1);
  CHECK(feedline_feeder_element_count(nullptr) == 0);
  CHECK(std::string(feedline_feeder_monitor_address(nullptr)).empty());
  CHECK(std::string(feedline_pipeline_text(nullptr)).empty());
  CHECK(std::string(feedline_last_error()->message) == "pipeline is NULL");
  CHECK(feedline_batch_tensor_name(nullptr, 0) == nullptr);
  CHECK(std::string(feedline_last_error()->message) == "batch is NULL");
  feedline_feeder_stop(nullptr);
}

TEST_CASE("c: a pipeline reads the files of the folder in which it was made") {
  const TempDir here, there;
  feedline::RecordWriter writer(here.file("x"));
  writer.write(std::as_bytes(std::span("\x0a\x00", 2)));
  writer.close();
  const char* const local =
      "source { files: 'x' } feature { name: 'n' dtype: INT64 default_value { int64_value: 1 } } "
      "batch { global_batch_size: 1 }";
  const std::filesystem::path before = std::filesystem::current_path();
  feedline_pipeline *in_dot = nullptr, *in_none = nullptr;
  std::filesystem::current_path(here.path());
  CHECK(feedline_pipeline_parse(local, ".", &in_dot) == FEEDLINE_OK);
  CHECK(feedline_pipeline_parse(local, nullptr, &in_none) == FEEDLINE_OK);
  std::filesystem::current_path(there.path());
  for (feedline_pipeline* pipeline : {in_dot, in_none}) {
    feedline_feeder* feeder = nullptr;
    CHECK(feedline_feeder_new(pipeline, nullptr, &feeder) == FEEDLINE_OK);
    feedline_feeder_free(feeder);
    feedline_pipeline_free(pipeline);
  }
  std::filesystem::current_path(before);
}

TEST_CASE("c: a failure for which there is no memory is told, too") {
  int out_of_memory = 0;
  std::string category;
  for (int64_t allowed = 0; category != "io_error"; allowed++) {
    feedline_pipeline* pipeline = nullptr;
    std::thread([&] {  // whose last error has no memory yet
      allocations_left = allowed;
      const feedline_status status = feedline_pipeline_load("a-file-that-is-not-there.textproto", &pipeline);
      const feedline_error* error = feedline_last_error();
      allocations_left = -1;
      CHECK(status == FEEDLINE_FAILED);
      category = error->category;
      CHECK((category == "io_error" || std::string(error->text) == "out of memory"));
    })
        .join();
    out_of_memory += category == "out_of_memory";
    REQUIRE(allowed < 1000);
  }
  CHECK(out_of_memory > 3);
}

TEST_CASE("c: numbers that no option can have") {
  const Feed feed;
  feedline_options options = {};
  options.struct_size = sizeof options;
  feedline_feeder* feeder = nullptr;
  options.threads = -5;
  CHECK(feedline_feeder_new(feed.pipeline, &options, &feeder) == FEEDLINE_FAILED);
  CHECK_THAT(feedline_last_error()->message,
             Catch::StartsWith("options.threads: the number is -5; give the number of threads"));
  options.threads = 0;
  options.start_epoch = UINT64_MAX;  // has no next one
  CHECK(feedline_feeder_new(feed.pipeline, &options, &feeder) == FEEDLINE_FAILED);
  CHECK_THAT(feedline_last_error()->message,
             Catch::StartsWith("state: epoch 18446744073709551615 is too large; epochs are"));
  CHECK(feedline_feeder_set_epoch(feed.feeder, uint64_t{1} << 63) == FEEDLINE_FAILED);
  CHECK(feeder == nullptr);
}

TEST_CASE("c: failures say what and where") {
  feedline_pipeline* pipeline = nullptr;
  CHECK(feedline_pipeline_load("none.textproto", &pipeline) == FEEDLINE_FAILED);
  CHECK(std::string(feedline_last_error()->category) == "io_error");
  CHECK(feedline_pipeline_parse("nonsense", "", &pipeline) == FEEDLINE_FAILED);
  CHECK(std::string(feedline_last_error()->category) == "bad_pipeline");
  CHECK(pipeline == nullptr);

  const TempDir dir;
  {
    feedline::RecordWriter writer(dir.file("x"));
    writer.write(std::as_bytes(std::span("\x0a\x00", 2)));
    writer.close();
  }
  REQUIRE(feedline_pipeline_parse(("source { files: '" + dir.file("x") +
                                   "' } feature { name: 'n' dtype: INT64 } batch { global_batch_size: 1 }")
                                      .c_str(),
                                  "", &pipeline) == FEEDLINE_OK);
  feedline_pipeline* changed = nullptr;
  REQUIRE(feedline_pipeline_with_field(pipeline, "batch.last_batch_policy", "PAD", &changed) == FEEDLINE_OK);
  CHECK(std::string(feedline_pipeline_text(changed)).find("PAD") != std::string::npos);
  feedline_pipeline* wider = nullptr;
  REQUIRE(feedline_pipeline_with(changed, "seed: 5", &wider) == FEEDLINE_OK);
  CHECK(std::string(feedline_pipeline_text(wider)).find("seed: 5") != std::string::npos);
  CHECK(feedline_pipeline_with_field(pipeline, "batch.none", "1", &changed) == FEEDLINE_FAILED);
  feedline_feeder* feeder = nullptr;
  feedline_options options = {};
  options.struct_size = sizeof options;
  options.backend = "mmap";
  CHECK(feedline_feeder_new(wider, &options, &feeder) == FEEDLINE_FAILED);
  CHECK(std::string(feedline_last_error()->message).find("options.backend: 'mmap'") == 0);
  REQUIRE(feedline_feeder_new(wider, nullptr, &feeder) == FEEDLINE_OK);
  feedline_batch* batch = nullptr;
  CHECK(feedline_feeder_next(feeder, 0, -1, &batch) == FEEDLINE_FAILED);
  const feedline_error* error = feedline_last_error();
  CHECK(std::string(error->category) == "missing_feature");
  CHECK(std::string(error->file) == dir.file("x"));
  CHECK(std::string(error->feature) == "n");
  CHECK(error->record == 0);
  CHECK(error->offset == 0);
  CHECK(feedline_feeder_next(feeder, 5, -1, &batch) == FEEDLINE_FAILED);
  feedline_feeder_free(feeder);
  for (feedline_pipeline* each : {pipeline, changed, wider}) feedline_pipeline_free(each);
}

TEST_CASE("c: callbacks") {
  const TempDir dir;
  {
    feedline::RecordWriter writer(dir.file("x"));
    for (int i = 0; i < 100; i++) writer.write(std::as_bytes(std::span("\x0a\x00", 2)));
    writer.close();
  }
  feedline_pipeline* pipeline = nullptr;
  REQUIRE(feedline_pipeline_parse(("source { files: '" + dir.file("x") +
                                   "' } feature { name: 'n' dtype: INT64 default_value { int64_value: 1 } } "
                                   "batch { global_batch_size: 10 }")
                                      .c_str(),
                                  "", &pipeline) == FEEDLINE_OK);
  feedline_options options = {};
  options.struct_size = sizeof options;
  options.on_progress = [](void*, uint64_t, uint64_t) { return int32_t{1}; };
  feedline_feeder* feeder = nullptr;
  CHECK(feedline_feeder_new(pipeline, &options, &feeder) == FEEDLINE_FAILED);
  CHECK(std::string(feedline_last_error()->message).find("on_progress") != std::string::npos);

  int calls = 0;
  options.on_progress = nullptr;
  options.exchange_context = &calls;
  options.exchange = [](void* context, const void* mine, size_t size, auto take, void* taker) {
    ++*static_cast<int*>(context);
    take(taker, mine, size);
    return int32_t{0};
  };
  options.world_size = 1;

  // Before the feeder is made, which begins to feed at once.
  struct Log {
    std::vector<std::string> lines;
    std::promise<void> come;
  } log;
  feedline_set_log_sink(
      [](void* context, int32_t level, const char* line) {
        auto& to = *static_cast<Log*>(context);
        to.lines.push_back(std::to_string(level) + " " + line);
        if (to.lines.size() == 1) to.come.set_value();
      },
      &log);
  REQUIRE(feedline_feeder_new(pipeline, &options, &feeder) == FEEDLINE_OK);

  feedline_batch* batch = nullptr;
  while (feedline_feeder_next(feeder, 0, -1, &batch) == FEEDLINE_OK) feedline_batch_free(batch);
  log.come.get_future().wait();  // a thread of the feeder logs the line
  feedline_set_log_sink(nullptr, nullptr);
  REQUIRE(log.lines.size() == 1);
  CHECK(log.lines[0].find("1 feature 'n'") == 0);

  std::thread stopper([&] { feedline_feeder_stop(feeder); });
  stopper.join();
  CHECK(feedline_feeder_next(feeder, 0, 0, &batch) == FEEDLINE_FAILED);
  CHECK(std::string(feedline_last_error()->category) == "stalled");
  feedline_feeder_free(feeder);
  feedline_pipeline_free(pipeline);
  CHECK(std::string(feedline_version()) == "0.1.0");
}
