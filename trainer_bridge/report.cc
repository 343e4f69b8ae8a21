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
  const flow::Graph& graph = *feed.graph();
  const std::vector<Error> found = graph.errors();
  for (const std::vector<Error>* errors : {&data.skipped, &found}) {
    const size_t room = flow::ErrorLog::kept - report.errors.size();
    std::copy_n(errors->begin(), std::min(errors->size(), room), std::back_inserter(report.errors));
  }
  graph.add_to(report);
  report.skipped_total = data.skipped_total;
  report.bad_records += data.skipped_total;
  report.threads = feed.plan()->threads;
  report.count_s = data.count_s;
  if (const flow::CachePlan* plan = feed.plan()->cache.get()) {
    const io::EntryStore* store = feed.cache()->store();
    report.cache_share = store ? plan->share() : 0;
    report.cache_entries = store ? store->kept_entries() : 0;
    report.cache_bytes = store ? store->kept_bytes() : 0;
  }
  report.backend = graph.backend();
  report.stages = graph.stages();
}

void add_transfer(Report& report, const flow::Transfer& transfer, flow::Graph* graph) {
  // An audit checks that an epoch had every sample once. On a rank that reads, the graph audits the parts of all ranks,
  // so the graph's audit replaces that of the delivery, which has only this rank's part.
  const flow::DeliveryReport parts = graph ? graph->delivery().report() : flow::DeliveryReport{};
  report.last_epoch = parts.last_epoch;
  report.differing_epochs = parts.counters.differing_epochs;
  transfer.add_to(report);
  report.stages.push_back(transfer.stage());
}

void add_upload(Report& report, const flow::Upload& upload) {
  upload.add_to(report);
  for (StageReport& stage : upload.report()) report.stages.push_back(std::move(stage));
}

}  // namespace

void add_delivery(Report& report, const flow::DeliveryReport& delivered, Clock::time_point start) {
  static_cast<Counters&>(report) = delivered.counters;
  report.audit = delivered.audit;
  report.last_epoch = delivered.last_epoch;
  report.error = delivered.error;
  if (delivered.first_batch) {
    report.first_batch_s = seconds(*delivered.first_batch - start);
    report.wall_s = seconds(Clock::now() - *delivered.first_batch);
  }
  report.next_us = {delivered.next.quantile_us(0.5), delivered.next.quantile_us(0.99), delivered.next.max_us(),
                    delivered.next.histogram_us()};
  report.data_readiness_ratio =
      delivered.next_calls > 0 ? static_cast<double>(delivered.next_ready) / static_cast<double>(delivered.next_calls)
                               : 1;
  for (size_t stage = 0; stage < flow::stage_count; stage++) {
    const double waited = delivered.waited_s[stage];
    report.next_wait_s += waited;
    if (waited > 0) report.waited_s.emplace_back(flow::name(static_cast<flow::Stage>(stage)), waited);
  }
  if (report.wall_s > 0 && delivered.takers > 0)
    report.next_wait_ratio = std::min(report.next_wait_s / report.wall_s / static_cast<double>(delivered.takers), 1.0);
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
