// Shuffled orders and ranks: the order is a function only of data, seed and epoch.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "data.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/order/permutation.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/plan/ticket_queue.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::test;

namespace {

const std::string blocks_of_16k = "block_size: '16KiB' ";
const std::string small_blocks = "mode: BLOCK " + blocks_of_16k;

/// Returns the global batches of an epoch, put together from all ranks. -1 stands for filler.
std::vector<std::vector<int64_t>> global_batches(const Pipeline& pipeline, int world_size, int replicas_of_rank,
                                                 uint64_t epoch, int threads = 1) {
  std::vector<std::vector<int64_t>> batches;
  for (int rank = 0; rank < world_size; rank++) {
    Options options = replicas(replicas_of_rank);
    options.rank = rank;
    options.world_size = world_size;
    options.epoch = epoch;
    options.threads = threads;
    Feeder feeder(pipeline, options);
    const auto steps = static_cast<size_t>(feeder.steps_per_epoch());
    batches.resize(steps);
    for (size_t step = 0; step < steps; step++)
      for (int r = 0; r < replicas_of_rank; r++) {
        const Batch batch = feeder.next(r);
        REQUIRE(batch);
        const auto ids = batch.at("id").as<int64_t>();
        const auto valid = batch.at("ok").as<bool>();
        for (size_t i = 0; i < ids.size(); i++) batches[step].push_back(valid[i] ? ids[i] : -1);
      }
    for (int r = 0; r < replicas_of_rank; r++) CHECK(!feeder.next(r));
  }
  return batches;
}

std::vector<int64_t> flat(const std::vector<std::vector<int64_t>>& batches) {
  std::vector<int64_t> all;
  for (const auto& batch : batches)
    for (int64_t id : batch)
      if (id >= 0) all.push_back(id);
  return all;
}

std::vector<std::vector<int64_t>> without_filler(std::vector<std::vector<int64_t>> batches) {
  for (auto& batch : batches) std::erase(batch, -1);
  return batches;
}

}  // namespace

TEST_CASE("a shuffled epoch is every sample once, in an order of its own") {
  const Data data({1500, 0, 1, 700, 40, 2000});
  for (const std::string& more :
       {small_blocks + "lanes: 1", small_blocks + "lanes: 1 buffer_size: 1000", small_blocks + "buffer_size: 500",
        small_blocks + "lanes: 4 buffer_bytes: '100KiB'", small_blocks + "lanes: 4 buffer_size: 100000",
        std::string("mode: GLOBAL"), std::string("mode: BUFFER buffer_size: 300"),
        std::string("mode: BUFFER buffer_size: 7"),
        std::string("mode: BUFFER buffer_size: 10000 shuffle_files: true")}) {
    INFO(more);
    const Pipeline pipeline = data.pipeline("shuffle { " + more + " } seed: 5 output { name: 'id' feature: 'id' } " +
                                            batch_of(64, "PARTIAL valid_mask: 'ok'"));
    Feeder feeder(pipeline);
    std::set<std::vector<int64_t>> orders;
    for (int epoch = 0; epoch < 3; epoch++) {
      auto all = read_epoch(feeder).front().all();
      CHECK(orders.insert(all).second);
      CHECK(!std::is_sorted(all.begin(), all.end()));
      std::sort(all.begin(), all.end());
      CHECK(all == numbers(data.count()));
    }
  }
}

TEST_CASE("passes of an epoch in blocks of few records") {
  const Data data(std::vector<int64_t>(120, 2));
  std::vector<int64_t> wanted;
  for (int64_t id : numbers(data.count())) wanted.insert(wanted.end(), 3, id);
  for (const char* mixing : {"lanes: 1 buffer_size: 20", "lanes: 2 buffer_size: 20", "lanes: 4 buffer_size: 100"}) {
    INFO(mixing);
    const Pipeline pipeline = data.pipeline("shuffle { " + small_blocks + mixing + " } epoch { repeat: 3 } " +
                                            "output { name: 'id' feature: 'id' } " + batch_of(8, "DROP"));
    Feeder feeder(pipeline);
    auto all = read_epoch(feeder).front().all();
    std::sort(all.begin(), all.end());
    CHECK(all == wanted);
  }
}

TEST_CASE("the seed chooses the order, and reshuffle_each_epoch whether it changes") {
  const Data data({3000});
  const auto order = [&](const std::string& more, uint64_t epoch) {
    return flat(global_batches(data.pipeline("shuffle { " + blocks_of_16k + " buffer_size: 500 " + more + " } " +
                                             batch_of(32, "PARTIAL valid_mask: 'ok'")),
                               1, 1, epoch));
  };
  CHECK(order("seed: 1", 0) != order("seed: 2", 0));
  CHECK(order("seed: 1", 0) == order("seed: 1", 0));
  CHECK(order("seed: 1", 0) != order("seed: 1", 1));
  CHECK(order("seed: 1 reshuffle_each_epoch: false", 0) == order("seed: 1 reshuffle_each_epoch: false", 7));
}

TEST_CASE("blocks that are larger than every file are the files, however much larger they are") {
  const Data data({300, 40});
  const auto order = [&](const char* block_size) {
    return global_batches(data.pipeline("shuffle { block_size: '" + std::string(block_size) + "' } " +
                                        batch_of(20, "DROP valid_mask: 'ok'")),
                          1, 1, 0);
  };
  const auto wanted = order("1GiB");
  // 64 TiB are 2^32 times the stride of an index.
  for (const char* block_size : {"64TiB", "65TiB", "1048576TiB"}) CHECK(order(block_size) == wanted);
}

TEST_CASE("without reshuffle_each_epoch every pass of an epoch has the same order") {
  const Data data({1500, 1, 700});  // no multiple of the batch
  for (const char* shuffle :
       {"mode: BLOCK block_size: '16KiB' buffer_size: 300", "mode: BLOCK block_size: '16KiB' lanes: 1",
        "mode: BUFFER buffer_size: 90 shuffle_files: true", "mode: GLOBAL"})
    for (const bool steps : {false, true}) {
      INFO(shuffle << steps);
      Feeder feeder(data.pipeline("shuffle { " + std::string(shuffle) + " reshuffle_each_epoch: false } epoch { " +
                                  (steps ? "steps: 150" : "repeat: 3") + " } " + batch_of(48, "DROP")));
      const auto ids = read_epoch(feeder).front().all();
      REQUIRE(std::ssize(ids) > 3 * data.count() - 48);
      for (size_t i = static_cast<size_t>(data.count()); i < ids.size(); i++)
        REQUIRE(ids[i] == ids[i - static_cast<size_t>(data.count())]);
    }
  // Passes of whole steps are the same in many lanes, too.
  const Data whole({48 * 40});
  Feeder feeder(
      whole.pipeline("shuffle { block_size: '16KiB' lanes: 8 reshuffle_each_epoch: false } epoch { repeat: 2 } " +
                     batch_of(48, "DROP")));
  const auto ids = read_epoch(feeder).front().all();
  CHECK(std::equal(ids.begin(), ids.begin() + whole.count(), ids.begin() + whole.count()));
  CHECK_THROWS_WITH(Feeder(data.pipeline("shuffle { lanes: 8 reshuffle_each_epoch: false } epoch { repeat: 2 } " +
                                         batch_of(48, "DROP"))),
                    Catch::Contains("shuffle.lanes: with 8 lanes every pass of an epoch"));
}

TEST_CASE("the orders of epochs that are 2^32 apart differ") {
  const Data data({300});
  for (const char* shuffle : {"mode: BLOCK block_size: '16KiB'", "mode: BUFFER buffer_size: 90", "mode: GLOBAL"}) {
    const Pipeline pipeline = data.pipeline("shuffle { " + std::string(shuffle) + " } " + batch_of(50, "DROP"));
    std::set<std::vector<int64_t>> orders;
    for (const uint64_t epoch : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, uint64_t{2} << 32, uint64_t{3} << 61}) {
      Options options;
      options.epoch = epoch;
      Feeder feeder(pipeline, options);
      CHECK(orders.insert(read_epoch(feeder).front().all()).second);
    }
  }
}

TEST_CASE("ranks, replicas and threads change nothing in the global batches") {
  const Data data({1000, 300, 0, 1900, 24});
  for (const char* shuffle :
       {"", "shuffle { block_size: '16KiB' buffer_size: 400 } seed: 3 ",
        "shuffle { block_size: '32KiB' buffer_size: 3000 lanes: 3 } ", "shuffle { mode: GLOBAL } seed: 4 ",
        "interleave { cycle_length: 3 block_length: 5 } ", "shuffle { mode: BUFFER buffer_size: 150 } ",
        "interleave { cycle_length: 3 block_length: 2 } "
        "shuffle { mode: BUFFER buffer_size: 40 shuffle_files: true } "})
    for (const char* policy : {"DROP", "PARTIAL", "PAD"}) {
      INFO(shuffle << policy);
      const Pipeline pipeline = data.pipeline(shuffle + batch_of(48, std::string(policy) + " valid_mask: 'ok'"));
      const auto wanted = global_batches(pipeline, 1, 1, 2);
      CHECK(flat(wanted).size() == static_cast<size_t>(*policy == 'D' ? data.count() / 48 * 48 : data.count()));
      for (const auto& [world, each] : {std::pair{2, 1}, {3, 1}, {4, 2}, {8, 1}, {1, 4}}) {
        INFO(world << " ranks of " << each << " replicas");
        const auto got = global_batches(pipeline, world, each, 2, 2);
        if (*policy == 'P' && policy[2] == 'R')
          CHECK(without_filler(got) == without_filler(wanted));  // the number of replicas decides which rows are filler
        else
          CHECK(got == wanted);
      }
    }
}

TEST_CASE("numbers of samples around a whole number of batches, and fewer samples than ranks") {
  for (const int64_t count : {1, 7, 24, 25, 47, 48, 49, 95}) {
    const Data data({count});
    for (const char* shuffle : {"", "shuffle { block_size: '16KiB' } ", "shuffle { mode: GLOBAL } ",
                                "shuffle { mode: BUFFER buffer_size: 9 } "})
      for (const char* policy : {"DROP", "PARTIAL", "PAD"}) {
        INFO(count << " " << shuffle << policy);
        const Pipeline pipeline = data.pipeline(shuffle + batch_of(24, std::string(policy) + " valid_mask: 'ok'") +
                                                "epoch { allow_empty: true }");
        const auto wanted = without_filler(global_batches(pipeline, 1, 1, 0));
        CHECK(flat(wanted).size() == static_cast<size_t>(*policy == 'D' ? count / 24 * 24 : count));
        for (const int world : {2, 3, 8}) CHECK(without_filler(global_batches(pipeline, world, 1, 0)) == wanted);
      }
  }
}

TEST_CASE("a walk that starts at any step equals the one from the beginning") {
  const Data data({1500, 400, 900});
  for (const char* text :
       {"", "shuffle { block_size: '16KiB' buffer_size: 400 lanes: 4 }", "epoch { repeat: 3 }",
        "shuffle { block_size: '16KiB' buffer_size: 1200 lanes: 2 } epoch { repeat: 3 }",
        "shuffle { block_size: '16KiB' lanes: 8 } epoch { repeat: -1 }", "shuffle { mode: GLOBAL } epoch { repeat: 3 }",
        "shuffle { mode: GLOBAL } epoch { steps: 120 }",
        "shuffle { block_size: '16KiB' lanes: 2 } epoch { steps: 130 }", "epoch { steps: 117 }",
        "interleave { cycle_length: 2 block_length: 7 } epoch { steps: 116 }", "interleave { cycle_length: 3 }",
        "shuffle { mode: BUFFER buffer_size: 100 }", "shuffle { mode: BUFFER buffer_size: 5000 } epoch { repeat: 3 }",
        "interleave { cycle_length: 2 } shuffle { mode: BUFFER buffer_size: 30 shuffle_files: true } "
        "epoch { steps: 125 }",
        "window { size: 4 shift: 1 } shuffle { block_size: '16KiB' buffer_size: 400 lanes: 4 }",
        "window { size: 7 shift: 1 across_files: true } shuffle { mode: BUFFER buffer_size: 90 } epoch { steps: 125 }"})
    for (const int rank : {0, 2}) {
      INFO(text << " rank " << rank);
      flow::PipelineSpec spec = flow::validate(data.pipeline(text + batch_of(24, " PARTIAL")));
      const flow::Plan plan(spec, flow::count_data(spec, 1, {}), {.rank = rank, .world_size = 3, .replicas = 1}, 1);
      // Returns each step as its records (file and number in the file), as the tickets and rows name them.
      const auto walk = [&](flow::Walk::Start start, int64_t steps) {
        flow::Walk tickets(plan, start, false);
        flow::Walk rows(plan, start, true);
        std::vector<std::vector<uint64_t>> out;
        std::vector<flow::Ticket> opened;
        flow::Step a, b;
        for (int64_t i = 0; i < steps; i++) {
          tickets.next(a, &opened);
          rows.next(b, nullptr);
          REQUIRE(a.tickets == opened.size());
          REQUIRE(b.tickets == opened.size());
          out.emplace_back();
          for (const flow::TicketRows& run : b.rows)
            for (uint32_t row = run.first; row < run.first + run.count; row++) {
              const flow::Ticket& ticket = opened[run.ticket];
              REQUIRE(row < ticket.rows);
              const auto extent = std::find_if(ticket.extents.begin(), ticket.extents.end(), [&](const auto& e) {
                return row >= e.first_row && row < e.first_row + e.rows;
              });
              out.back().push_back(uint64_t{extent->file} << 32 | (extent->first_record + row - extent->first_row));
            }
        }
        return out;
      };
      const auto all = walk({.epoch = 1, .step = 0}, 250);
      for (const int64_t step : {1, 2, 17, 60, 110, 115}) {
        const auto rest = walk({.epoch = 1, .step = step}, 250 - step);
        CHECK(std::equal(rest.begin(), rest.end(), all.begin() + step));
      }
    }
}

TEST_CASE("no step needs more chunks than the smallest plan has slots for") {
  // Of the second data each file is a block, so that a buffer holds samples of many blocks.
  const Data few_blocks({1500, 400, 3, 900}), many_blocks(std::vector<int64_t>(150, 20));
  const std::string many = "many blocks: ";
  for (const std::string& which : std::vector<std::string>{
           "", "shuffle { block_size: '16KiB' buffer_size: 400 lanes: 4 } epoch { repeat: 3 }",
           "shuffle { mode: BUFFER buffer_size: 30 } epoch { repeat: 3 }",
           "shuffle { mode: GLOBAL } epoch { repeat: 3 }", "window { size: 40 shift: 3 stride: 5 }",
           "window { size: 40 shift: 3 } shuffle { mode: GLOBAL }",
           "window { size: 9 shift: 1 } shuffle { block_size: '16KiB' buffer_size: 300 lanes: 2 } epoch { repeat: 3 }",
           "window { size: 200 shift: 7 across_files: true } shuffle { block_size: '16KiB' buffer_size: 100 lanes: 4 }",
           "window { size: 9 shift: 1 across_files: true } shuffle { mode: BUFFER buffer_size: 30 } epoch { repeat: 3 "
           "}",
           "window { size: 30 shift: 40 } shuffle { mode: BUFFER buffer_size: 10 shuffle_files: true }",
           many + "shuffle { mode: BUFFER buffer_size: 250 }", many + "shuffle { mode: BUFFER buffer_bytes: '40KiB' }",
           many + "shuffle { mode: BUFFER buffer_size: 250 shuffle_files: true }",
           many + "shuffle { mode: BUFFER buffer_size: 250 } interleave { cycle_length: 4 }",
           many + "shuffle { mode: BUFFER buffer_size: 200 } window { size: 3 shift: 1 }",
           many + "shuffle { mode: BUFFER buffer_size: 250 } epoch { repeat: 2 }",
           many + "shuffle { mode: BLOCK buffer_size: 250 }"}) {
    INFO(which);
    const bool of_many = which.starts_with(many);
    const Data& data = of_many ? many_blocks : few_blocks;
    const std::string text = of_many ? which.substr(many.size()) : which;
    flow::PipelineSpec spec = flow::validate(data.pipeline(text + batch_of(24, "PARTIAL")));
    const flow::DataSet counted = flow::count_data(spec, 1, {});
    uint64_t refused = 0, accepted = spec.memory_limit;
    while (accepted - refused > 1) {
      spec.memory_limit = refused + (accepted - refused) / 2;
      try {
        const flow::Plan plan(spec, counted, {}, 1);
        accepted = spec.memory_limit;
      } catch (const Error&) {
        refused = spec.memory_limit;
      }
    }
    spec.memory_limit = accepted;
    const flow::Plan plan(spec, counted, {}, 1);
    flow::Walk walk(plan, {}, false);
    std::vector<flow::Ticket> opened;
    uint64_t finished = 0, most = 0;
    for (flow::Step step; !step.ends_epoch; finished += step.finished.size()) {
      walk.next(step, &opened);
      most = std::max(most, step.tickets - finished);
    }
    CHECK(most + 2 <= plan.memory.slots);
    for (const flow::Ticket& ticket : opened) {
      uint64_t bytes = 0;
      for (const flow::Extent& e : ticket.extents) bytes += io::Read::capacity_for(e.offset, e.length);
      CHECK(bytes <= plan.memory.slot_data_bytes);
    }
  }
}

TEST_CASE("the slots of a shuffle buffer are as large as the small files that they hold") {
  const Data data(std::vector<int64_t>(150, 3));
  const flow::PipelineSpec spec =
      flow::validate(data.pipeline("shuffle { mode: BUFFER buffer_size: 200 } " + batch_of(24, "DROP")));
  const flow::Plan plan(spec, flow::count_data(spec, 1, {}), {}, 1);
  CHECK(plan.memory.slot_data_bytes <= 16 << 10);
  Feeder feeder(data.pipeline("shuffle { mode: BUFFER buffer_size: 200 } " + batch_of(450, "DROP")));
  auto all = read_epoch(feeder).front().all();
  std::sort(all.begin(), all.end());
  CHECK(all == numbers(450));
}

TEST_CASE("the plan counts what the feed keeps of each file") {
  const auto of_files = [](size_t count) {
    const Data data(std::vector<int64_t>(count, 1));
    const flow::PipelineSpec spec = flow::validate(data.pipeline(batch_of(1, "DROP")));
    const flow::Plan plan(spec, flow::count_data(spec, 1, {}), {}, 1);
    for (const flow::MemoryLine& line : plan.memory.lines)
      if (line.what == "files") return line.count * line.bytes;
    return uint64_t{0};
  };
  const uint64_t ten = of_files(10), all = of_files(300);
  CHECK(ten >= 10 * sizeof(flow::DataFile));
  CHECK(all == 30 * ten);
}

TEST_CASE("ranks share the reading") {
  const Data data(std::vector<int64_t>(8, 12'000));
  const Pipeline pipeline = data.pipeline("shuffle { block_size: '16KiB' buffer_size: 500 } " + batch_of(64, "DROP"));
  uint64_t all = 0;
  {
    Feeder feeder(pipeline);
    read_epoch(feeder);
    for (const auto& file : feeder.files()) all += std::filesystem::file_size(file);
  }
  for (const int world : {2, 4, 8})
    for (int rank = 0; rank < world; rank++) {
      Options options;
      options.rank = rank;
      options.world_size = world;
      options.epoch = 1;
      flow::PipelineSpec spec = flow::validate(pipeline);
      const flow::Plan plan(spec, flow::count_data(spec, 1, {}), {.rank = rank, .world_size = world, .replicas = 1}, 1);
      flow::Walk walk(plan, {}, false);
      std::vector<flow::Ticket> tickets;
      for (flow::Step step; !step.ends_epoch;) walk.next(step, &tickets);
      uint64_t bytes = 0;
      for (const flow::Ticket& ticket : tickets) bytes += ticket.bytes();
      INFO(world << " ranks: rank " << rank << " reads " << bytes << " of " << all);
      CHECK(static_cast<double>(bytes) <= 1.1 * static_cast<double>(all) / world);
    }
}

TEST_CASE("a buffer gives the orders that tf.data's gives, as often") {
  // A file of 2000 records of 1 KiB, as an index describes it.
  flow::DataSet data;
  data.samples = 2000;
  flow::DataFile& file = data.files.emplace_back();
  file.index.records = 2000;
  file.index.largest_record = 1008;
  file.samples = flow::Selection(0, 2000);
  std::vector<io::IndexEntry> entries;
  for (uint64_t record = 0; record <= 2000; record += 16) entries.push_back({record << 10, record});
  file.index.entries = std::move(entries);

  std::ifstream in(FEEDLINE_GOLDEN "/order/buffer.json");
  const auto golden = nlohmann::json::parse(in);
  REQUIRE(golden["samples"] == 2000);
  const int orders = golden["orders"], of_label = 2000 / golden["labels"].get<int>();
  uint64_t read_again = 0;
  for (const auto& figure : golden["figures"]) {
    const int64_t buffer_size = figure["buffer_size"];
    const Pipeline pipeline = parse_pipeline(
        "source { files: 'a' record_type: RAW } shuffle { mode: BUFFER buffer_size: " + std::to_string(buffer_size) +
        " } seed: 11 " + batch_of(50, "DROP"));
    const flow::PipelineSpec spec = flow::validate(pipeline, [](const flow::FilePatterns& patterns) {
      return flow::FileList{patterns.files, {}};
    });
    const flow::Plan plan(spec, data, {}, 1);
    const flow::Order& order = *plan.orders[0];
    flow::Walk walk(plan, {}, true);
    uint64_t first_ticket = 0;
    std::map<std::string, std::vector<double>> got;
    for (int pass = 0; pass < orders; pass++) {
      std::vector<flow::Ticket> tickets;
      std::vector<uint64_t> samples;
      std::set<uint64_t> open;
      size_t most_open = 0;
      for (flow::Step step; !step.ends_epoch;) {
        walk.next(step, &tickets);
        for (const flow::TicketRows& rows : step.rows) {
          const flow::Ticket& ticket = tickets[rows.ticket - first_ticket];
          const auto extent = std::find_if(ticket.extents.begin(), ticket.extents.end(),
                                           [&](const auto& e) { return rows.first < e.first_row + e.rows; });
          samples.push_back(extent->first_record + rows.first - extent->first_row);
          open.insert(rows.ticket);
        }
        most_open = std::max(most_open, open.size());
        for (const uint64_t ticket : step.finished) open.erase(ticket);
      }
      first_ticket += tickets.size();
      CHECK(open.empty());
      CHECK(most_open <= order.open_in_buffer(50) + 50 / order.picks() + 1);
      uint64_t rows = 0;
      for (const flow::Ticket& ticket : tickets) rows += ticket.rows;
      read_again += rows - 2000;

      std::vector<double> displacement;
      double sum = 0, runs = 1;
      for (size_t i = 0; i < samples.size(); i++) {
        displacement.push_back(static_cast<double>(i) - static_cast<double>(samples[i]));
        sum += std::abs(displacement.back());
        runs +=
            i > 0 && samples[i] / static_cast<uint64_t>(of_label) != samples[i - 1] / static_cast<uint64_t>(of_label);
      }
      got["mean_displacement"].push_back(sum / 2000);
      got["first_stays"].push_back(samples[0] == 0);
      got["label_run"].push_back(2000 / runs);
      std::sort(displacement.begin(), displacement.end());
      for (const int per_cent : {0, 1, 10, 50, 90, 99, 100}) {
        const double at = 1999 * per_cent / 100.0;
        const auto below = static_cast<size_t>(at);
        const double above = displacement[std::min<size_t>(1999, below + 1)];
        got["quantiles " + std::to_string(per_cent)].push_back(displacement[below] + (at - static_cast<double>(below)) *
                                                                                         (above - displacement[below]));
      }
      std::sort(samples.begin(), samples.end());
      REQUIRE(samples.size() == 2000);
      CHECK(std::adjacent_find(samples.begin(), samples.end()) == samples.end());
    }
    for (const auto& [name, values] : got) {
      const size_t space = name.find(' ');
      const auto& wanted = space == name.npos ? figure[name] : figure["quantiles"][name.substr(space + 1)];
      double mean = 0, squares = 0;
      for (const double value : values) mean += value / orders;
      for (const double value : values) squares += (value - mean) * (value - mean);
      const double error = std::sqrt(squares / orders / (orders - 1));
      INFO("buffer_size " << buffer_size << ": " << name);
      CHECK(std::abs(mean - wanted[0].get<double>()) <= 5 * std::hypot(error, wanted[1].get<double>()) + 1e-9);
    }
  }
  CHECK(read_again > 0);  // a few samples stay in the buffer after their blocks are gone
}

TEST_CASE("GLOBAL gives each order of a few samples as often as any other") {
  // The chi-square that only one in 10,000 seeds would exceed.
  for (const auto& [samples, largest] :
       std::vector<std::pair<uint64_t, double>>{{2, 15.2}, {3, 25.8}, {4, 57}, {5, 186}}) {
    std::vector<int> order(samples);
    std::map<std::vector<int>, int> seen;
    for (uint64_t i = 0; i < samples; i++) order[i] = static_cast<int>(i);
    do seen[order] = 0;
    while (std::ranges::next_permutation(order).found);
    constexpr int each = 200;
    const int drawn = each * static_cast<int>(seen.size());
    for (uint64_t key = 0; key < static_cast<uint64_t>(drawn); key++) {
      const flow::Permutation permutation(samples, key_of({samples, key}));
      for (uint64_t i = 0; i < samples; i++) order[i] = static_cast<int>(permutation(i));
      REQUIRE(seen.count(order) == 1);
      seen[order]++;
    }
    double squares = 0;
    for (const auto& [_, times] : seen) squares += static_cast<double>((times - each) * (times - each)) / each;
    INFO(samples << " samples");
    CHECK(squares < largest);
  }
}

TEST_CASE("GLOBAL brings each of a few samples to each place as often") {
  for (uint64_t samples = 2; samples < 16; samples++) {
    std::vector<int> seen(samples * samples);
    constexpr int each = 500;
    for (uint64_t key = 0; key < each * samples; key++) {
      const flow::Permutation permutation(samples, key_of({samples, key}));
      for (uint64_t i = 0; i < samples; i++) seen[i * samples + permutation(i)]++;
    }
    double squares = 0;
    for (const int times : seen) squares += static_cast<double>((times - each) * (times - each)) / each;
    const auto freedom = static_cast<double>((samples - 1) * (samples - 1));
    INFO(samples << " samples");
    CHECK(squares < freedom + 5 * std::sqrt(2 * freedom) + 8);
  }
}

TEST_CASE("samples mix as widely as asked") {
  const Data data({20'000});
  const auto displacement = [&](const std::string& more) {
    const auto order = flat(global_batches(
        data.pipeline("shuffle { " + blocks_of_16k + more + " } " + batch_of(32, "PARTIAL valid_mask: 'ok'")), 1, 1,
        0));
    // Counts the pairs of neighbours in the file that are delivered less than a batch apart.
    std::vector<int64_t> at(order.size());
    for (size_t i = 0; i < order.size(); i++) at[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    int64_t close = 0;
    for (size_t i = 1; i < at.size(); i++) close += std::abs(at[i] - at[i - 1]) < 32;
    return close;
  };
  const int64_t narrow = displacement("lanes: 1"), wide = displacement("lanes: 1 buffer_size: 2000");
  CHECK(narrow > 6000);  // about 100 records of one block mix: 53 % of the pairs would be close
  CHECK(wide < 1400);    // 2000 of 20,000 records mix: 3 %
}
