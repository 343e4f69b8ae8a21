// Pictures in the steps of records: each is what it would be alone, and all of a record share their random choices.
#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "distributed.h"
#include "pictures/encode.h"
#include "support/catch.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;
using Catch::Contains;

namespace {

/// Clip i has i % 4 frames (clip 0 none), and each clip has two pictures in `pair`. Frames are JPEGs and PNGs of
/// several sizes.
constexpr int clips = 24, most_frames = 3;

std::string frame(int clip, int step) {
  const Pixels pixels = picture_of(30 + clip % 5, 26 + step, 3, static_cast<uint32_t>(10 * clip + step));
  return (clip + step) % 2 == 0 ? to_png(pixels) : to_jpeg(pixels);
}

std::string steps(const std::string& key, const std::vector<std::string>& frames) {
  std::string list;
  for (const std::string& encoded : frames) list += wire::delimited(1, wire::bytes_feature({encoded}));
  return wire::entry(key, list);
}

/// The frame that is cut in half, if any.
struct Broken {
  int clip = -1, step = -1;
  bool is_in_pair = false;
};

/// A file of clips; and for each step a file of Examples, whose record i is the frame of clip i, or another picture if
/// it has none.
class Clips {
 public:
  explicit Clips(const Broken& broken = {}) {
    std::vector<std::string> records;
    std::array<std::vector<std::string>, most_frames> alone;
    for (int clip = 0; clip < clips; clip++) {
      std::vector<std::string> frames, pair = {frame(clip, 0), frame(clip, 1)};
      for (int step = 0; step < most_frames; step++) {
        if (step < clip % 4) frames.push_back(frame(clip, step));
        alone[static_cast<size_t>(step)].push_back(
            wire::example(wire::entry("frame", wire::bytes_feature({frame(clip, step)}))));
      }
      if (clip == broken.clip) {
        std::string& cut = (broken.is_in_pair ? pair : frames).at(static_cast<size_t>(broken.step));
        cut.resize(cut.size() / 2);
      }
      records.push_back(wire::delimited(1, wire::entry("id", wire::int64_feature({clip}))) +
                        wire::delimited(2, steps("frames", frames) + steps("pair", pair)));
    }
    write_records(dir_.file("clips.tfrecord"), records);
    for (int step = 0; step < most_frames; step++)
      write_records(dir_.file("step-" + std::to_string(step)), alone[static_cast<size_t>(step)]);
  }

  /// `shape` says what becomes of a frame. The outputs "frames" and "pair" have the same random choices.
  Pipeline pipeline(const std::string& shape, const std::string& more) const {
    return parse_pipeline(
        "source { files: 'clips.tfrecord' record_type: SEQUENCE_EXAMPLE } feature { name: 'id' dtype: INT64 } "
        "feature { name: 'frames' dtype: BYTES where: FEATURE_LIST kind: FIXED_SEQUENCE max_values: 3 } "
        "feature { name: 'pair' dtype: BYTES where: FEATURE_LIST shape: 2 } output { name: 'id' feature: 'id' } "
        "output { name: 'frames' feature: 'frames' decode_image {} " +
            shape + " } output { name: 'pair' feature: 'pair' decode_image {} " + shape + " } " + more,
        dir_.path());
  }
  /// The frames of a step, each in a record of its own.
  Pipeline alone(int step, const std::string& shape, const std::string& more) const {
    return parse_pipeline("source { files: 'step-" + std::to_string(step) +
                              "' } feature { name: 'frame' dtype: BYTES } "
                              "output { name: 'where' feature: '@record' } "
                              "output { name: 'frame' feature: 'frame' decode_image {} " +
                              shape + " } " + more,
                          dir_.path());
  }
  std::string path() const { return dir_.file("clips.tfrecord"); }

 private:
  TempDir dir_;
};

const std::vector<std::string> shapes = {
    "crop { size: [20, 24] }",
    "resize { size: [9, 12] antialias: true } dtype: FLOAT16 normalize { scale: 0.5 mean: [1, 2, 3] std: 4 } layout: "
    "CHW",
    "crop { mode: RANDOM size: [17, 20] group: 'g' } flip { group: 'g' } dtype: FLOAT32 normalize { mean: 7 }",
    "crop { mode: RANDOM random_area {} group: 'g' } resize { size: [8, 8] } flip { group: 'g' } layout: CHW"};

/// Returns the bytes of the frames of each clip, each decoded alone, by its number and step.
std::map<std::pair<int64_t, int>, std::string> frames_alone(const Clips& data, const std::string& shape,
                                                            const std::string& more) {
  std::map<std::pair<int64_t, int>, std::string> frames;
  for (int step = 0; step < most_frames; step++) {
    Feeder feeder(data.alone(step, shape, more));
    while (const Batch batch = feeder.next()) {
      const std::string bytes = host_bytes(batch.at("frame"));
      const auto valid = batch.at("@valid").as<uint8_t>();
      const size_t each = bytes.size() / valid.size();
      for (size_t row = 0; row < valid.size(); row++)
        if (valid[row]) frames[{batch.at("where").as<int64_t>()[row], step}] = bytes.substr(row * each, each);
    }
  }
  return frames;
}

/// Checks that each frame is what it is alone, and that what clips and filler lack is zeros. Returns the valid ids.
std::vector<int64_t> check_frames(const Batch& batch, std::map<std::pair<int64_t, int>, std::string>& alone,
                                  int64_t failed = -1) {
  std::vector<int64_t> ids;
  const auto valid = batch.at("@valid").as<uint8_t>();
  const TensorView frames = batch.at("frames"), pair = batch.at("pair");
  REQUIRE(frames.shape.rank() == 5);
  REQUIRE((pair.shape.rank() == 5 && pair.shape[1] == 2));
  const auto longest = static_cast<size_t>(frames.shape[1]);
  const size_t each = host_bytes(pair).size() / (2 * valid.size());
  REQUIRE(host_bytes(frames).size() == each * longest * valid.size());
  size_t widest = 0;
  for (size_t row = 0; row < valid.size(); row++) {
    const int64_t id = batch.at("id").as<int64_t>()[row];
    const int64_t steps = valid[row] ? id % 4 : 0;
    widest = std::max(widest, static_cast<size_t>(steps));
    if (valid[row]) ids.push_back(id);
    for (size_t step = 0; step < longest; step++) {
      const std::string found = host_bytes(frames).substr((row * longest + step) * each, each);
      const bool is_own = static_cast<int64_t>(step) < steps;
      CHECK((found == (is_own ? alone.at({id, static_cast<int>(step)}) : std::string(each, '\0'))));
    }
    for (int step = 0; valid[row] && step < 2; step++)
      CHECK((host_bytes(pair).substr((2 * row + static_cast<size_t>(step)) * each, each) == alone.at({id, step})));
  }
  if (failed < 0) CHECK(longest == widest);
  return ids;
}

}  // namespace

TEST_CASE("video: each frame is what it is alone, in every order, for any number of threads and replicas") {
  const Clips data;
  for (const std::string& shape : shapes)
    for (const std::string& order : {std::string("seed: 3 "), std::string("shuffle { mode: GLOBAL } seed: 4 ")}) {
      const std::string more = order + batch_of(10, "PAD");
      auto alone = frames_alone(data, shape, more);
      REQUIRE(alone.size() == clips * most_frames);
      for (const auto& [threads, count] : {std::pair{1, 1}, {3, 2}}) {
        INFO(shape << order << threads << " threads, " << count << " replicas");
        Options options = replicas(count);
        options.threads = threads;
        Feeder feeder(data.pipeline(shape, more), options);
        std::vector<int64_t> ids;
        for (int step = 0; step < 3; step++)
          for (int replica = 0; replica < count; replica++) {
            const std::vector<int64_t> some = check_frames(feeder.next(replica), alone);
            ids.insert(ids.end(), some.begin(), some.end());
          }
        std::sort(ids.begin(), ids.end());
        CHECK(ids == numbers(clips));
      }
    }
}

TEST_CASE("video: padding after a clip that has a broken frame is a copy of a good one") {
  const Clips data({.clip = clips - 1, .step = 1});
  Feeder feeder(data.pipeline(shapes[0], "errors { on_error: SKIP_RECORD } " + batch_of(10, "PAD")));
  for (int step = 0; step < 2; step++) CHECK(feeder.next());
  const Batch batch = feeder.next();
  CHECK(batch.valid_count() == 3);
  const auto ids = batch.at("id").as<int64_t>();
  CHECK(std::vector<int64_t>(ids.begin(), ids.end()) == std::vector<int64_t>{20, 21, 22, 22, 22, 22, 22, 22, 22, 22});
}

TEST_CASE("video: the elements, the plan, and a batch of clips without frames") {
  const Clips data;
  const std::string shape = "crop { size: [20, 24] } dtype: FLOAT32 layout: CHW";
  Feeder feeder(data.pipeline(shape, batch_of(1, "DROP")));
  std::map<std::string, ElementSpec> elements;
  for (const ElementSpec& element : feeder.elements()) elements[element.name] = element;
  CHECK(elements.at("frames").kind == ElementSpec::Kind::padded);
  CHECK(elements.at("frames").shape == Shape{3, 20, 24});
  CHECK(elements.at("frames").padding == std::vector<std::byte>(4));
  CHECK(elements.at("pair").kind == ElementSpec::Kind::dense);
  CHECK(elements.at("pair").shape == Shape{2, 3, 20, 24});
  CHECK(feeder.next().at("frames").shape == Shape{1, 0, 3, 20, 24});
  CHECK(feeder.next().at("frames").shape == Shape{1, 1, 3, 20, 24});
  CHECK_THAT(feeder.plan_text(), Contains("[rows, longest, 3, 20, 24]"));
  CHECK_THAT(feeder.plan_text(), Contains("[rows, 2, 3, 20, 24]"));
  CHECK_THAT(feeder.plan_text(), Contains("decoders of pictures"));

  CHECK_THROWS_WITH(Feeder(data.pipeline(shape, batch_of(24, "DROP") + "memory { limit: '300MiB' }")
                               .with("feature.frames.max_values", "")),
                    Contains("or set feature.max_values for the feature of output 'frames'"));
  Feeder few(data.pipeline(shape, batch_of(1, "DROP")).with("feature.frames.max_values", "2"));
  for (int clip = 0; clip < 3; clip++) CHECK(few.next());
  try {
    few.next();
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.category() == Category::wrong_count);
    CHECK((error.place().record == 3 && error.place().feature == "frames"));
  }
}

TEST_CASE("video: RAISE: a broken frame ends the feed after the last whole step, and says which step it is") {
  for (const Broken& broken : {Broken{15, 2}, Broken{14, 1, true}})
    for (const int count : {1, 2}) {
      const Clips data(broken);
      auto alone = frames_alone(data, shapes[0], batch_of(4, "DROP"));
      Feeder feeder(data.pipeline(shapes[0], batch_of(4, "DROP")), replicas(count));
      for (int step = 0; step < 3; step++)
        for (int replica = 0; replica < count; replica++) check_frames(feeder.next(replica), alone);
      for (int replica = 0; replica < count; replica++) try {
          feeder.next(replica);
          FAIL("no error");
        } catch (const Error& error) {
          CHECK(error.category() == Category::bad_image);
          CHECK_THAT(error.message(), Catch::StartsWith("step " + std::to_string(broken.step) + ": "));
          CHECK(error.place().file == data.path());
          CHECK(error.place().offset > 0);
          CHECK(error.place().record == broken.clip);
          CHECK(error.place().feature == (broken.is_in_pair ? "pair" : "frames"));
          const TriedRecords tried = feeder.try_records(clips);
          REQUIRE(tried.errors.size() == 1);
          CHECK(tried.errors[0].message() == error.message());
        }
    }
}

TEST_CASE("video: SKIP_RECORD: the clip of a broken frame is filler, and changes no count") {
  for (const Broken& broken : {Broken{15, 2}, Broken{14, 1, true}})
    for (const std::string& order : {std::string(), std::string("shuffle { mode: GLOBAL } ")})
      for (const int count : {1, 2}) {
        const Clips data(broken);
        const std::string more = order + "errors { on_error: SKIP_RECORD } " + batch_of(8, "DROP");
        auto alone = frames_alone(data, shapes[1], more);
        Feeder feeder(data.pipeline(shapes[1], more), replicas(count));
        std::vector<int64_t> ids;
        for (int epoch = 0; epoch < 2; epoch++) {
          ids.clear();
          for (int step = 0; step < 3; step++)
            for (int replica = 0; replica < count; replica++) {
              const Batch batch = feeder.next(replica);
              CHECK(batch.rows() == 8 / count);
              const std::vector<int64_t> some = check_frames(batch, alone, broken.clip);
              CHECK(static_cast<int64_t>(some.size()) == batch.valid_count());
              ids.insert(ids.end(), some.begin(), some.end());
            }
          for (int replica = 0; replica < count; replica++) CHECK_FALSE(feeder.next(replica));
        }
        std::vector<int64_t> wanted = numbers(clips);
        std::erase(wanted, broken.clip);
        std::sort(ids.begin(), ids.end());
        CHECK(ids == wanted);
        CHECK(feeder.report().bad_records == 1);
        CHECK(feeder.report().errors.at(0).place().record == broken.clip);
      }
}

TEST_CASE("video: rows that travel between ranks are those that each rank would read") {
  const Clips data({15, 2});
  for (const std::string& shape : shapes)
    for (const std::string mode : {"REPLICATE", "SCATTER"})
      for (const int ranks : {1, 3}) {
        INFO(shape << mode << " " << ranks);
        const Pipeline pipeline =
            data.pipeline(shape, "shuffle { mode: GLOBAL } errors { on_error: SKIP_RECORD } " + batch_text(12, "PAD"));
        CHECK(feed_rows_that_travel(pipeline, mode, ranks) == nothing_thrown(ranks));
      }
}

TEST_CASE("video: windows take records that all have as many frames") {
  const Clips data;
  const std::string window = "window { size: 3 } " + batch_of(2, "DROP");
  auto alone = frames_alone(data, shapes[2], window);
  Feeder feeder(data.pipeline(shapes[2], window).with("output.frames.internal", "true"));
  for (int64_t step = 0; const Batch batch = feeder.next(); step++) {
    const TensorView pair = batch.at("pair");
    REQUIRE(pair.shape == Shape{2, 3, 2, 17, 20, 3});
    const std::string bytes = host_bytes(pair);
    const size_t each = bytes.size() / 12;
    for (size_t place = 0; place < 6; place++)
      for (int frame = 0; frame < 2; frame++)
        CHECK((bytes.substr((2 * place + static_cast<size_t>(frame)) * each, each) ==
               alone.at({6 * step + static_cast<int64_t>(place), frame})));
  }
  CHECK_THROWS_WITH(Feeder(data.pipeline(shapes[2], window)),
                    Contains("window: output 'frames' does not have a fixed shape, but with windows its tensor must be "
                             "[rows, 3"));
}

TEST_CASE("video: a cache keeps only single pictures, and says so") {
  const Clips data;
  const std::string cache = "cache { what: DECODED limit: '1MiB' } " + batch_of(4, "DROP");
  CHECK_THROWS_WITH(Feeder(data.pipeline(shapes[0], cache)),
                    Contains("no output can be kept in the cache; output 'frames': a record has several pictures; "
                             "output 'pair': a record has several pictures"));
}
