// Pipelines that do not fit their data: features that no record has.
#include <spdlog/sinks/ostream_sink.h>

#include <sstream>

#include "base/log.h"
#include "data.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::test;

namespace {

/// What the library logs meanwhile, line by line, without time and level.
class Logged {
 public:
  Logged() {
    sink_->set_pattern("%v");
    logger()->sinks().push_back(sink_);
  }
  ~Logged() { logger()->sinks().pop_back(); }
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    std::istringstream in(out_.str());
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

 private:
  std::ostringstream out_;
  std::shared_ptr<spdlog::sinks::ostream_sink_mt> sink_ = std::make_shared<spdlog::sinks::ostream_sink_mt>(out_);
};

using Lines = std::vector<std::string>;

template <typename Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string entry_of(const std::string& name, int64_t value) { return wire::entry(name, wire::int64_feature({value})); }

/// Record `id` of `count` has "id", and the one numbered `rare` has "rare", too.
std::vector<std::string> with_rare(int64_t count, int64_t rare) {
  std::vector<std::string> records;
  for (int64_t id = 0; id < count; id++)
    records.push_back(wire::example(entry_of("id", id) + (id == rare ? entry_of("rare", 1) : "")));
  return records;
}

const std::string optional = "feature { name: 'rare' dtype: INT64 default_value { int64_value: 0 } } ";
const std::string judged = "errors { absent_feature: ERROR } ";

}  // namespace

TEST_CASE("a feature that no record of the first epoch has is warned of once") {
  const Data data({50, 30});
  const std::string wrong =
      "feature { name: 'idd' dtype: INT64 default_value { int64_value: 7 } } "
      "feature { name: 'w' key: 'raws' dtype: BYTES kind: VARIABLE } feature { name: 'v' dtype: INT64 kind: VARIABLE "
      "} ";
  const std::string has = " There is: id x b v t p raw [missing_feature]";
  const Lines told = {
      "feature 'idd': no record of epoch 0 has it, so every row has the default_value; did you mean "
      "'id'?" +
          has,
      "feature 'w': no record of epoch 0 has it, so every row has no values; did you mean 'raw'?" + has};
  {
    const Logged logged;
    Feeder quiet(data.pipeline(wrong + batch_of(16, "PARTIAL") + "errors { absent_feature: IGNORE } "));
    read_epoch(quiet);
    CHECK(logged.lines() == Lines{});
  }
  for (const std::string more : {"", "shuffle { mode: GLOBAL } ",
                                 "source { files: '*0.tfrecord' files: '*1.tfrecord' "
                                 "record_limit: '64KiB' index { mode: LAZY } } "}) {
    INFO(more);
    const Logged logged;
    const Pipeline pipeline = data.pipeline(wrong + batch_of(16, "PARTIAL"));
    Feeder feeder(more.empty() ? pipeline : pipeline.overlaid(more), replicas(2));
    for (int epoch = 0; epoch < 3; epoch++) {
      read_epoch(feeder);
      CHECK(logged.lines() == told);
    }
  }
}

TEST_CASE("one record that has it is enough, wherever it lies") {
  for (const int64_t rare : {0, 1, 700, 1998, 1999})
    for (const Compression compression : {Compression::none, Compression::gzip}) {
      const TempDir dir;
      write_records(dir.file("data"), with_rare(2000, rare), compression);
      for (const std::string order :
           {"", "shuffle { block_size: '16KiB' buffer_size: 200 } ", "shuffle { mode: GLOBAL } "}) {
        if (compression != Compression::none && !order.empty()) continue;
        INFO(rare << " " << order);
        Feeder feeder(parse_pipeline("source { files: 'data' } feature { name: 'id' dtype: INT64 } " + optional +
                                         judged + order + batch_of(64, "PARTIAL"),
                                     dir.path()));
        CHECK(read_epoch(feeder).front().all().size() == 2000);
      }
    }
}

TEST_CASE("where it is to be an error, it comes after the batches of the first whole epoch") {
  const Data data({50, 30});
  const Pipeline pipeline = data.pipeline(optional + judged + batch_of(20, "DROP"));
  const std::string wanted = "feature 'rare': no record of epoch 0 has it, so every row has the default_value; ";
  for (const int count : {1, 2}) {
    Feeder feeder(pipeline, replicas(count));
    for (int step = 0; step < 4; step++)
      for (int r = 0; r < count; r++) CHECK(feeder.next(r).rows() == 20 / count);
    for (int r = 0; r < count; r++) CHECK_THAT(error_of([&] { feeder.next(r); }), Catch::StartsWith(wanted));
  }
  // An epoch that was begun in its middle says nothing of the records before.
  Feeder counted(data.pipeline(batch_of(20, "DROP")));
  Feeder late(pipeline);
  late.set_state(counted.get_state(3));
  CHECK(late.next().rows() == 20);
  CHECK_FALSE(late.next());
  for (int step = 0; step < 4; step++) CHECK(late.next().rows() == 20);
  CHECK_THAT(error_of([&] { late.next(); }), Catch::StartsWith("feature 'rare': no record of epoch 1 has it"));
}
