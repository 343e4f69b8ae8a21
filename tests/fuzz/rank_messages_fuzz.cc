// What ranks tell one another to begin together: what another rank sends is refused with an Error that names it, or can be
// used. A rank that sends what it should is understood.
//
// covers: base/rank_message.h ranks/rank_group.cc ranks/communicator.cc
// covers: ranks/process/process_links.cc flowgraph/data/compare_ranks.cc
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../support/npy.h"
#include "../support/open_tables.h"
#include "../support/temp_dir.h"
#include "base/rank_message.h"
#include "feedline_pipeline.pb.h"
#include "flowgraph/data/compare_ranks.h"
#include "flowgraph/data/data_set.h"
#include "flowgraph/pipeline/feed_state.h"
#include "flowgraph/table/table.h"
#include "other_rank.h"
#include "ranks/collective_call.h"
#include "ranks/process/process_links.h"
#include "trainer_bridge/monitor/rank_reports.h"
#include "trainer_bridge/setup.h"

namespace {

using namespace feedline;
using namespace feedline::test;

/// Any messages, in pieces, among all ranks or one of them; and a rank that fails.
void say_anything(Draw& draw) {
  constexpr uint64_t piece = 256 << 10;
  const size_t me = draw.below(2), it = 1 - me, member = draw.below(2);
  const bool all = draw.coin(), speaks = all || member == it, fails = speaks && draw.below(8) == 7;
  const bool breaks = draw.below(8) == 7;  // this rank fails
  static const std::string longest = letters(4 * piece, 'a');
  std::string texts[2];
  for (std::string& text : texts)
    text = longest.substr(draw.below(9), draw.below(4) == 3 ? draw.near(piece) : draw.below(100));
  std::vector<RankSays> says(2, {texts[it]});
  if (!speaks) says.assign(3, {"", PieceHead::done});  // as often as the member speaks, and with its end
  if (!all && speaks) says.push_back({"", PieceHead::done});
  if (fails) {
    MessageWriter failure;
    failure.put(Category::bad_image);
    for (const int64_t number : {1, 2}) failure.put(number);
    for (const char* text : {"file", "x", "it is blue"}) failure.put_text(text);
    says[draw.below(2)] = {failure.take(), PieceHead::failed};
  }
  OtherRank other(draw, static_cast<int>(it), says);
  RankGroup group(other.exchange(), static_cast<int>(me), 2);
  std::vector<std::string> got;
  const auto speak = [&](RankGroup& ranks) {
    got = ranks.all_gather(texts[me]);
    if (breaks) throw std::runtime_error("out of paper");
    require(ranks.all_gather(texts[me]) == got || !other.honest(), "the same is heard twice");
  };
  try {
    group.run([&] { all ? speak(group) : group.among({static_cast<int>(member)}, speak); });
  } catch (const Error& error) {
    const std::string told =
        "file: offset 1: record 2: feature 'x': rank " + std::to_string(it) + ": it is blue [bad_image]";
    require(!other.honest() || (fails && error.what() == told), error.what());
    throw;
  } catch (const std::runtime_error&) {
    return require(breaks, "a rank that fails has its own reason");
  }
  require(!fails || !other.honest(), "a rank that fails is heard");
  if (!all && member != me) return require(got.empty(), "other ranks are not told what members say");
  require(got.size() == (all ? 2 : 1) && got[all ? me : 0] == texts[me], "the own text comes back");
  if (other.honest()) require(!all || got[it] == texts[it], "the other text comes whole");
}

flow::PipelineSpec spec_of(const Pipeline& pipeline) {
  return flow::validate(pipeline, [](const flow::FilePatterns& patterns) {
    return flow::FileList{patterns.files, {}};
  });
}

/// A pipeline of rows that are sent, with a table.
Pipeline pipeline_of_rows() {
  static const TempDir dir;
  dir.write("a", "");
  dir.write("t.npy", npy("<f4", "(5, 2)", in_memory(std::vector<float>(10))));
  return parse_pipeline(
      "source { files: 'a' } feature { name: 'id' dtype: INT64 } output { name: 'id' feature: 'id' } "
      "output { name: 'row' feature: 'id' lookup { table: 't.npy' } } seed: 5 batch { global_batch_size: 4 } "
      "distribute { mode: SCATTER }",
      dir.path());
}

/// What ranks compare before they begin.
void compare(Draw& draw) {
  static const Pipeline pipeline = pipeline_of_rows();
  static const flow::PipelineSpec spec = spec_of(pipeline);
  static const flow::Tables tables = open_tables(spec, 1 << 20);
  constexpr size_t kinds = 5;
  const auto compared = [&](size_t what, bool differs, RankGroup& ranks) {
    flow::DataSet data;
    for (const char* uri : {"/a", "/b", "/c"}) data.files.push_back({.id = {uri, 7}, .index = {}, .samples = {}});
    data.files.resize(differs ? 2 : 3);
    data.files[0].index.records = differs ? 3 : 4;
    if (differs) data.files[1].kept_audit = 3;
    config::Pipeline text = pipeline.message();
    if (differs) {
      text.set_seed(7);
      text.add_output()->set_name(std::string(300, 'n'));
      text.mutable_feature(0)->clear_name();
      text.mutable_shuffle()->GetReflection()->MutableUnknownFields(text.mutable_shuffle())->AddVarint(1000, 1);
      text.GetReflection()->MutableUnknownFields(&text)->AddLengthDelimited(1001, "of another version");
    }
    if (what == 0) flow::compare_positions(ranks, {.epoch = differs, .step = 3});
    if (what == 1) flow::compare_pipelines(ranks, text, differs ? 1 : 2, 3, differs ? 4 : 5);
    if (what == 2) flow::compare_files(ranks, data);
    if (what == 3) flow::compare_content(ranks, data, flow::ShuffleMode::block);
    if (what == 4) flow::compare_tables(ranks, spec, tables);
  };
  // By kind, and by which rank differs from what the other has; 2: neither.
  static const auto said = [&] {
    std::array<std::array<std::array<std::vector<RankSays>, 2>, 3>, kinds> all;
    for (size_t what = 0; what < kinds; what++)
      for (int who = 0; who < 3; who++)
        all[what][static_cast<size_t>(who)] =
            said_by_both([&](int rank, RankGroup& ranks) { compared(what, rank == who, ranks); });
    return all;
  }();
  const size_t what = draw.below(kinds), other_number = draw.below(2);
  const bool differs = draw.coin();
  OtherRank other(draw, static_cast<int>(other_number), said[what][differs ? other_number : 2][other_number]);
  RankGroup group(other.exchange(), 1 - static_cast<int>(other_number), 2);
  try {
    group.run([&] { compared(what, false, group); });
    require(!other.honest() || !differs || what == 4, "ranks that differ are told");
  } catch (const Error& error) {
    if (other.honest())
      require(differs && what != 4 && error.message().starts_with("rank 1 differs from rank 0: "), error.what());
    throw;
  }
}

/// The options of all ranks, and where their monitors are.
void set_up(Draw& draw) {
  static const Pipeline pipeline = pipeline_of_rows();
  const auto rank = [&](int number, RankGroup& ranks) {
    Options options;
    options.rank = number;
    options.world_size = 2;
    options.communicator = std::make_shared<DrawnTransport>(nullptr);
    Setup setup{.options = std::move(options),
                .distribution = {.mode = flow::DistributeMode::scatter},
                .route = {},
                .spec = {},
                .monitor_places = {}};
    settle(setup, pipeline, ranks, monitor_places(parse_http_address("", number == 0 ? "10.0.0.1:90" : "unix:/a")));
    return setup;
  };
  static const auto said = said_by_both([&](int number, RankGroup& ranks) { rank(number, ranks); });
  OtherRank other(draw, 0, said[0]);
  RankGroup group(other.exchange(), 1, 2);
  try {
    group.run([&] {
      const Setup setup = rank(1, group);
      require(setup.distribution.data_parallel_ranks == std::vector{0, 1} && setup.monitor_places.size() == 2,
              "each rank has its part");
      const std::vector<HttpAddress> places = places_in(setup.monitor_places[0], 0);
      if (other.honest())
        require(places.size() == 1 && places[0].text() == "http://10.0.0.1:90/", "a monitor is found");
    });
  } catch (const Error& error) {
    require(!other.honest(), error.what());
    throw;
  }
}

/// The report of another rank's monitor.
void report(Draw& draw) {
  static const std::string valid =
      R"({"rank":1,"epoch":1,"step":2,"epoch_steps":3,"steps":4,"records":5,"wall_s":6.5,"next_wait_ratio":null,)"
      R"("bad_records":0,"differing_epochs":0,"verdict":{"a":["b"]},"error":null,"more":[]})";
  const auto nested = [&](std::string value) {
    const size_t levels = std::min<uint64_t>(draw.near(draw.coin() ? 15 : 50'000), 100'000);
    return std::string(levels, '[') + std::move(value) + std::string(levels, ']');
  };
  std::string text = changed(draw, valid);
  if (const size_t at = text.find("null"); draw.coin() && at != text.npos) text.replace(at, 4, nested("1"));
  try {
    const Json shown = shown_report(text, 1);
    require(shown.size() == 11 && json_text(shown, -1).size() < 2 * text.size() + 200, "what the page shows is there");
  } catch (const Json::exception&) {
    require(text != valid, "a report is one");
  } catch (const Error& error) {
    require(error.category() == Category::io_error && text != valid, "a report is shown");
  }
}

/// Notes and calls, which ranks send as raw bytes, and links that pass them on.
void note(Draw& draw) {
  const auto changed_bytes = [&](auto value) {
    std::string bytes = changed(draw, std::string(reinterpret_cast<const char*>(&value), sizeof value));
    bytes.resize(sizeof value);
    std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof value);
    return value;
  };
  const Error why(Category::stalled, "it is late", {"file", 1, 2, letters(draw.near(255) % 1000, 'f')});
  const ranks::Note sent = changed_bytes(ranks::Note(ranks::Note::failed, why, 7));
  const Error heard = sent.error();
  require(!name(heard.category()).empty() && heard.message().size() <= sent.message.size() &&
              heard.place().feature.size() <= sent.feature.size(),
          "a note is an Error");
  const auto tensor = [&] {
    return TensorView{nullptr, static_cast<DType>(draw.below(dtype_count)), {1 + static_cast<int64_t>(draw.below(3))}};
  };
  const Communicator::Part part{static_cast<int>(draw.below(4)) - 1, {}};
  const Reduction reduction = draw.one_of({Reduction::sum, Reduction::min, Reduction::max});
  const uint64_t size = draw.below(9);
  ranks::CollectiveCall mine;
  try {  // a call that makes no sense is refused before the ranks compare it
    const uint64_t which = draw.below(7);
    if (which == 0) mine = ranks::all_reduce_call(tensor(), reduction);
    if (which == 1) mine = ranks::broadcast_call(size, part.rank, 2);
    if (which == 2) mine = ranks::all_gather_call(size, draw.near(2 * size), 2);
    if (which == 3) mine = ranks::reduce_scatter_call(tensor(), tensor(), reduction, 2);
    if (which == 4) mine = ranks::send_receive_call({&part, 1}, {}, 2);
    if (which == 5) mine = ranks::announce_call({&mine, 1});
  } catch (const Error& error) {
    require(error.category() == Category::bad_pipeline, error.what());
  }
  const ranks::CollectiveCall calls[] = {mine, changed_bytes(mine)};
  require(ranks::disagreement(calls, 3).has_value() == (calls[0] != calls[1]), "calls that differ are told");
  require(!ranks::not_announced(calls[0], calls[1], 3).message().empty(), "a call has a name");
  struct Loop final : ranks::Links {  // sends to a rank what that rank receives
    int rank() const noexcept override { return 1; }
    int size() const noexcept override { return 3; }
    void begin(std::span<const Part> sends, std::span<const Part> receives) override {
      for (const Part& part : receives)
        for (const Part& from : sends)
          if (from.rank == part.rank) std::ranges::copy(from.bytes, part.bytes.begin());
      parts = sends.size() + receives.size();
    }
    bool drive() override { return true; }
    bool keeps_buffers() const noexcept override { return false; }
    void tell(int, const ranks::Note&) override {}
    bool told() override { return true; }
    std::optional<Heard> hear() override { return std::nullopt; }
    void wait(std::chrono::milliseconds, bool) override {}
    void wake() noexcept override {}
    void leave(std::chrono::milliseconds) override {}
    size_t parts = 0;
  } links;
  const std::string text = letters(draw.below(50), 'n');
  std::vector<std::byte> own(text.size()), all(3 * text.size());
  std::ranges::copy(std::as_bytes(std::span(text)), own.begin());
  links.begin_all_gather(own, all);
  for (size_t i = 0; i < all.size(); i++) require(all[i] == own[i % own.size()], "every rank gets every rank's bytes");
  const int root = static_cast<int>(draw.below(3));
  links.begin_broadcast(own, root);
  require(links.parts == (root == 1 ? 2 : 1), "the root sends to all others");
}

/// An exchange over a communicator, whose strings have lengths that other ranks say.
void exchange_strings(Draw& draw) {
  constexpr uint64_t most = uint64_t{1} << 30;
  const std::string mine = letters(draw.below(100), 'm');
  std::optional<uint64_t> size;
  auto ranks = std::make_shared<DrawnTransport>([&](std::span<std::byte> theirs, std::span<const std::byte>) {
    if (size) {
      std::ranges::fill(theirs, std::byte{'t'});
      return;
    }
    size = draw.near(draw.coin() ? most : mine.size());
    if (*size > 1 << 16 && *size <= most) size = *size % (1 << 16);  // so much memory is not taken in a test
    std::memcpy(theirs.data(), &*size, sizeof *size);
  });
  try {
    const std::vector<std::string> all = exchange_over(ranks)(mine);
    require(all == std::vector{std::string(*size, 't'), mine}, "every rank's string comes");
  } catch (const Error&) {
    require(*size > most, "a string is refused only for its length");
    throw;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return run_one_of({say_anything, compare, set_up, report, note, exchange_strings}, data, size);
}
