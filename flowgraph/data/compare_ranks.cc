#include "flowgraph/data/compare_ranks.h"

#include <fmt/format.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/audit.h"
#include "base/format_count.h"
#include "base/rank_message.h"
#include "feedline/error.h"
#include "feedline_pipeline.pb.h"
#include "flowgraph/data/data_set.h"
#include "flowgraph/pipeline/feed_state.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/table/table.h"
#include "ranks/rank_group.h"

namespace feedline::flow {
namespace {

namespace pb = google::protobuf;

// Throws Error bad_pipeline if a rank differs from rank 0 of the group. in_what[r] says in what rank r differs from
// rank 0; an empty text means that the two are equal.
void refuse_differences(const RankGroup& group, const std::vector<std::string>& in_what) {
  std::map<std::string_view, std::vector<size_t>> alike;
  for (size_t rank = 0; rank < in_what.size(); rank++) alike[in_what[rank]].push_back(group.number_in_all(rank));
  const size_t first = group.number_in_all(0);
  std::vector<std::string> sentences;
  for (size_t rank = 0; rank < in_what.size(); rank++) {
    const std::vector<size_t>& ranks = alike[in_what[rank]];
    if (in_what[rank].empty() || group.number_in_all(rank) != ranks.front()) continue;
    sentences.push_back(
        ranks.size() == 1
            ? fmt::format("rank {} differs from rank {}: {}", ranks[0], first, in_what[rank])
            : fmt::format("ranks {} differ from rank {}: {}", fmt::join(ranks, ", "), first, in_what[rank]));
  }
  if (!sentences.empty()) throw Error(Category::bad_pipeline, fmt::format("{}", fmt::join(sentences, ", and ")));
}

/// Collects the fields that differ, each as in "shuffle.seed: 7, not 5".
class Differences : public pb::util::MessageDifferencer::Reporter {
 public:
  std::vector<std::string> found;

 private:
  using Path = std::vector<pb::util::MessageDifferencer::SpecificField>;

  static std::string name(const Path& path) {
    std::string name;
    for (const auto& step : path) {
      const std::string field = step.field ? step.field->name() : fmt::format("field {}", step.unknown_field_number);
      name += fmt::format("{}{}", name.empty() ? "" : ".", field);
      if (step.index >= 0 || step.new_index >= 0) name += fmt::format("[{}]", std::max(step.index, step.new_index));
    }
    return name;
  }
  static std::string value(const pb::Message& message, const Path& path, int index) {
    if (!path.back().field) return "a value that this version of feedline does not know";  // from a different version
    pb::TextFormat::Printer printer;
    printer.SetSingleLineMode(true);
    std::string text;
    printer.PrintFieldValueToString(message, path.back().field, index, &text);
    if (text.size() > 200) text = text.substr(0, 200) + "... ";
    return path.back().field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE ? "{ " + text + "}" : text;
  }
  void ReportAdded(const pb::Message&, const pb::Message& theirs, const Path& path) override {
    found.push_back(fmt::format("{}: {}, but not set there", name(path), value(theirs, path, path.back().new_index)));
  }
  void ReportDeleted(const pb::Message& first, const pb::Message&, const Path& path) override {
    found.push_back(fmt::format("{}: not set, but {} there", name(path), value(first, path, path.back().index)));
  }
  void ReportModified(const pb::Message& first, const pb::Message& theirs, const Path& path) override {
    const pb::FieldDescriptor* const field = path.back().field;
    if (field && field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) return;  // its fields are reported
    found.push_back(fmt::format("{}: {}, not {}", name(path), value(theirs, path, path.back().new_index),
                                value(first, path, path.back().index)));
  }
};

void add_differences(const config::Pipeline& first, const config::Pipeline& theirs, std::vector<std::string>& found) {
  Differences differences;
  pb::util::MessageDifferencer differencer;
  differencer.ReportDifferencesTo(&differences);
  differencer.Compare(first, theirs);
  found.insert(found.end(), differences.found.begin(), differences.found.end());
}

config::Pipeline comparable(config::Pipeline pipeline) {
  pipeline.clear_memory();
  pipeline.clear_parallelism();
  pipeline.clear_cache();
  pipeline.mutable_distribute()->clear_peer();
  for (config::Source& source : *pipeline.mutable_source()) {
    source.clear_files();  // compare_files() compares the list of files
    source.clear_exclude();
    const std::string stride = source.index().stride();
    source.clear_index();
    if (!stride.empty()) source.mutable_index()->set_stride(stride);
  }
  for (config::Output& output : *pipeline.mutable_output()) {
    if (output.has_vocabulary()) output.mutable_vocabulary()->clear_keys_file();  // compare_tables() compares the names
    if (!output.has_lookup()) continue;
    output.mutable_lookup()->clear_table();  // compare_tables() compares the tables
    output.mutable_lookup()->clear_keys_file();
    output.mutable_lookup()->clear_resident();
  }
  return pipeline;
}

// Returns the number of the table in which the output looks values up; nullopt if it does not look them up.
std::optional<size_t> looked_up_in(const OutputSpec& output) {
  const RowSpec* const rows = output.row_spec();
  if (const auto* lookup = rows ? std::get_if<LookupRows>(rows) : nullptr) return lookup->key.table;
  if (const auto* vocabulary = rows ? std::get_if<VocabularyRows>(rows) : nullptr) return vocabulary->key.table;
  return std::nullopt;
}

// Throws Error bad_pipeline unless text() of the files is the same on all ranks, in the same order of files.
void compare_texts(RankGroup& ranks, const DataSet& data, const std::function<std::string(const DataFile&)>& text) {
  if (ranks.size() == 1) return;
  std::vector<uint64_t> hashes;
  uint64_t digest = 0;
  for (const DataFile& file : data.files) {
    hashes.push_back(hash64(text(file)));
    digest = mix64(digest ^ hashes.back());
  }
  MessageWriter mine;
  mine.put(digest);
  mine.put<uint64_t>(hashes.size());
  const std::vector<std::string> digests = ranks.all_gather(mine.take());
  if (std::all_of(digests.begin(), digests.end(), [&](const auto& other) { return other == digests[0]; })) return;

  mine.put_rows(std::span<const uint64_t>(hashes));
  std::vector<std::vector<uint64_t>> lists;
  const auto read = [&](const std::vector<std::string>& all, size_t rank) {
    return MessageReader(all[rank], static_cast<int>(ranks.number_in_all(rank)));
  };
  const std::vector<std::string> all = ranks.all_gather(mine.take());
  for (size_t rank = 0; rank < all.size(); rank++) lists.push_back(read(all, rank).get_rows<uint64_t>());
  // Each rank sends its text of the first file in which it differs from rank 0. For each rank, rank 0 sends the text
  // that rank 0 has of that file.
  for (size_t rank = 0; rank < lists.size(); rank++) {
    if (ranks.rank() != 0 && ranks.rank() != rank) continue;
    const std::vector<uint64_t>&there = lists[0], &here = lists[rank];
    const auto first = std::mismatch(there.begin(), there.end(), here.begin(), here.end()).first - there.begin();
    mine.put_text(first < std::ssize(hashes) ? text(data.files[static_cast<size_t>(first)]) : "none");
  }
  const std::vector<std::string> texts = ranks.all_gather(mine.take());
  MessageReader there = read(texts, 0);
  std::vector<std::string> in_what;
  for (size_t rank = 0; rank < lists.size(); rank++) {
    const std::string_view other = there.get_text();
    in_what.emplace_back();
    if (lists[rank] == lists[0]) continue;
    if (lists[rank].size() != lists[0].size())
      in_what[rank] = fmt::format("{}, not {}; ", format_count(lists[rank].size(), "file"), lists[0].size());
    in_what[rank] += fmt::format("the first file that differs: {}, not {}", read(texts, rank).get_text(), other);
  }
  refuse_differences(ranks, in_what);
}

}  // namespace

void compare_positions(RankGroup& ranks, const Position& position) {
  std::vector<std::string> all = ranks.all_gather(fmt::format("step {} of epoch {}", position.step, position.epoch));
  for (std::string& text : std::span(all).subspan(1))
    text = text == all[0] ? "" : fmt::format("it continues at {}, not at {}", text, all[0]);
  all[0].clear();
  refuse_differences(ranks, all);
}

void compare_pipelines(RankGroup& ranks, const config::Pipeline& pipeline, int replicas, int parts, uint64_t epoch) {
  MessageWriter mine;
  mine.put<int64_t>(replicas);
  mine.put<int64_t>(parts);
  mine.put(epoch);
  mine.put_text(comparable(pipeline).SerializeAsString());
  struct Feed {
    int64_t replicas, parts;
    uint64_t epoch;
    std::string bytes;
    config::Pipeline pipeline;
  };
  std::vector<Feed> feeds;
  for (const std::string& message : ranks.all_gather(mine.take())) {
    const size_t rank = ranks.number_in_all(feeds.size());
    MessageReader in(message, static_cast<int>(rank));
    Feed& feed = feeds.emplace_back(
        Feed{in.get<int64_t>(), in.get<int64_t>(), in.get<uint64_t>(), std::string(in.get_text()), {}});
    in.end();
    if (!feed.pipeline.ParseFromString(feed.bytes)) in.refuse("does not hold a pipeline");
  }
  std::vector<std::string> in_what;
  for (const Feed& feed : feeds) {
    std::vector<std::string> found;
    if (feed.replicas != feeds[0].replicas)
      found.push_back(fmt::format("{} replicas, not {}", feed.replicas, feeds[0].replicas));
    if (feed.parts != feeds[0].parts)
      found.push_back(fmt::format("data_parallel_size {}, not {}", feed.parts, feeds[0].parts));
    if (feed.epoch != feeds[0].epoch) found.push_back(fmt::format("epoch {}, not {}", feed.epoch, feeds[0].epoch));
    // Equal bytes are not compared by field, because they may hold a NaN, which is not equal to itself.
    if (feed.bytes != feeds[0].bytes) add_differences(feeds[0].pipeline, feed.pipeline, found);
    constexpr size_t most = 5;
    if (found.size() > most) {
      const std::string more = fmt::format("{} more fields", found.size() - most);
      found.resize(most);
      found.push_back(more);
    }
    in_what.push_back(fmt::format("{}", fmt::join(found, "; ")));
  }
  refuse_differences(ranks, in_what);
}

void compare_tables(RankGroup& ranks, const PipelineSpec& spec, const Tables& tables) {
  MessageWriter mine;
  size_t lookups = 0;
  for (const OutputSpec& output : spec.outputs) {
    const std::optional<size_t> number = looked_up_in(output);
    if (!number) continue;
    const TableSpec& table = spec.tables[*number];
    const Table* const open = tables[*number].get();
    const std::string what = table.is_vocabulary()
                                 ? "names of " + table.name()
                                 : fmt::format("table {} of {} {}", table.name(), name(table.dtype),
                                               to_string(table.row_shape.with_rows(static_cast<int64_t>(table.rows))));
    mine.put_text(fmt::format("output '{}': {}{}", output.name, what,
                              open ? fmt::format(", digest {:016x}", open->digest()) : ""));
    lookups++;
  }
  if (lookups == 0) return;  // this holds on all ranks, because they have the same pipeline
  const std::vector<std::string> all = ranks.all_gather(mine.take());
  std::vector<std::string> in_what(all.size());
  for (size_t rank = 1; rank < all.size(); rank++) {
    MessageReader there(all[0]), here(all[rank]);
    for (size_t i = 0; i < lookups && in_what[rank].empty(); i++) {
      const std::string_view first = there.get_text(), other = here.get_text();
      if (other != first) in_what[rank] = fmt::format("{}, not {}", other, first);
    }
  }
  refuse_differences(ranks, in_what);
}

void compare_files(RankGroup& ranks, const DataSet& data) {
  compare_texts(ranks, data, [](const DataFile& file) {
    return fmt::format("{}{} of {} bytes", file.source > 0 ? fmt::format("source[{}]: ", file.source) : "", file.name(),
                       file.id.size);
  });
}

void compare_content(RankGroup& ranks, const DataSet& data, ShuffleMode mode) {
  compare_texts(ranks, data, [mode](const DataFile& file) {
    std::string text =
        fmt::format("{} with {} good records (audit {:016x})", file.name(), file.index.records, file.index.audit);
    uint64_t places = 0;
    for (const io::SeekEntry& entry : file.index.seek_points)
      if (mode == ShuffleMode::block) places = mix64(places ^ entry.point.offset);
    if (places != 0) text += fmt::format(" and {} seek points ({:016x})", file.index.seek_points.size(), places);
    if (file.kept_audit)
      text += fmt::format(", of which the filter keeps {} (audit {:016x})", file.samples.samples(), *file.kept_audit);
    return text;
  });
}

}  // namespace feedline::flow
