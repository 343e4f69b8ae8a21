#include "trainer_bridge/report.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "feedline_pipeline.pb.h"
#include "flowgraph/feed/error_log.h"

namespace feedline {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

void add_graph(Report& report, const Feed& feed) {
  const flow::DataSet& data = feed.plan()->data;
  const flow::Graph& of = *feed.graph();
  flow::GraphReport graph = of.report();
  for (const std::vector<Error>* errors : {&data.skipped, &std::as_const(graph.errors)}) {
    const size_t room = flow::ErrorLog::kept - report.errors.size();
    std::copy_n(errors->begin(), std::min(errors->size(), room), std::back_inserter(report.errors));
  }
  report.skipped_total = data.skipped_total;
  report.errors_total = data.skipped_total + graph.errors_total;
  report.threads = feed.plan()->threads;
  report.bytes_read = graph.bytes_read;
  if (data.records > 0)
    report.bytes_needed = static_cast<uint64_t>(static_cast<double>(data.bytes) / static_cast<double>(data.records) *
                                                static_cast<double>(graph.parsed));
  report.count_s = data.count_s;
  report.layout_hits = graph.layout_hits;
  report.decode_warnings = graph.decode_warnings;
  if (const flow::CachePlan* plan = feed.plan()->cache.get()) {
    report.cache = {.hits = graph.cache_hits, .misses = graph.cache_misses};
    if (const io::EntryStore* store = feed.cache()->store()) {
      report.cache->share = plan->share();
      report.cache->entries = store->kept_entries();
      report.cache->bytes = store->kept_bytes();
    }
  }
  report.backend = of.backend();
  report.stages = std::move(graph.stages);
}

void add_transfer(Report& report, const flow::Transfer& transfer, flow::Graph* graph) {
  // A rank that reads audits the parts of all ranks in its graph, so the graph's audit replaces that of the delivery.
  const flow::DeliveryReport parts = graph ? graph->delivery().report() : flow::DeliveryReport{};
  report.last_epoch = parts.last_epoch;
  report.differing_epochs = parts.differing_epochs;
  const flow::TransferReport counted = transfer.report();
  report.bytes_sent = counted.bytes_sent;
  report.bytes_received = counted.bytes_received;
  report.stages.push_back(counted.stage);
}

void add_upload(Report& report, const flow::Upload& upload) {
  report.bytes_copied = upload.bytes_uploaded();
  report.bytes_between_gpus = upload.bytes_between_gpus();
  report.bytes_sent += upload.bytes_sent();
  report.bytes_received += upload.bytes_received();
  for (StageReport& stage : upload.report()) report.stages.push_back(std::move(stage));
}

}  // namespace

void add_delivery(Report& report, const flow::DeliveryReport& delivered, Clock::time_point start) {
  report.records = delivered.records;
  report.steps = delivered.steps;
  report.filler = delivered.filler;
  report.audit = delivered.audit;
  report.last_epoch = delivered.last_epoch;
  report.differing_epochs = delivered.differing_epochs;
  report.error = delivered.error;
  if (delivered.first_batch) {
    report.first_batch_s = seconds(*delivered.first_batch - start);
    report.wall_s = seconds(Clock::now() - *delivered.first_batch);
  }
  report.next_us = {delivered.next.quantile_us(0.5), delivered.next.quantile_us(0.99), delivered.next.max_us(),
                    delivered.next.histogram_us()};
  if (delivered.next_calls > 0)
    report.data_readiness = static_cast<double>(delivered.next_ready) / static_cast<double>(delivered.next_calls);
  for (size_t stage = 0; stage < flow::stage_count; stage++) {
    const double waited = delivered.waited_s[stage];
    report.next_wait_s += waited;
    if (waited > 0) report.waited_s.emplace_back(flow::name(static_cast<flow::Stage>(stage)), waited);
  }
  if (report.wall_s > 0 && delivered.takers > 0)
    report.next_wait_share = std::min(report.next_wait_s / report.wall_s / static_cast<double>(delivered.takers), 1.0);
  std::stable_sort(report.waited_s.begin(), report.waited_s.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  const bool all_ready = delivered.next_calls > 0 && delivered.next_ready == delivered.next_calls;
  if (!report.waited_s.empty() && !all_ready) report.waited_for = report.waited_s.front().first;
}

void add_route(Report& report, const Setup& setup, const flow::FeedFacts& facts) {
  report.distribute_mode =
      config::Distribute::Mode_Name(static_cast<config::Distribute::Mode>(setup.distribution.mode));
  if (setup.route.upload)
    report.outputs = flow::Upload::outputs(setup.spec, facts);
  else
    for (const flow::OutputSpec& output : setup.spec.outputs)
      if (!output.internal) report.outputs.emplace_back(output.name, "made on the host");
}

void add_missing(Report& report, const std::vector<flow::FeatureSpec>& features,
                 const flow::DeliveryReport& delivered) {
  report.missing_of = delivered.parsed;
  for (size_t f = 0; f < std::min(features.size(), delivered.lacking.size()); f++)
    if (features[f].kind != flow::FeatureKind::fixed || features[f].has_default)
      report.missing.emplace_back(features[f].name, delivered.lacking[f]);
}

void add_feed(Report& report, const Feed& feed) {
  if (feed.graph()) add_graph(report, feed);
  if (feed.transfer()) add_transfer(report, *feed.transfer(), feed.graph());
  if (feed.upload()) add_upload(report, *feed.upload());
}

}  // namespace feedline
