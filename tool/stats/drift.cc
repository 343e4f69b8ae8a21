#include "tool/stats/drift.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "feedline/error.h"
#include "tool/common/json.h"
#include "tool/common/text_file.h"
#include "tool/stats/stats_table.h"

namespace feedline::tool {
namespace {

constexpr double beyond_all = std::numeric_limits<double>::infinity();
constexpr size_t named_labels = 5;  // in a message

/// Returns a count. Throws Json::exception if it is not an unsigned 64-bit integer, for example if it is negative.
uint64_t count_of(const Json& json) { return json.get_ref<const uint64_t&>(); }

double share(const Json& part, const Json& whole) {
  const auto all = whole.get<double>();
  return all > 0 ? part.get<double>() / all : 0;
}

/// Returns distance / width, or 0 for a negative distance. If `width` is 0, a distance above 0 gives infinity, which
/// exceeds every bound.
double in_parts(double distance, double width) { return distance <= 0 ? 0 : width > 0 ? distance / width : beyond_all; }

class OutputComparison {
 public:
  OutputComparison(const Json& before, const Json& now, const DriftBounds& bounds)
      : before_(before), now_(now), bounds_(bounds), name_(before.at("name").get<std::string>()) {}

  std::vector<Drift> run() {
    if (before_.at("dtype") != now_.at("dtype") || before_.at("shape") != now_.at("shape") ||
        before_.at("ragged") != now_.at("ragged")) {
      found_.push_back(
          {name_, "type",
           fmt::format("the type is {} {}, before {} {}", now_.at("dtype").get<std::string>(), now_.at("shape").dump(),
                       before_.at("dtype").get<std::string>(), before_.at("shape").dump())});
      return std::move(found_);
    }
    compare_missing(name_, before_.at("missing"), now_.at("missing"));
    const bool labels = !before_.at("labels").is_null();
    if (labels) compare_labels();
    const auto rows_before = stats_rows(before_), rows_now = stats_rows(now_);
    for (const StatsRow& row : rows_before) {
      const auto same = std::ranges::find(rows_now, row.name, &StatsRow::name);
      if (same == rows_now.end()) continue;
      if (row.numbers->contains("missing") && same->numbers->contains("missing"))
        compare_missing(row.name, (*row.numbers).at("missing"), (*same->numbers).at("missing"));
      compare_not_finite(row.name, *row.numbers, *same->numbers);
      if ((*row.numbers).at("percentiles").is_null()) continue;
      if (count_of((*same->numbers).at("count")) == 0)
        found_.push_back({row.name, "empty", "there are no values now, and there were values before"});
      if ((*same->numbers).at("percentiles").is_null()) continue;
      compare_range(row.name, *row.numbers, *same->numbers);
      if (!labels || row.name != name_) compare_shares(row.name, *row.numbers, *same->numbers);
    }
    return std::move(found_);
  }

 private:
  void note(const std::string& name, const char* kind, double found, double bound, const std::string& message) {
    if (!(found > bound)) return;
    found_.push_back({name, kind, fmt::format("{}; the change exceeds the bound, {:g}", message, bound), found, bound});
  }

  void compare_missing(const std::string& name, const Json& before, const Json& now) {
    if (before.is_null() || now.is_null()) return;
    const double was = share(before, before_.at("rows")), is = share(now, now_.at("rows"));
    note(name, "missing", is - was, bounds_.missing,
         fmt::format("now {:.4g} % of the rows have no value, before {:.4g} %", 100 * is, 100 * was));
  }

  void compare_not_finite(const std::string& name, const Json& before, const Json& now) {
    const auto of = [](const Json& numbers) {
      return share(numbers.at("nan").get<double>() + numbers.at("infinite").get<double>(), numbers.at("count"));
    };
    note(name, "not_finite", of(now) - of(before), bounds_.missing,
         fmt::format("now {:.4g} % of the values are not finite, before {:.4g} %", 100 * of(now), 100 * of(before)));
  }

  /// Returns the labels with their counts; nullopt if there are too many different values.
  static std::optional<std::map<Json, uint64_t>> labels_of(const Json& output) {
    const Json& list = output.contains("texts")     ? output.at("texts")
                       : output.contains("classes") ? output.at("classes")
                                                    : output.at("numbers").at("values");
    if (list.is_null()) return std::nullopt;
    std::map<Json, uint64_t> labels;
    for (const Json& label : list) labels[label.at(0)] = count_of(label.at(1));
    return labels;
  }

  void compare_labels() {
    const auto before = labels_of(before_), now = labels_of(now_);
    if (!now && now_.contains("numbers") && now_.at("numbers").at("count") == 0) return;  // the drift "empty" says so
    if (!before || !now) {
      found_.push_back({name_, "labels", "the output now has too many different values to be labels"});
      return;
    }
    double all_before = 0, all_now = 0, fresh = 0, moved = 0;
    for (const auto& [label, count] : *before) all_before += static_cast<double>(count);
    for (const auto& [label, count] : *now) all_now += static_cast<double>(count);
    if (all_now == 0) {
      if (all_before > 0) found_.push_back({name_, "empty", "there are no labels now, and there were labels before"});
      return;
    }
    std::vector<std::string> names;
    for (const auto& [label, count] : *now) {
      const auto was = before->find(label);
      const double is_share = static_cast<double>(count) / all_now;
      const double was_share = was == before->end() ? 0 : static_cast<double>(was->second) / all_before;
      moved += std::max(0.0, is_share - was_share);
      if (was != before->end()) continue;
      fresh += is_share;
      names.push_back(printable(value_text(label)));
    }
    const size_t more = names.size() - std::min(names.size(), named_labels);
    names.resize(names.size() - more);
    note(name_, "new_labels", fresh, bounds_.new_labels,
         fmt::format("{:.4g} % of the values have labels that were not there before: {}{}", 100 * fresh,
                     fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : ""));
    note(name_, "shift", moved, bounds_.shift,
         fmt::format("{:.4g} % of the values have moved to a different label", 100 * moved));
  }

  void compare_range(const std::string& name, const Json& before, const Json& now) {
    const double low = before.at("min").get<double>(), high = before.at("max").get<double>();
    const double outside = std::max(low - now.at("min").get<double>(), now.at("max").get<double>() - high);
    note(name, "range", in_parts(outside, high - low), bounds_.range,
         fmt::format("values are now from {} to {}, before from {} to {}", value_text(now.at("min")),
                     value_text(now.at("max")), value_text(before.at("min")), value_text(before.at("max"))));
  }

  /// Compares, for every x, the share of the values that are at most x (the Kolmogorov-Smirnov distance). The
  /// percentiles give it to 1 %.
  void compare_shares(const std::string& name, const Json& before, const Json& now) {
    const auto was = before.at("percentiles").get<std::vector<double>>(),
               is = now.at("percentiles").get<std::vector<double>>();
    const auto share_up_to = [](const std::vector<double>& percentiles, double value) {
      return static_cast<double>(std::ranges::upper_bound(percentiles, value) - percentiles.begin()) / 100;
    };
    double moved = 0, at = 0;
    for (const auto& percentiles : {was, is}) {
      for (const double value : percentiles) {
        const double distance = std::abs(share_up_to(is, value) - share_up_to(was, value));
        if (distance <= moved) continue;
        moved = distance;
        at = value;
      }
    }
    note(name, "shift", moved, bounds_.shift,
         fmt::format("{:.0f} % of the values are now at most {:.6g}; before, {:.0f} % were", 100 * share_up_to(is, at),
                     at, 100 * share_up_to(was, at)));
  }

  const Json &before_, &now_;
  const DriftBounds& bounds_;
  const std::string name_;
  std::vector<Drift> found_;
};

const Json* output_named(const Json& statistics, const Json& name) {
  for (const Json& output : statistics.at("outputs"))
    if (output.at("name") == name) return &output;
  return nullptr;
}

}  // namespace

Json read_statistics(const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Category::bad_pipeline,
                fmt::format("--against needs a file that `feedline stats --json` printed, but this file {}", why),
                Place::of_file(file));
  };
  constexpr int deepest = 16;  // comparing and printing deeper values would take the whole stack
  bool too_deep = false;
  const auto look = [&](int depth, Json::parse_event_t, const Json&) {
    return !(too_deep = too_deep || depth > deepest);
  };
  Json json = Json::parse(read_text(file), look, false);
  if (too_deep) refuse("does not hold statistics");
  if (json.is_discarded()) refuse("is not JSON");
  if (!json.is_object() || !json.contains("outputs") || !json.contains("feedline_json"))
    refuse("does not hold statistics");
  if (json["feedline_json"] != document_version)
    refuse(fmt::format("has version {} of the format; make the file again", json["feedline_json"].dump()));
  return json;
}

std::vector<Drift> find_drift(const Json& before, const Json& now, const DriftBounds& bounds) {
  std::vector<Drift> found;
  const auto bad = [](const Json& statistics) {
    const auto part = [&](const Json& of_bad, const char* good) {
      const auto count = of_bad.get<double>();
      return count > 0 ? count / (count + statistics.at(good).get<double>()) : 0;
    };
    const Json of_data = statistics.value("bad_records_of_data", Json());  // older documents do not have it
    return part(statistics.at("bad_records"), "samples") + (of_data.is_null() ? 0 : part(of_data, "samples_of_data"));
  };
  if (bad(now) - bad(before) > bounds.missing)
    found.push_back({"", "bad_records",
                     fmt::format("now {:.4g} % of the records are bad, before {:.4g} %; the change exceeds the bound, "
                                 "{:g}",
                                 100 * bad(now), 100 * bad(before), bounds.missing),
                     bad(now) - bad(before), bounds.missing});
  for (const Json& output : before.at("outputs")) {
    const Json* const same = output_named(now, output.at("name"));
    if (!same) {
      found.push_back({output.at("name").get<std::string>(), "output", "the pipeline no longer has this output"});
      continue;
    }
    for (Drift& drift : OutputComparison(output, *same, bounds).run()) found.push_back(std::move(drift));
  }
  for (const Json& output : now.at("outputs"))
    if (!output_named(before, output.at("name")))
      found.push_back(
          {output.at("name").get<std::string>(), "output", "the earlier statistics do not have this output"});
  return found;
}

Json drift_json(const std::vector<Drift>& drifts, const DriftBounds& bounds) {
  Json json;
  json["drifted"] = !drifts.empty();
  json["bounds"] = {
      {"shift", bounds.shift}, {"range", bounds.range}, {"missing", bounds.missing}, {"new_labels", bounds.new_labels}};
  json["drifts"] = Json::array();
  for (const Drift& drift : drifts)
    json["drifts"].push_back({{"output", drift.output},
                              {"kind", drift.kind},
                              {"found", std::isfinite(drift.found) ? Json(drift.found) : Json()},
                              {"bound", drift.bound},
                              {"message", drift.message}});
  return json;
}

}  // namespace feedline::tool
