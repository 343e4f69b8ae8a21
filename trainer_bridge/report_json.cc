#include "trainer_bridge/report_json.h"

namespace feedline {
namespace {

Json audit_json(const EpochAudit& audit) {
  using Verdict = EpochAudit::Verdict;
  return {{"epoch", audit.epoch},
          {"delivered", audit.delivered},
          {"dropped", audit.dropped},
          {"bad", audit.bad},
          {"expected", audit.expected},
          {"holds", audit.verdict == Verdict::open ? Json() : Json(audit.verdict == Verdict::holds)},
          {"why", audit.why.empty() ? Json() : Json(audit.why)}};
}

Json cache_json(const Report::Cache& cache) {
  return {{"share", cache.share},
          {"hits", cache.hits},
          {"misses", cache.misses},
          {"entries", cache.entries},
          {"bytes", cache.bytes}};
}

Json stage_json(const StageReport& stage) {
  return {{"name", stage.name},
          {"busy_s", stage.busy_s},
          {"wait_s", stage.wait_s},
          {"queue", stage.queue},
          {"messages", stage.messages}};
}

template <typename Value>
Json object_of(const std::vector<std::pair<std::string, Value>>& pairs) {
  Json object = Json::object();
  for (const auto& [key, value] : pairs) object[key] = value;
  return object;
}

}  // namespace

Json report_json(const Report& report) {
  Json json = {{"verdict", report.verdict},
               {"error", report.error ? error_json(*report.error) : Json()},
               {"rank", report.rank},
               {"world_size", report.world_size},
               {"replicas", report.replicas},
               {"threads", report.threads},
               {"memory_planned", report.memory_planned},
               {"epoch", report.epoch},
               {"step", report.step},
               {"steps_per_epoch", report.steps_per_epoch},
               {"records", report.records},
               {"steps", report.steps},
               {"wall_s", report.wall_s},
               {"count_s", report.count_s},
               {"first_batch_s", report.first_batch_s},
               {"bytes_read", report.bytes_read},
               {"bytes_needed", report.bytes_needed},
               {"layout_hits", report.layout_hits},
               {"decode_warnings", report.decode_warnings},
               {"cache", report.cache ? cache_json(*report.cache) : Json()},
               {"bytes_copied", report.bytes_copied},
               {"bytes_between_gpus", report.bytes_between_gpus},
               {"distribute_mode", report.distribute_mode},
               {"bytes_sent", report.bytes_sent},
               {"bytes_received", report.bytes_received},
               {"next_us",
                {{"p50", report.next_us.p50},
                 {"p99", report.next_us.p99},
                 {"max", report.next_us.max},
                 {"histogram", report.next_us.histogram}}},
               {"data_readiness", report.data_readiness},
               {"next_wait_s", report.next_wait_s},
               {"next_wait_share", report.next_wait_share},
               {"waited_for", report.waited_for},
               {"waited_s", object_of(report.waited_s)},
               {"dropped", report.dropped},
               {"filler", report.filler},
               {"missing", object_of(report.missing)},
               {"missing_of", report.missing_of},
               {"audit", report.audit},
               {"epoch_audit", report.last_epoch ? audit_json(*report.last_epoch) : Json()},
               {"differing_epochs", report.differing_epochs},
               {"backend", report.backend},
               {"outputs", object_of(report.outputs)},
               {"stages", Json::array()},
               {"errors", errors_json(report.errors)},
               {"errors_total", report.errors_total}};
  for (const StageReport& stage : report.stages) json["stages"].push_back(stage_json(stage));
  return json;
}

std::string to_json(const Report& report) { return document_text(report_json(report)); }

}  // namespace feedline
