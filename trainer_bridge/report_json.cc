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

// The former names of counters, and their names now. Version 0.2 will leave out the former names.
constexpr std::pair<const char*, const char*> old_names[] = {{"memory_planned", "planned_bytes"},
                                                             {"steps_per_epoch", "epoch_steps"},
                                                             {"bytes_read", "read_bytes"},
                                                             {"bytes_needed", "needed_bytes"},
                                                             {"bytes_copied", "uploaded_bytes"},
                                                             {"bytes_between_gpus", "between_gpus_bytes"},
                                                             {"bytes_sent", "sent_bytes"},
                                                             {"bytes_received", "received_bytes"},
                                                             {"data_readiness", "data_readiness_ratio"},
                                                             {"next_wait_share", "next_wait_ratio"},
                                                             {"dropped", "dropped_samples"},
                                                             {"filler", "filler_rows"},
                                                             {"errors_total", "bad_records"}};

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
               {"world_size", report.world_size}};
  for_each_counter(report, [&](const CounterInfo& info, auto value) { json[info.name] = value; });
  json.update({{"wall_s", report.wall_s},
               {"count_s", report.count_s},
               {"first_batch_s", report.first_batch_s},
               {"cache_share", report.cache_share ? Json(*report.cache_share) : Json()},
               {"distribute_mode", report.distribute_mode},
               {"next_us",
                {{"p50", report.next_us.p50},
                 {"p99", report.next_us.p99},
                 {"max", report.next_us.max},
                 {"histogram", report.next_us.histogram}}},
               {"next_wait_s", report.next_wait_s},
               {"waited_for", report.waited_for},
               {"waited_s", object_of(report.waited_s)},
               {"missing", object_of(report.missing)},
               {"missing_of", report.missing_of},
               {"audit", report.audit},
               {"epoch_audit", report.last_epoch ? audit_json(*report.last_epoch) : Json()},
               {"backend", report.backend},
               {"outputs", object_of(report.outputs)},
               {"stages", Json::array()},
               {"errors", errors_json(report.errors)}});
  for (const StageReport& stage : report.stages) json["stages"].push_back(stage_json(stage));
  for (const auto& [before, now] : old_names) json[before] = json[now];
  json["cache"] = Json();
  if (report.cache_share)
    json["cache"] = {{"share", *report.cache_share},
                     {"hits", report.cache_hits},
                     {"misses", report.cache_misses},
                     {"entries", report.cache_entries},
                     {"bytes", report.cache_bytes}};
  return json;
}

std::string to_json(const Report& report) { return document_text(report_json(report)); }

}  // namespace feedline
