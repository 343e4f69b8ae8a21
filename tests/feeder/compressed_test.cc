// Compressed files, which are inflated from many places at once: they are fed as plain files with the same records are,
// in every order.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "base/load.h"
#include "damage.h"
#include "data.h"
#include "flowgraph/chunk/file_inflater.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/feed/graph.h"
#include "flowgraph/order/ticket.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/plan/reader_memory.h"
#include "io/deflate.h"
#include "io/frames.h"
#include "io/index/count_records.h"
#include "io/index/index_store.h"
#include "support/catch.h"
#include "support/memory_source.h"
#include "support/more_seek_points.h"
#include "support/own_cache.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

std::string words(size_t size, std::mt19937& random) {
  std::string text;
  while (text.size() < size) text += "word" + std::to_string(random() % 3) + ' ';
  return text.substr(0, size);
}

std::string record_of(int64_t id, size_t size, std::mt19937& random) {
  return wire::example(wire::entry("id", wire::int64_feature({id})) +
                       wire::entry("text", wire::bytes_feature({words(size, random)})));
}

/// Returns where each record begins.
std::vector<size_t> starts_of(const std::string& frames) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < frames.size(); at += io::frame_bytes + load<uint64_t>(frames.data() + at))
    starts.push_back(at);
  return starts;
}

/// The same records in plain files, in the folder "plain", and in compressed ones, in "packed".
class Twins {
 public:
  Twins() {
    for (const char* kind : {"plain", "packed"}) fs::create_directory(dir_.file(kind));
  }
  /// Adds a file whose content is `frames`, compressed to `packed`.
  void add(const std::string& frames, const std::string& packed) {
    dir_.write("plain/" + name(files_), frames);
    dir_.write("packed/" + name(files_), packed);
    files_++;
  }
  std::string path(const std::string& kind, size_t file) const { return dir_.file(kind + "/" + name(file)); }
  Pipeline pipeline(const std::string& kind, const std::string& more) const {
    return parse_pipeline("source { files: 'part-*' index {} } feature { name: 'id' dtype: INT64 } " + more,
                          dir_.file(kind));
  }

  std::mt19937 random{7};
  /// Returns records with the next ids, framed.
  std::string frames(int64_t count, size_t smallest, size_t largest) {
    std::string all;
    for (int64_t i = 0; i < count; i++)
      all += frame(record_of(count_++, smallest + random() % (largest - smallest + 1), random));
    return all;
  }
  int64_t count() const { return count_; }

 private:
  static std::string name(size_t file) { return "part-00" + std::to_string(file); }
  TempDir dir_;
  size_t files_ = 0;
  int64_t count_ = 0;
};

/// Several MiB: many small records, an empty file, a file below a MiB, and large records that span several seek points.
const Twins& large() {
  static const std::unique_ptr<const Twins> twins = [] {
    auto all = std::make_unique<Twins>();
    const auto add = [&](const std::string& frames, int window_bits) {
      all->add(frames, deflated(frames, window_bits, 1));
    };
    add(all->frames(7000, 100, 800), 31);
    add("", 31);
    add(all->frames(300, 10, 900), 15);
    std::string mixed = all->frames(400, 10, 500);
    mixed += all->frames(1, 1'300'000, 1'300'000);
    mixed += all->frames(500, 10, 500);
    mixed += all->frames(1, 3'600'000, 3'600'000);
    mixed += all->frames(900, 10, 1500);
    add(mixed, 15);
    return all;
  }();
  return *twins;
}

/// Returns the ids of the valid rows of an epoch, replica after replica, batch by batch.
std::vector<std::vector<int64_t>> batches_of(const Pipeline& pipeline, const Options& options) {
  Feeder feeder(pipeline, options);
  std::vector<std::vector<int64_t>> all;
  for (const Epoch& epoch : read_epoch(feeder)) all.insert(all.end(), epoch.ids.begin(), epoch.ids.end());
  return all;
}

Options with_threads(int threads, int count = 1) {
  Options options = replicas(count);
  options.threads = threads;
  return options;
}

std::vector<int64_t> sorted(std::vector<int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}
std::vector<int64_t> flat(const std::vector<std::vector<int64_t>>& batches) {
  std::vector<int64_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

const std::string block = "shuffle { mode: BLOCK buffer_size: 2000 } seed: 5 ";

}  // namespace

TEST_CASE("the files of these tests have seek points, also inside of records") {
  const Twins& twins = large();
  const auto index = [&](size_t file) { return io::count_records(twins.path("packed", file), {}); };
  CHECK(index(0).seek_points.size() >= 2);
  CHECK(index(1).seek_points.empty());
  CHECK(index(2).seek_points.empty());
  const io::FileIndex last = index(3);
  CHECK(last.compression == Compression::zlib);
  REQUIRE(last.seek_points.size() >= 3);
  size_t inside = 0;  // points between which no record begins
  for (size_t i = 1; i < last.seek_points.size(); i++)
    inside += std::ranges::none_of(last.entries, [&](const io::IndexEntry& entry) {
      return entry.offset >= last.seek_points[i - 1].point.offset && entry.offset < last.seek_points[i].point.offset;
    });
  CHECK(inside >= 1);
}

TEST_CASE("compressed files of several MiB are fed as plain ones are, in every order that blocks do not decide") {
  const Twins& twins = large();
  const std::vector<std::string> orders = {
      "",
      "interleave { cycle_length: 3 block_length: 7 } ",
      "shuffle { mode: BUFFER buffer_size: 700 } seed: 3 ",
      "shuffle { mode: BUFFER buffer_size: 100 shuffle_files: true } interleave { cycle_length: 2 } seed: 3 ",
      "window { size: 4 shift: 3 stride: 2 } ",
      "window { size: 3 across_files: true } ",
      "window { size: 3 shift: 1 } shuffle { mode: BUFFER buffer_size: 60 } ",
      "window { size: 3 across_files: true } shuffle { mode: BUFFER buffer_size: 60 } ",
      "filter: 'mod(id, 3) == 1' epoch { repeat: 2 } "};
  for (const std::string& order : orders)
    for (const auto& [threads, count] : {std::pair(1, 1), std::pair(3, 2)}) {
      INFO(order << threads);
      const std::string text = order + batch_of(512, "PARTIAL");
      const Options options = with_threads(threads, count);
      CHECK(batches_of(twins.pipeline("packed", text), options) == batches_of(twins.pipeline("plain", text), options));
    }
  for (const auto& [field, value] : {std::pair("source.range", "4000:8500"), std::pair("source.range", "97%:100%"),
                                     std::pair("source.index.stride", "64KiB")})
    for (const std::string& order : {std::string(), orders[1], orders[2]}) {
      INFO(order << field << value);
      const auto fed = [&](const char* kind) {
        return batches_of(twins.pipeline(kind, order + batch_of(512, "PARTIAL")).with(field, value), with_threads(2));
      };
      CHECK(fed("packed") == fed("plain"));
    }
  // Few samples, because half a MiB is inflated for each.
  for (const std::string more : {"", "window { size: 4 shift: 3 stride: 2 across_files: true } "})
    for (const int threads : {1, 3}) {
      INFO(more << threads);
      const auto fed = [&](const char* kind) {
        return batches_of(twins.pipeline(kind, "shuffle { mode: GLOBAL } seed: 4 " + more + batch_of(512, "PARTIAL"))
                              .with("source.range", "6500:8000"),
                          with_threads(threads));
      };
      CHECK(fed("packed") == fed("plain"));
    }
  const auto with_shards = [&](const char* kind, const char* shard) {
    return batches_of(
        twins.pipeline(kind, batch_of(512, "PARTIAL")).with("source.num_shards", "3").with("source.shard_id", shard),
        with_threads(2));
  };
  for (const char* shard : {"0", "1", "2"}) CHECK(with_shards("packed", shard) == with_shards("plain", shard));
}

TEST_CASE("a mixture has compressed sources") {
  const Twins& twins = large();
  const auto pipeline = [&](const std::string& first, const std::string& second, const std::string& order) {
    return parse_pipeline(
        "source { files: '" + twins.path(first, 0) + "' weight: 2 } source { files: '" + twins.path(second, 2) +
        "' files: '" + twins.path(second, 3) +
        "' weight: 1 } feature { name: 'id' dtype: INT64 } mixture { stop: ALL_DATASETS_EXHAUSTED } seed: 9 " + order +
        batch_of(512, "PARTIAL"));
  };
  for (const std::string order : {"", "shuffle { mode: BUFFER buffer_size: 300 } ", "interleave { cycle_length: 2 } ",
                                  "shuffle { mode: GLOBAL } "}) {
    INFO(order);
    const auto plain = batches_of(pipeline("plain", "plain", order), with_threads(2));
    for (const auto& [first, second] : {std::pair("packed", "packed"), std::pair("plain", "packed")})
      CHECK(batches_of(pipeline(first, second, order), with_threads(2)) == plain);
  }
  const std::string blocks = "shuffle { mode: BLOCK buffer_size: 500 } ";
  const auto mixed = batches_of(pipeline("plain", "packed", blocks), with_threads(1));
  CHECK(sorted(flat(mixed)) == numbers(twins.count()));
  CHECK(batches_of(pipeline("plain", "packed", blocks), with_threads(3)) == mixed);
}

TEST_CASE("plain and compressed files of one source are read together") {
  const Twins& twins = large();
  const auto pipeline = [&](const std::vector<const char*>& kinds, const std::string& order) {
    std::string files;
    for (size_t file = 0; file < kinds.size(); file++) files += "files: '" + twins.path(kinds[file], file) + "' ";
    return parse_pipeline("source { " + files + "} feature { name: 'id' dtype: INT64 } seed: 9 " + order +
                          batch_of(512, "PARTIAL"));
  };
  const std::string windows = "window { size: 3 across_files: true } ";
  for (const std::string& order : {std::string("shuffle { mode: GLOBAL } "), "shuffle { mode: GLOBAL } " + windows,
                                   std::string("shuffle { mode: BUFFER buffer_size: 300 } "),
                                   "shuffle { mode: BUFFER buffer_size: 90 } " + windows}) {
    INFO(order);
    const auto plain = batches_of(pipeline({"plain", "plain", "plain", "plain"}, order), with_threads(2));
    for (const int threads : {1, 3}) {
      CHECK(batches_of(pipeline({"packed", "plain", "plain", "packed"}, order), with_threads(threads)) == plain);
      CHECK(batches_of(pipeline({"plain", "plain", "packed", "plain"}, order), with_threads(threads)) == plain);
    }
  }
}

TEST_CASE("BLOCK feeds each sample of compressed files once, in an order that ranks and threads do not change") {
  const Twins& twins = large();
  for (const std::string& order :
       {block, "shuffle { block_size: '2MiB' lanes: 2 } seed: 5 " + std::string(), block + "epoch { repeat: 2 } "}) {
    INFO(order);
    const Pipeline pipeline = twins.pipeline("packed", order + batch_of(480, "PARTIAL"));
    const auto global = [&](int world_size, int count, int threads) {
      std::vector<std::vector<int64_t>> batches;
      for (int rank = 0; rank < world_size; rank++) {
        Options options = with_threads(threads, count);
        options.rank = rank;
        options.world_size = world_size;
        Feeder feeder(pipeline, options);
        for (const Epoch& epoch : read_epoch(feeder)) {
          batches.resize(epoch.ids.size());
          for (size_t step = 0; step < epoch.ids.size(); step++)
            batches[step].insert(batches[step].end(), epoch.ids[step].begin(), epoch.ids[step].end());
        }
        if (world_size > 1) continue;
        REQUIRE(feeder.report().last_epoch);
        CHECK(feeder.report().last_epoch->verdict == EpochAudit::Verdict::holds);
      }
      return batches;
    };
    const auto alone = global(1, 1, 1);
    std::vector<int64_t> wanted = numbers(twins.count());
    if (order.find("repeat") != order.npos) wanted.insert(wanted.end(), wanted.begin(), wanted.end());
    CHECK(sorted(flat(alone)) == sorted(wanted));
    CHECK(flat(alone) != wanted);
    CHECK(global(1, 1, 3) == alone);
    CHECK(global(3, 1, 1) == alone);
    CHECK(global(2, 2, 2) == alone);
  }
  const Pipeline windows = twins.pipeline("packed", block + "window { size: 3 } " + batch_of(160, "DROP"));
  const auto frames = [&](int threads) {
    std::vector<int64_t> ids;
    Feeder feeder(windows, with_threads(threads));
    while (const Batch batch = feeder.next(0)) {
      const auto more = batch.at("id").as<int64_t>();
      ids.insert(ids.end(), more.begin(), more.end());
    }
    return ids;
  };
  const std::vector<int64_t> ids = frames(2);
  CHECK(frames(1) == ids);
  REQUIRE(ids.size() % (3 * 160) == 0);
  std::set<int64_t> seen;
  for (size_t frame = 0; frame < ids.size(); frame += 3) {
    CHECK(ids[frame + 1] == ids[frame] + 1);
    CHECK(ids[frame + 2] == ids[frame] + 2);
    CHECK(seen.insert(ids[frame]).second);
  }
  // Blocks that a window leaves for the next file.
  const std::string across = block + "window { size: 300 shift: 100 across_files: true } " + batch_of(2, "PARTIAL");
  const auto firsts = [&](int threads) {
    std::vector<int64_t> first;
    Feeder feeder(twins.pipeline("packed", across), with_threads(threads));
    while (const Batch batch = feeder.next(0)) {
      const auto rows = batch.at("id").as<int64_t>();
      for (size_t row = 0; row < rows.size(); row++)
        CHECK(rows[row] == rows[row - row % 300] + static_cast<int64_t>(row % 300));
      for (size_t row = 0; row < rows.size(); row += 300) first.push_back(rows[row]);
    }
    return first;
  };
  const std::vector<int64_t> all = firsts(2);
  CHECK(all == firsts(1));
  CHECK(std::set(all.begin(), all.end()).size() == static_cast<size_t>((twins.count() - 300) / 100 + 1));
  CHECK(all.size() == static_cast<size_t>((twins.count() - 300) / 100 + 1));
}

TEST_CASE("a plan that is too large is told what helps, and compressed files have no smaller blocks") {
  const Twins& twins = large();
  const auto advice = [&](const char* kind, const std::string& block_size) {
    try {
      Feeder feeder(twins.pipeline(kind, "shuffle { lanes: 32 block_size: '" + block_size + "' } " +
                                             batch_of(512, "DROP") + "memory { limit: '24MiB' }"));
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  CHECK_THAT(advice("plain", "1MiB"), Contains("fewer shuffle.lanes, or a smaller shuffle.block_size"));
  CHECK_THAT(advice("packed", "64KiB"),
             Contains("fewer shuffle.lanes, or write the compressed files anew with `feedline split`"));
}

TEST_CASE("a feed of compressed files goes on at any step") {
  const Twins& twins = large();
  for (const std::string& order :
       {std::string(), block, std::string("shuffle { mode: BUFFER buffer_size: 400 } seed: 3 "),
        std::string("interleave { cycle_length: 3 block_length: 50 } ")}) {
    INFO(order);
    const Pipeline pipeline = twins.pipeline("packed", order + batch_of(1200, "PAD"));
    Feeder straight(pipeline, with_threads(2, 2)), again(pipeline, with_threads(2, 2));
    const std::vector<Epoch> wanted = read_epoch(straight);
    for (int64_t step = 0; step <= straight.steps_per_epoch(); step++) {
      again.set_state(straight.get_state(0, step));
      const std::vector<Epoch> rest = read_epoch(again);
      for (size_t replica = 0; replica < wanted.size(); replica++)
        CHECK(rest[replica].ids == std::vector(wanted[replica].ids.begin() + step, wanted[replica].ids.end()));
    }
  }
}

TEST_CASE("a state of BLOCK is refused where compressed files are cut into other blocks") {
  const Twins& twins = large();
  const auto pipeline = [&](const std::string& order, const char* stride) {
    return twins.pipeline("packed", order + batch_of(500, "DROP")).with("source.index.stride", stride);
  };
  for (const std::string& order : {block, std::string()}) {
    Feeder saved(pipeline(order, "16KiB")), same(pipeline(order, "16KiB")), other(pipeline(order, "128KiB"));
    const std::string state = saved.get_state(1, 3);
    same.set_state(state);
    if (order.empty())
      other.set_state(state);
    else
      CHECK_THROWS_WITH(other.set_state(state), Contains("changed: shuffle"));
  }
}

TEST_CASE("a bad record in a good stream is left out, and the records after it are fed from everywhere") {
  Twins twins;
  std::string frames = twins.frames(1500, 500, 1500);
  const std::string more = twins.frames(10, 100, 100);
  const std::vector<size_t> starts = starts_of(frames);
  for (const size_t record : {0, 700, 1400}) frames[starts[record] + io::header_bytes + 100] ^= 1;
  frames.resize(frames.size() - 20);  // the last record lacks its end
  twins.add(frames, deflated(frames, 31, 1));
  twins.add(more, deflated(more, 31, 1));
  const std::string skip = "errors { on_error: SKIP_RECORD } " + batch_of(100, "PARTIAL");
  const auto fed = [&](const char* kind, const std::string& order) {
    return batches_of(twins.pipeline(kind, order + skip), with_threads(2));
  };
  // A bad length ends a compressed file, where a plain one goes on; so all the damage is in payloads.
  const auto plain = fed("plain", "");
  CHECK(std::ssize(flat(plain)) == twins.count() - 4);
  for (const std::string order : {"", "shuffle { mode: BUFFER buffer_size: 90 } ", "interleave { cycle_length: 2 } ",
                                  "shuffle { mode: GLOBAL } "})
    CHECK(fed("packed", order) == fed("plain", order));
  CHECK(sorted(flat(fed("packed", block))) == sorted(flat(plain)));
}

TEST_CASE("a stream that breaks off, and one whose records are lost, end a file where they end") {
  Twins twins;
  const std::string frames = twins.frames(4000, 500, 1500), packed = deflated(frames, 31, 1);
  twins.add(frames, packed.substr(0, packed.size() / 2));
  std::string lost = twins.frames(3000, 500, 1500);
  lost.replace(starts_of(lost)[400], 4000, 4000, '\0');  // no record after it can be found
  twins.add(lost, deflated(lost, 31, 1));                // seek points lie after its last good record
  const std::string skip = "errors { on_error: SKIP_RECORD } " + batch_of(100, "PARTIAL");
  const std::vector<int64_t> in_order = flat(batches_of(twins.pipeline("packed", skip), with_threads(2)));
  CHECK(std::is_sorted(in_order.begin(), in_order.end()));
  CHECK(in_order.size() > 1000);
  CHECK(in_order.size() < 4000);
  CHECK(std::ranges::count_if(in_order, [](int64_t id) { return id >= 4000; }) > 100);
  for (const std::string& order :
       {block, std::string("shuffle { mode: BUFFER buffer_size: 90 } "), std::string("interleave { cycle_length: 2 } "),
        std::string("shuffle { block_size: '64KiB' } "), std::string("shuffle { mode: GLOBAL } ")}) {
    INFO(order);
    CHECK(sorted(flat(batches_of(twins.pipeline("packed", order + skip), with_threads(2)))) == in_order);
  }
  Feeder raises(twins.pipeline("packed", batch_of(100, "DROP")));
  int64_t next = 0;
  try {
    while (const Batch batch = raises.next())
      for (const int64_t id : batch.at("id").as<int64_t>()) CHECK(id == next++);
    FAIL("the damage was not raised");
  } catch (const Error& error) {
    CHECK(error.category() == Category::bad_compression);
  }
  CHECK(next % 100 == 0);
  CHECK(next > 1000);
}

TEST_CASE("damage that comes after counting gives right rows or an error") {
  Twins twins;
  const std::string frames = twins.frames(5000, 300, 900);
  twins.add(frames, deflated(frames, 31, 1));
  const std::string path = twins.path("packed", 0);
  const uint64_t size = fs::file_size(path);
  { Feeder counts(twins.pipeline("packed", batch_of(10, "DROP"))); }
  size_t errors = 0;
  for (const std::string& order : {std::string(), block, std::string("shuffle { mode: BUFFER buffer_size: 90 } "),
                                   std::string("shuffle { mode: GLOBAL } ")})
    for (const char* on_error : {"RAISE", "SKIP_RECORD"})
      for (const uint64_t part : {1, 5, 9}) {
        INFO(order << on_error << " " << part);
        HiddenDamage damage(path);
        damage.flip(size * part / 10);
        std::set<int64_t> seen;
        try {
          Feeder feeder(
              twins.pipeline("packed", order + "errors { on_error: " + on_error + " } " + batch_of(100, "PAD")),
              with_threads(2));
          for (const int64_t id : read_epoch(feeder).front().all())
            CHECK((id >= 0 && id < 5000 && seen.insert(id).second));
        } catch (const Error& error) {
          errors++;
          CHECK(error.place().file == path);
        }
        damage.flip(size * part / 10);
      }
  CHECK(errors > 0);
}

namespace {

/// Files in memory. Reads that reach beyond an offset of a file fail.
class Breaking final : public MemorySource {
 public:
  using MemorySource::MemorySource;
  std::unique_ptr<io::ReadBackend> make_read_backend(std::vector<io::FileId> files, const io::BackendOptions&,
                                                     io::ReadDone done) const override {
    std::vector<const std::string*> all;
    for (const io::FileId& file : files) all.push_back(&bytes_of(file.uri));
    return std::make_unique<MemoryBackend>(std::move(all), std::vector<uint64_t>(files.size(), broken_from),
                                           std::move(done));
  }
  uint64_t broken_from = UINT64_MAX;
};

/// Feeds an epoch of all ranks. Returns the global batches, in which -1 stands for filler.
std::vector<std::vector<int64_t>> fed(const flow::PipelineSpec& spec, const std::shared_ptr<const flow::DataSet>& data,
                                      const flow::Ranks& all, int threads, flow::Walk::Start start = {}) {
  std::vector<std::vector<int64_t>> batches;
  for (int rank = 0; rank < all.world_size; rank++) {
    const flow::Plan plan(spec, data, {rank, all.world_size, all.replicas}, threads);
    flow::Graph graph(plan, {.copied_to = std::vector(static_cast<size_t>(all.replicas), host()),
                             .io = {},
                             .start = start,
                             .deliver_before_error = false});
    bool ended = false;
    for (size_t step = 0; !ended; step++)
      for (int replica = 0; replica < all.replicas; replica++) {
        Batch batch;
        ended = graph.delivery().next(replica, std::nullopt, batch) == flow::Delivery::Outcome::end_of_epoch;
        if (ended) continue;
        batches.resize(std::max(batches.size(), step + 1));
        const auto ids = batch.at("id").as<int64_t>();
        const auto valid = batch.at("@valid").as<uint8_t>();
        for (size_t row = 0; row < ids.size(); row++) batches[step].push_back(valid[row] ? ids[row] : -1);
      }
  }
  return batches;
}

/// Little data that has very many seek points.
struct Dense {
  explicit Dense(bool packed, uint64_t spacing = 1) {
    std::mt19937 random(11);
    MemorySource::Files stored;
    for (const int64_t count : {200, 0, 1, 120, 40}) {
      std::string frames;
      for (int64_t i = 0; i < count; i++) {
        const size_t size = random() % 20 == 0 ? 3000 : random() % 200;
        frames += frame(wire::example(wire::entry("id", wire::int64_feature({samples++})) +
                                      wire::entry("text", wire::bytes_feature({random_text(size, random)}))));
      }
      const std::string uri = "memory://d/part-" + std::to_string(stored.size());
      stored[uri] = packed ? deflated_in_parts(frames, stored.size() % 2 == 0 ? 31 : 15, 700) : frames;
    }
    files.emplace(std::move(stored));
    mounted.emplace(*files);
    auto counted = std::make_shared<flow::DataSet>(flow::count_data(spec("errors { on_error: SKIP_RECORD } "), 1, {}));
    for (flow::DataFile& file : counted->files)
      if (packed) find_more_seek_points(file.index, bytes_of(files->bytes_of(file.id.uri)), spacing);
    data = std::move(counted);
  }
  flow::PipelineSpec spec(const std::string& more) const {
    return flow::validate(
        parse_pipeline("source { files: 'memory://d/part-*' index { stride: '512' } } "
                       "feature { name: 'id' dtype: INT64 } " +
                       more + batch_of(24, "PAD")));
  }

  int64_t samples = 0;
  TempDir folder;
  OwnCache cache{folder.path()};
  std::optional<Breaking> files;
  std::optional<Mounted> mounted;
  std::shared_ptr<const flow::DataSet> data;  // the same for every order
};

}  // namespace

TEST_CASE("with a seek point for nearly each record, compressed files are fed as plain ones are") {
  const std::vector<std::string> orders = {
      "",
      "interleave { cycle_length: 3 block_length: 2 } ",
      "shuffle { mode: BUFFER buffer_size: 40 } seed: 3 ",
      "shuffle { mode: BUFFER buffer_size: 7 } interleave { cycle_length: 2 } seed: 3 ",
      "window { size: 5 shift: 2 } ",
      "window { size: 5 shift: 2 across_files: true drop_remainder: false } ",
      "window { size: 3 shift: 1 } shuffle { mode: BUFFER buffer_size: 20 } ",
      "window { size: 5 shift: 2 across_files: true } shuffle { mode: BUFFER buffer_size: 20 } ",
      "shuffle { mode: GLOBAL } seed: 2 ",
      "shuffle { mode: GLOBAL } window { size: 5 shift: 2 across_files: true drop_remainder: false } "};
  std::map<std::string, std::vector<std::vector<int64_t>>> plain;
  {
    const Dense data(false);
    for (const std::string& order : orders) {
      plain[order] = fed(data.spec(order), data.data, {.replicas = 1}, 1);
    }
  }
  for (const uint64_t spacing : {1, 3000}) {
    const Dense data(true, spacing);
    REQUIRE(data.data->files[0].index.seek_points.size() > (spacing == 1 ? 50 : 10));
    for (const std::string& order : orders) {
      INFO(order << spacing);
      const flow::PipelineSpec spec = data.spec(order);
      for (const int threads : {1, 2, 4}) CHECK(fed(spec, data.data, {.replicas = 1}, threads) == plain[order]);
      CHECK(fed(spec, data.data, {.world_size = 3, .replicas = 2}, 2) == plain[order]);
      for (int64_t step = 0; step < std::ssize(plain[order]); step += 5)
        CHECK(fed(spec, data.data, {.replicas = 1}, 2, {.epoch = 0, .step = step}) ==
              std::vector(plain[order].begin() + step, plain[order].end()));
    }
  }
}

TEST_CASE("with a seek point for nearly each record, BLOCK feeds each sample once") {
  for (const uint64_t spacing : {1, 4000}) {
    const Dense data(true, spacing);
    for (const std::string order :
         {"shuffle { block_size: '512' buffer_size: 60 } seed: 2 ", "shuffle { block_size: '4KiB' lanes: 1 } seed: 2 ",
          "shuffle { block_size: '512' buffer_size: 20 } window { size: 1 } "}) {
      INFO(order << spacing);
      const flow::PipelineSpec spec = data.spec(order);
      const auto alone = fed(spec, data.data, {.replicas = 1}, 1);
      std::vector<int64_t> ids = flat(alone);
      std::erase(ids, -1);
      CHECK(sorted(ids) == numbers(data.samples));
      for (const int threads : {2, 4}) CHECK(fed(spec, data.data, {.replicas = 1}, threads) == alone);
      CHECK(fed(spec, data.data, {.world_size = 3, .replicas = 2}, 2) == alone);
      for (int64_t step = 0; step < std::ssize(alone); step += 5)
        CHECK(fed(spec, data.data, {.replicas = 1}, 2, {.epoch = 0, .step = step}) ==
              std::vector(alone.begin() + step, alone.end()));
    }
  }
}

TEST_CASE("a read that fails in the midst of a section ends the feed with its reason") {
  Dense data(true);
  uint64_t size = 0;
  for (const std::string& order :
       {std::string(), std::string("shuffle { block_size: '512' buffer_size: 60 } "),
        std::string("shuffle { mode: BUFFER buffer_size: 30 } "), std::string("shuffle { mode: GLOBAL } ")}) {
    const flow::PipelineSpec spec = data.spec(order);
    for (const flow::DataFile& file : data.data->files) size = std::max(size, file.id.size);
    const auto right = fed(spec, data.data, {.replicas = 1}, 2);
    for (const uint64_t from : {uint64_t{1}, size / 3, size - 1}) {
      INFO(order << from);
      data.files->broken_from = from;
      const flow::Plan plan(spec, data.data, {}, 2);
      flow::Graph graph(plan, {.copied_to = {host()}, .io = {}, .start = {}, .deliver_before_error = false});
      size_t step = 0;
      try {
        for (Batch batch;; step++) {
          const auto outcome = graph.delivery().next(0, std::nullopt, batch);
          REQUIRE(outcome == flow::Delivery::Outcome::batch);
          const auto ids = batch.at("id").as<int64_t>();
          for (size_t row = 0; row < ids.size(); row++)
            if (batch.at("@valid").as<uint8_t>()[row]) CHECK(ids[row] == right.at(step)[row]);
        }
      } catch (const Error& error) {
        CHECK(error.category() == Category::io_error);
        CHECK_THAT(error.place().file, Catch::StartsWith("memory://d/part-"));
      }
      CHECK(step < right.size());
      data.files->broken_from = UINT64_MAX;
    }
  }
}

TEST_CASE("a compressed file that another one has taken the place of is not fed as the one that was counted") {
  Dense data(true);
  for (const std::string& order : {std::string(), std::string("shuffle { block_size: '512' buffer_size: 60 } "),
                                   std::string("shuffle { mode: GLOBAL } ")}) {
    const flow::PipelineSpec spec = data.spec(order + "errors { on_error: SKIP_RECORD } ");
    const std::string& uri = data.data->files[0].id.uri;
    std::string& file = data.files->bytes_of(uri);
    const std::string before = file;
    std::mt19937 other(1);
    std::string frames;
    for (int64_t id = 1000; id < 1400; id++) frames += frame(record_of(id, other() % 400, other));
    file = deflated_in_parts(frames, 31, 500);
    file.resize(before.size());  // longer than the stream: zeros; shorter: it breaks off
    try {
      const auto batches = fed(spec, data.data, {.replicas = 1}, 2);
      // The records of the front may be fed, as they would be of a plain file.
      CHECK(std::ranges::count_if(flat(batches), [](int64_t id) { return id >= 0 && id < 200; }) == 0);
    } catch (const Error& error) {
      CHECK(error.place().file == uri);
      CHECK_FALSE(error.message().empty());
    }
    file = before;
  }
}

namespace {

// An inflater whose reads are answered at once, as a backend answers them.
struct Inflating {
  Inflating(const flow::Plan& plan, const MemorySource& source)
      : inflater(plan, memory,
                 {.read =
                      [this, &plan, &source](uint32_t file, flow::FileInflater::Input& input) {
                        asked.emplace_back(&source.bytes_of(plan.data.files[file].id.uri), &input);
                      },
                  .done = [this](const flow::ChunkRef& chunk) { done = chunk; },
                  .idle = [this](flow::FileInflater*) { idle = true; }}) {}

  void serve() {
    while (!asked.empty()) {
      const std::string& file = *asked.front().first;
      flow::FileInflater::Input& input = *asked.front().second;
      asked.erase(asked.begin());
      REQUIRE(input.offset % io::block_bytes == 0);
      REQUIRE(input.length > 0);
      REQUIRE(input.length <= flow::inflater_input_bytes);
      REQUIRE(input.offset + input.length <= file.size());
      read += input.length;
      std::memcpy(input.buffer + input.offset % io::block_bytes, file.data() + input.offset, input.length);
      if (inflater.arrived(input, 0)) inflater.run();
    }
  }
  std::string take(uint64_t offset, uint64_t length) {
    flow::Ticket ticket;
    ticket.extents = {{.file = 0, .offset = offset, .length = length, .rows = 1}};
    REQUIRE(inflater.continues_with(ticket));
    return take(std::move(ticket));
  }
  std::string take(flow::Ticket ticket) {
    std::vector<std::byte> slot(ticket.bytes());
    const auto chunk = std::make_shared<flow::Chunk>(0, slot, std::span<std::byte>());
    std::byte* at = slot.data();
    for (const flow::Extent& extent : ticket.extents) {
      chunk->extents.push_back(at);
      at += extent.length;
    }
    chunk->ticket = std::move(ticket);
    done = nullptr;
    if (inflater.add(chunk)) inflater.run();
    serve();
    REQUIRE(done == chunk);
    if (chunk->failed) FAIL(chunk->failed->what());
    return std::string(text_of(std::span<const std::byte>(slot)));
  }
  void close() {
    if (inflater.finish()) inflater.run();
    serve();
    REQUIRE(idle);
    idle = false;
  }

  std::vector<std::byte> memory{flow::inflater_memory_bytes};
  std::vector<std::pair<const std::string*, flow::FileInflater::Input*>> asked;
  flow::ChunkRef done;
  bool idle = false;
  uint64_t read = 0;  // bytes of the file
  flow::FileInflater inflater;
};

}  // namespace

TEST_CASE("an inflater begins at the seek point before an offset, and reads little more than its section") {
  std::mt19937 random(4);
  std::string text;
  for (int i = 0; i < 30; i++) text += frame(random() % 2 == 0 ? random_text(10'000, random) : words(10'000, random));
  const std::string file = deflated_in_parts(text, 31, 4000);
  const MemorySource source({{"memory://f", file}});
  const Mounted mounted(source);
  const TempDir folder;
  const OwnCache cache(folder.path());
  const flow::PipelineSpec spec = flow::validate(
      parse_pipeline("source { files: 'memory://f' record_type: RAW } feature { name: 'record' dtype: BYTES } " +
                     batch_of(1, "DROP")));
  auto data = std::make_shared<flow::DataSet>(flow::count_data(spec, 1, {}));
  io::FileIndex& index = data->files[0].index;
  find_more_seek_points(index, bytes_of(file), 20'000);
  REQUIRE(index.seek_points.size() >= 10);
  const flow::Plan plan(spec, data, {}, 1);
  Inflating one(plan, source);
  const auto bit_after = [&](uint64_t offset) {  // where the block begins before which the stream has come to `offset`
    const size_t number = index.seek_point_before(offset);
    return number < index.seek_points.size() ? index.seek_points[number].point.bit : 8 * file.size();
  };
  for (int i = 0; i < 300; i++) {
    uint64_t offset = random() % text.size();
    const size_t number = index.seek_point_before(offset);
    const uint64_t begin = number == 0 ? 0 : index.seek_points[number - 1].point.bit / 8;
    const uint64_t section_end =
        number < index.seek_points.size() ? index.seek_points[number].point.offset : text.size();
    one.read = 0;
    one.inflater.open(0, offset);
    INFO(offset);
    for (int chunks = 1 + static_cast<int>(random() % 3); chunks > 0; chunks--) {
      const uint64_t length = std::min<uint64_t>(text.size() - offset, random() % (i % 5 == 0 ? 200'000 : 30'000));
      CHECK((one.take(offset, length) == text.substr(offset, length)));
      offset += length;
      if (random() % 2 == 0) offset = std::min<uint64_t>(text.size(), offset + random() % 5000);
      if (one.inflater.at_end_of_section() || offset >= section_end) break;
    }
    one.close();
    // Up to the end of the section that was reached, and what lies in the blocks of the disk around it.
    CHECK(one.read <= bit_after(offset) / 8 + 1 - begin + 3 * io::block_bytes + 200'000);
  }
  // A section that has been read to its end takes no more tickets.
  one.inflater.open(0, 0);
  const uint64_t end = index.seek_points[0].point.offset;
  CHECK((one.take(0, end / 2) == text.substr(0, end / 2)));
  CHECK((one.take(end / 2, end - end / 2 + 49) == text.substr(end / 2, end - end / 2 + 49)));
  CHECK(one.inflater.at_end_of_section());
  flow::Ticket next;
  next.extents = {{.file = 0, .offset = end + 49, .length = 10, .rows = 1}};
  CHECK_FALSE(one.inflater.continues_with(next));
  one.close();
}

TEST_CASE("an inflater fills a ticket from random places of several files, and inflates no byte twice") {
  std::mt19937 random(8);
  std::vector<std::string> texts(3);
  for (std::string& text : texts)
    for (int i = 0; i < 30; i++) text += frame(random() % 2 == 0 ? random_text(10'000, random) : words(10'000, random));
  const MemorySource source({{"memory://f/0", deflated_in_parts(texts[0], 31, 4000)},
                             {"memory://f/1", texts[1]},
                             {"memory://f/2", deflated_in_parts(texts[2], 15, 4000)}});
  const Mounted mounted(source);
  const TempDir folder;
  const OwnCache cache(folder.path());
  const flow::PipelineSpec spec = flow::validate(
      parse_pipeline("source { files: 'memory://f/*' record_type: RAW } feature { name: 'record' dtype: BYTES } " +
                     batch_of(1, "DROP")));
  auto data = std::make_shared<flow::DataSet>(flow::count_data(spec, 1, {}));
  uint64_t most = 0;  // bytes of all files
  for (flow::DataFile& file : data->files) {
    if (file.compressed())
      find_more_seek_points(file.index, bytes_of(source.bytes_of(file.id.uri)), most == 0 ? 20'000 : 150'000);
    most += file.id.size;
  }
  const flow::Plan plan(spec, data, {}, 1);
  Inflating one(plan, source);
  for (int i = 0; i < 300; i++) {
    flow::Ticket ticket;
    ticket.inflates = true;
    ticket.scattered = random() % 4 > 0;
    std::string wanted;
    for (uint64_t extents = 1 + random() % 20; extents > 0; extents--) {
      const auto file = static_cast<uint32_t>(random() % 3);
      const uint64_t offset = random() % texts[file].size();
      const uint64_t length = std::min<uint64_t>(texts[file].size() - offset, random() % (i % 5 == 0 ? 100'000 : 5000));
      ticket.extents.push_back({.file = file, .offset = offset, .length = length, .rows = 1});
      wanted += texts[file].substr(offset, length);
    }
    one.read = 0;
    CHECK((one.take(ticket) == wanted));
    // Each section once, with the blocks of the disk around it and what is read ahead.
    CHECK(one.read <= most + 60 * (3 * io::block_bytes + (48 << 10)));
    if (i % 7 == 0) one.close();
  }
  // Of a section about what is wanted is read.
  const uint64_t section = data->files[2].index.seek_points[0].point.bit / 8;
  flow::Ticket ticket;
  ticket.inflates = ticket.scattered = true;
  ticket.extents = {{.file = 2, .offset = 50, .length = 100, .rows = 1}};
  one.close();
  one.read = 0;
  CHECK((one.take(ticket) == texts[2].substr(50, 100)));
  CHECK(one.read < section / 4 + (16 << 10));
}

namespace {

// A file with records of the sizes that are given, of which nothing but the index is there.
flow::DataFile made_up(const std::vector<uint64_t>& sizes, uint64_t stride, const std::vector<uint64_t>& points,
                       uint64_t bad_at_end) {
  flow::DataFile file;
  file.index.compression = Compression::gzip;
  file.index.stride = stride;
  file.index.records = sizes.size();
  std::vector<io::IndexEntry> entries;
  uint64_t offset = 0;
  for (size_t r = 0; r < sizes.size(); r++) {
    while (entries.size() * stride <= offset) entries.push_back({offset, r});
    offset += sizes[r];
  }
  file.index.end = offset;
  file.index.stream_size = offset + bad_at_end;
  while (entries.size() < (file.index.stream_size + stride - 1) / stride + 1) entries.push_back({offset, sizes.size()});
  file.index.entries = std::move(entries);
  std::vector<io::SeekEntry> all;
  for (const uint64_t point : points) all.push_back({{.offset = point}, 0});
  file.index.seek_points = std::move(all);
  file.samples = flow::Selection(0, sizes.size());
  return file;
}

}  // namespace

TEST_CASE("blocks of compressed files go forwards, have all samples, and begin after seek points") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; round++) {
    const uint64_t stride = 100;
    std::vector<uint64_t> sizes, starts = {0};
    for (uint64_t count = random() % 60; count > 0; count--) {
      sizes.push_back(16 + random() % (random() % 4 == 0 ? 1500 : 120));
      starts.push_back(starts.back() + sizes.back());
    }
    const uint64_t end = starts.back(), bad = random() % 3 == 0 ? random() % 2000 : 0;
    std::vector<uint64_t> points;
    for (uint64_t count = random() % 12; count > 0; count--)  // often exactly where a record begins
      points.push_back(random() % 2 == 0 ? starts[random() % starts.size()] : random() % (end + bad + 1));
    std::sort(points.begin(), points.end());
    flow::DataSet data;
    data.files.push_back(made_up({}, stride, {}, 0));
    data.files.push_back(made_up(sizes, stride, points, bad));
    const io::FileIndex& index = data.files[1].index;
    const auto check = [&](const flow::Blocks& blocks) {
      uint32_t entry = 0;
      uint64_t sample = 0;
      for (const flow::Block& block : blocks) {
        REQUIRE(block.file == 1);
        REQUIRE(block.begin >= entry);
        REQUIRE(block.end > block.begin);
        REQUIRE(block.end < index.entries.size());
        REQUIRE(block.first == sample);
        REQUIRE(block.rows == index.entries[block.end].record - index.entries[block.begin].record);
        REQUIRE(block.bytes == index.entries[block.end].offset - index.entries[block.begin].offset);
        entry = block.end;
        sample += block.rows;
      }
      REQUIRE(sample == sizes.size());
    };
    // The first entries at or after each point.
    std::set<uint64_t> after;
    for (const uint64_t point : points) {
      const auto first = std::ranges::lower_bound(index.entries, point, {}, &io::IndexEntry::offset);
      after.insert(first == index.entries.end() ? end : first->offset);
    }
    const flow::Blocks by_size = flow::cut_by_size(data, data.all_files(), {.bytes = 700, .rows = 9});
    check(by_size);
    for (const uint64_t offset : after)
      for (const flow::Block& block : by_size) {
        const uint64_t from = index.entries[block.begin].offset, to = index.entries[block.end].offset;
        REQUIRE_FALSE((from < offset && offset < to));
      }
    const uint64_t block_bytes = stride * (1 + random() % 5);
    const flow::Blocks by_place = flow::cut_by_place(data, data.all_files(), block_bytes);
    check(by_place);
    for (const flow::Block& block : by_place) {
      const uint64_t to = index.entries[block.end].offset;
      REQUIRE((to == end || after.contains(to)));
      // It ends as soon as it may.
      for (const uint64_t offset : after) {
        const uint32_t least = block.begin + static_cast<uint32_t>(block_bytes / stride);
        if (offset < to && offset > index.entries[block.begin].offset)
          REQUIRE((least >= index.entries.size() || offset <= index.entries[least].offset));
      }
    }
  }
}

TEST_CASE("a block of too many samples is refused, not cut off") {
  flow::DataSet data;
  flow::DataFile& file = data.files.emplace_back();
  const uint64_t records = uint64_t{1} << 33;
  file.id.uri = "one";
  file.index.compression = Compression::gzip;
  file.index.stride = uint64_t{1} << 37;
  file.index.entries = std::vector<io::IndexEntry>{{0, 0}, {16 * records, records}};
  file.samples = flow::Selection(0, records);
  CHECK_THROWS_WITH(flow::cut_by_place(data, data.all_files(), file.index.stride),
                    Contains("one: ") && Contains("8589934592 samples") && Contains("feedline split"));
  file.index.compression = Compression::none;
  CHECK_THROWS_WITH(flow::cut_by_place(data, data.all_files(), file.index.stride),
                    Contains("smaller shuffle.block_size"));
}

TEST_CASE("LAZY finds the places from which compressed files are inflated, too") {
  const Twins& twins = large();
  const TempDir folder;
  const auto pipeline = [&](const std::string& mode, const std::string& more) {
    return twins.pipeline("packed", more).with("source.index.mode", mode).with("source.index.dir", folder.file("kept"));
  };
  {
    Feeder lazy(pipeline("LAZY", batch_of(500, "PARTIAL")).with("source.record_limit", "4MiB"));
    CHECK(lazy.steps_per_epoch() == -1);
    CHECK(read_epoch(lazy).front().all() == numbers(twins.count()));
  }
  const Pipeline blocks = pipeline("REQUIRE", block + batch_of(480, "PARTIAL")).with("source.record_limit", "4MiB");
  CHECK(batches_of(blocks, with_threads(2)) ==
        batches_of(twins.pipeline("packed", block + batch_of(480, "PARTIAL")), with_threads(2)));
}

TEST_CASE("LAZY plans memory for the indexes that it makes of compressed files") {
  std::mt19937 random(3);
  for (const int words_in_10 : {0, 5, 9}) {
    Twins twins;
    std::string frames;
    while (frames.size() < 6'000'000)
      frames += frame(static_cast<int>(random() % 10) < words_in_10 ? words(1000, random) : random_text(1000, random));
    twins.add(frames, deflated(frames, 31, 1));
    const flow::PipelineSpec spec = flow::validate(twins.pipeline("packed", batch_of(1, "DROP"))
                                                       .with("source.index.mode", "LAZY")
                                                       .with("source.record_limit", "1MiB"));
    const flow::DataSet data = flow::count_data(spec, 1, {});
    REQUIRE(data.lazy);
    const io::FileIndex made = io::count_records(twins.path("packed", 0), {});
    REQUIRE(made.seek_points.size() >= 1);
    INFO(words_in_10 << ": " << made.memory_bytes());
    CHECK(flow::lazy_reader_bytes(spec, data) >= (3 << 20) + made.memory_bytes());
  }
}

TEST_CASE("ranks whose indexes have other seek points are told if these decide the order") {
  const Twins& twins = large();
  const TempDir folder;
  const auto of_rank = [&](int rank, const std::string& order) {
    return twins.pipeline("packed", order + batch_of(480, "DROP"))
        .with("source.index.dir", folder.file(std::to_string(rank)));
  };
  for (const int rank : {0, 1}) Feeder counts(of_rank(rank, ""));
  // Rank 1 has the index of a version of feedline that has found fewer points.
  const io::FileId id = io::stat_file(twins.path("packed", 0));
  io::FileIndex index = io::count_records(id.uri, {});
  std::vector<io::SeekEntry> fewer(index.seek_points.begin(), index.seek_points.end() - 1);
  index.windows = std::vector<std::byte>(index.windows.begin(),
                                         index.windows.begin() + static_cast<int64_t>(fewer.back().window_end));
  index.seek_points = std::move(fewer);
  io::keep_index(index, id, id, {}, folder.file("1"));
  const auto fed = [&](const std::string& order, std::vector<std::vector<int64_t>>& batches) {
    return on_ranks(2, [&](int rank, const Exchange& exchange) {
      Options options = with_threads(1);
      options.exchange = exchange;
      options.rank = rank;
      options.world_size = 2;
      Feeder feeder(of_rank(rank, order), options);
      batches[static_cast<size_t>(rank)] = read_epoch(feeder).front().all();
    });
  };
  std::vector<std::vector<int64_t>> batches(2);
  for (const std::string& what : fed(block, batches))
    CHECK_THAT(what, Contains("rank 1 differs from rank 0: the first file that differs: part-000 ") &&
                         Contains(" seek points ("));
  const auto dropped = static_cast<size_t>(twins.count() % 480);
  for (const std::string order : {"", "shuffle { mode: BUFFER buffer_size: 90 } "}) {
    INFO(order);
    for (const std::string& what : fed(order, batches)) CHECK(what.empty());
    std::set<int64_t> ids(batches[0].begin(), batches[0].end());
    ids.insert(batches[1].begin(), batches[1].end());
    CHECK(batches[0].size() == batches[1].size());
    CHECK(ids.size() == batches[0].size() * 2);
    CHECK(ids.size() + dropped == static_cast<size_t>(twins.count()));
  }
}
