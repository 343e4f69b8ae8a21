// Feeds drawn pipelines from records in memory, without the graph: parses chunks, assembles steps, and writes batches.
// Each tensor must be what the model says (row_makers_model.h), and bytes beside tensors must stay untouched. The same
// rows that travel packed must be the same bytes once they are unpacked; and so must the rows that a RowWriter makes of
// values that end where their memory ends.
//
// covers: flowgraph/batch/batch_writer.cc flowgraph/batch/batch_rows.cc flowgraph/batch/ragged_writer.cc
// covers: flowgraph/batch/packing.cc flowgraph/rows/one_hot_writer.cc flowgraph/rows/lookup_writer.cc
// covers: flowgraph/rows/vocabulary_writer.cc flowgraph/rows/hash_writer.cc flowgraph/rows/fingerprint.cc
// covers: flowgraph/rows/make_row_writer.cc
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/machine.h"
#include "draw.h"
#include "flowgraph/batch/assemble.h"
#include "flowgraph/batch/batch_writer.h"
#include "flowgraph/batch/empty_epoch.h"
#include "flowgraph/batch/packing.h"
#include "flowgraph/chunk/cache_store.h"
#include "flowgraph/parse/formula_columns.h"
#include "flowgraph/plan/cache_plan.h"
#include "flowgraph/plan/feed_facts.h"
#include "flowgraph/table/table.h"
#include "io/records/crc32c.h"
#include "row_makers_model.h"
#include "tests/io/frames.h"

namespace {

using namespace feedline;
using namespace feedline::flow;
using namespace feedline::test;
using Kind = ModelOutput::Kind;

std::string pipeline;  // the text of this case

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n%s\n", what.c_str(), pipeline.c_str());
  std::abort();
}

bool is_untouched(std::span<const std::byte> bytes) {
  return bytes.empty() ||
         (bytes[0] == OutputBlock::untouched && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

/// The files of a case, and where each record lies in them.
struct Files {
  struct Place {
    size_t file;
    uint64_t offset;
    uint32_t crc;  // masked, as it is stored
  };
  std::vector<std::string> files;
  std::vector<Place> places;
  std::vector<size_t> first_of_file;  // the number of each file's first record
  std::vector<bool> damaged;          // by record: it is another than it was when it was counted

  DataSet count(const PipelineSpec& spec) const;
};

Files make_files(Draw& draw, const Model& model) {
  Files all;
  all.files.resize(1 + draw.below(3));
  for (size_t f = 0, r = 0; f < all.files.size(); f++) {
    all.first_of_file.push_back(r);
    for (const size_t end = model.records.size() * (f + 1) / all.files.size(); r < end; r++) {
      const std::string framed = frame(model.records[r]);
      uint32_t crc;
      std::memcpy(&crc, framed.data() + framed.size() - sizeof crc, sizeof crc);
      all.places.push_back({f, all.files[f].size(), crc});
      all.files[f] += framed;
    }
  }
  all.damaged.resize(model.records.size());
  for (size_t left = draw.below(3); left > 0 && !all.places.empty(); left--) {
    const size_t r = draw.below(all.places.size());
    if (model.records[r].empty()) continue;
    all.files[all.places[r].file][all.places[r].offset + io::header_bytes] ^= 1;
    all.damaged[r] = !all.damaged[r];
  }
  return all;
}

/// What counting the files finds, before any of their records is damaged.
DataSet Files::count(const PipelineSpec& spec) const {
  DataSet data;
  for (size_t f = 0; f < files.size(); f++) {
    DataFile& file = data.files.emplace_back();
    file.id.uri = "/" + std::to_string(f);
    file.index.end = file.index.stream_size = files[f].size();
    std::vector<io::IndexEntry> entries;
    for (size_t r = first_of_file[f]; r < places.size() && places[r].file == f; r++) {
      const uint64_t offset = places[r].offset,
                     next = r + 1 < places.size() && places[r + 1].file == f ? places[r + 1].offset : files[f].size();
      while (entries.size() * file.index.stride <= offset) entries.push_back({offset, file.index.records});
      const uint64_t payload = next - offset - io::frame_bytes;
      file.index.records++;
      file.index.payload_bytes += payload;
      file.index.largest_record = std::max(file.index.largest_record, payload);
      file.index.audit += audit_term(offset, places[r].crc);
    }
    while (entries.size() * file.index.stride < files[f].size())
      entries.push_back({files[f].size(), file.index.records});
    entries.push_back({files[f].size(), file.index.records});
    file.index.entries = std::move(entries);
    file.pass_audit = audit_key(0, f) * file.index.audit;
  }
  data.no_pass_audit.clear();
  choose_samples(spec, data);
  return data;
}

/// A batch in memory of its own.
struct Written {
  OutputBlock memory;
  BatchBuffer buffer;
  std::vector<BadRecord> failed;

  explicit Written(size_t bytes) : memory(bytes) { buffer.memory = memory.data(); }
  const TensorView& at(const std::string& name) const {
    for (const auto& tensor : buffer.content.tensors)
      if (tensor.name == name) return tensor.tensor;
    require(false, "there is no tensor " + name);
    return buffer.content.tensors.front().tensor;
  }
  std::string_view bytes_of(const std::string& name) const {
    const TensorView& view = at(name);
    return {static_cast<const char*>(view.data), view.size_bytes()};
  }
};

/// A row of a batch as the steps say it: which record it has, or stands in for.
struct Row {
  size_t record;
  bool filler, bad;
};

class Feed {
 public:
  Feed(Draw& draw, const Model& model, const Files& files, const PipelineSpec& spec, int replicas)
      : draw_(draw),
        model_(model),
        files_(files),
        data_(std::make_shared<const DataSet>(files.count(spec))),
        cache_(spec.cache ? std::make_shared<const CachePlan>(spec, *data_, KeptSizes{.mean = 100}) : nullptr),
        tables_(open_tables(spec, uint64_t{1} << 30)),
        plan_(make_plan(spec, replicas)),
        packed_plan_(make_plan(pack(spec).spec, replicas)),
        writer_(*plan_),
        packed_writer_(*packed_plan_, nullptr, true),
        packed_(spec, facts_of(*packed_plan_), tables_) {
    if (!cache_) return;
    store_.emplace(*cache_);
    cached_writer_.emplace(*plan_, &*store_);
  }

  void run();

 private:
  std::unique_ptr<const Plan> make_plan(const PipelineSpec& spec, int replicas) const;
  std::shared_ptr<Chunk> chunk_of(Ticket ticket);
  size_t record_of(const Chunk& chunk, uint32_t row) const {
    return files_.first_of_file[chunk.extent_of(row).file] + chunk.record_of(row);
  }
  bool is_bad(size_t record) const { return model_.bad[record] || files_.damaged[record]; }
  std::vector<Row> rows_of(const BatchRows& batch) const;
  Written write(const Plan& plan, const BatchWriter& writer, const BatchRows& batch) const;
  void check(const BatchRows& batch);
  void check_sums(const BatchRows& batch, const std::vector<Row>& rows, const std::vector<bool>& failed,
                  const Written& got) const;
  void check_dense(const ModelOutput& output, const std::vector<Row>& rows, const std::vector<bool>& failed,
                   const Written& got) const;
  void check_lists(const ModelOutput& output, const std::vector<Row>& rows, const std::vector<bool>& failed,
                   const Written& got) const;
  void check_travelling(const BatchRows& batch, const Written& wanted);
  void check_writers(const Chunk& chunk);

  Draw& draw_;
  const Model& model_;
  const Files& files_;
  std::shared_ptr<const DataSet> data_;
  std::shared_ptr<const CachePlan> cache_;
  Tables tables_;
  std::unique_ptr<const Plan> plan_, packed_plan_;
  BatchWriter writer_, packed_writer_;
  PackedBatches packed_;
  std::optional<CacheStore> store_;
  std::optional<BatchWriter> cached_writer_;
  int checks_left_ = 4;  // batches
  std::vector<ExactBlock> memory_;
  std::vector<std::unique_ptr<std::byte[]>> arenas_;
};

// Plans batches with a gap after each tensor.
std::unique_ptr<const Plan> Feed::make_plan(const PipelineSpec& spec, int replicas) const {
  auto plan = std::make_unique<Plan>(spec, data_, Ranks{.replicas = replicas}, 1, Plan::MoreMemory(), cache_, tables_);
  uint64_t moved = 0;
  for (BatchTensor& tensor : plan->memory.tensors) tensor.offset += tensor_alignment * moved++;
  plan->memory.buffer_bytes = plan->memory.tensors.back().offset + plan->memory.tensors.back().capacity;
  return plan;
}

// Reads the extents of a ticket into a chunk that has no byte more, and parses it.
std::shared_ptr<Chunk> Feed::chunk_of(Ticket ticket) {
  std::string bytes;
  for (const Extent& extent : ticket.extents) bytes += files_.files[extent.file].substr(extent.offset, extent.length);
  ExactBlock& data = memory_.emplace_back(bytes);
  const uint64_t arena = plan_->memory.slot_arena_bytes;
  arenas_.emplace_back(new std::byte[arena]);
  auto chunk = std::make_shared<Chunk>(0, std::span(data.data(), data.size()), std::span(arenas_.back().get(), arena));
  const std::byte* at = data.data();
  for (const Extent& extent : ticket.extents) {
    chunk->extents.push_back(at);
    at += extent.length;
  }
  chunk->ticket = std::move(ticket);
  chunk->parse(*plan_);
  for (uint32_t row = 0; row < chunk->rows(); row++)
    require(is_bad(record_of(*chunk, row)) == chunk->is_bad(row),
            "a bad record is taken for a good one, or a good one for a bad one");
  return chunk;
}

// A row without a sample refers to the nearest row before it that has one, or after it if there is none.
std::vector<Row> Feed::rows_of(const BatchRows& batch) const {
  std::vector<std::optional<size_t>> records;  // by row of the step
  for (const TicketRows& run : batch.of_step->rows) {
    records.resize(static_cast<size_t>(run.at) + run.count);
    for (uint32_t i = 0; i < run.count; i++)
      records[static_cast<size_t>(run.at) + i] = record_of(*batch.of_step->chunk_of(run), run.first + i);
  }
  std::vector<Row> rows;
  for (int64_t row = batch.wanted.first; row < batch.wanted.first + batch.rows; row++) {
    size_t at = static_cast<size_t>(row);
    const bool has_sample = row < batch.wanted.last && at < records.size() && records[at];
    if (!has_sample) {
      at = std::min({at, records.size(), static_cast<size_t>(batch.wanted.last)});
      while (at > 0 && !records[at - 1]) at--;
      if (at > 0) at--;
      while (!records[at]) at++;
    }
    rows.push_back({*records[at], !has_sample || is_bad(*records[at]), is_bad(*records[at])});
  }
  return rows;
}

Written Feed::write(const Plan& plan, const BatchWriter& writer, const BatchRows& batch) const {
  Written written(plan.memory.buffer_bytes);
  for (const BatchTensor& tensor : plan.memory.tensors)
    written.buffer.content.tensors.push_back(
        {tensor.name, {written.memory.data() + tensor.offset, tensor.dtype, tensor.shape.with_rows(0)}});
  if (draw_.coin()) written.buffer.written += std::chrono::nanoseconds(1);  // so long ago that it has left the caches
  written.failed = writer.write(batch, written.buffer);
  for (size_t t = 0; t < plan.memory.tensors.size(); t++) {
    const auto& [name, view, lent] = written.buffer.content.tensors[t];
    const std::span all = written.memory.span();
    const size_t begin = plan.memory.tensors[t].offset + (lent ? 0 : view.size_bytes()),
                 end = t + 1 < plan.memory.tensors.size() ? plan.memory.tensors[t + 1].offset : all.size();
    require(begin <= end, name + " is larger than its place");
    require(is_untouched(all.subspan(begin, end - begin)), "a byte after " + name + " was written");
  }
  return written;
}

void Feed::check(const BatchRows& batch) {
  if (checks_left_-- <= 0) return;
  const Written got = write(*plan_, writer_, batch);
  const std::vector<Row> rows = rows_of(batch);
  // A row fails if it cannot be written, and padding with the row that it stands beside.
  std::vector<bool> failed(rows.size());
  for (size_t i = 0; i < rows.size(); i++) {
    failed[i] = rows[i].bad;
    for (const ModelOutput& output : model_.outputs)
      if (output.kind == Kind::dense || !rows[i].filler)
        failed[i] = failed[i] || output.of_record[rows[i].record].fails;
  }
  std::vector<int64_t> reported;
  for (size_t i = 0; i < rows.size(); i++) {
    if (rows[i].filler || !failed[i]) continue;
    reported.push_back(batch.wanted.first + static_cast<int64_t>(i));
    for (size_t k = i; k > 0 && rows[k - 1].filler && rows[k - 1].record == rows[i].record; k--) failed[k - 1] = true;
    for (size_t k = i + 1; k < rows.size() && rows[k].filler && rows[k].record == rows[i].record; k++) failed[k] = true;
  }
  std::vector<int64_t> said;
  for (const BadRecord& row : got.failed) said.push_back(row.row);
  std::ranges::sort(said);
  require(said == reported, "other rows failed");
  check_sums(batch, rows, failed, got);
  for (const ModelOutput& output : model_.outputs)
    output.kind == Kind::dense ? check_dense(output, rows, failed, got) : check_lists(output, rows, failed, got);
  check_travelling(batch, got);
  for (const char* when : {"with an empty cache", "with a cache"}) {
    if (!cached_writer_) break;
    const Written with = write(*plan_, *cached_writer_, batch);
    for (const auto& [name, tensor, lent] : got.buffer.content.tensors)
      require(with.bytes_of(name) == got.bytes_of(name), name + " is another " + when);
  }
}

void Feed::check_sums(const BatchRows& batch, const std::vector<Row>& rows, const std::vector<bool>& failed,
                      const Written& got) const {
  uint64_t good = 0, lost = 0, later = 0;
  std::string mask;
  const auto size = static_cast<int64_t>(plan_->orders[0]->samples()), step = static_cast<int64_t>(batch.step),
             per_epoch = std::max<int64_t>(0, plan_->steps_per_epoch);
  const int64_t first = (static_cast<int64_t>(batch.epoch) * per_epoch + step) * plan_->global_batch;
  for (size_t i = 0; i < rows.size(); i++) {
    const bool valid = !rows[i].filler && !failed[i];
    mask += valid ? '\1' : '\0';
    if (rows[i].filler) continue;
    const Files::Place& place = files_.places[rows[i].record];
    const uint64_t term = audit_key(0, place.file) * audit_term(place.offset, place.crc);
    (valid ? good : lost) += term;
    const int64_t number =
        first + (batch.of_step->moved + batch.wanted.first + static_cast<int64_t>(i)) / plan_->frames;
    if (number / size > first / size) later += term;
  }
  require(got.bytes_of("@valid") == mask && got.bytes_of("mask") == mask, "another mask");
  require(got.buffer.content.audit == good && got.buffer.content.bad_audit == lost, "another audit");
  if (plan_->expected_audit.passes && plan_->spec.shuffle.mode == ShuffleMode::none)
    require(got.buffer.passes.later == later && static_cast<int64_t>(got.buffer.passes.pass) == first / size,
            "another audit of the later pass");
  int64_t valid = 0;
  for (size_t i = 0, frames = static_cast<size_t>(plan_->frames); i < mask.size(); i += frames)
    valid += mask.substr(i, frames).find('\1') != std::string::npos;
  require(got.buffer.content.valid_count == valid, "another number of valid samples");
}

void Feed::check_dense(const ModelOutput& output, const std::vector<Row>& rows, const std::vector<bool>& failed,
                       const Written& got) const {
  const TensorView& view = got.at(output.name);
  const auto count = static_cast<int64_t>(rows.size());
  require(view.dtype == output.dtype &&
              view.shape == (plan_->spec.window ? output.shape.with_rows(plan_->frames).with_rows(count / plan_->frames)
                                                : output.shape.with_rows(count)),
          output.name + " has another type or shape");
  const std::string_view all = got.bytes_of(output.name);
  const size_t bytes = output.zeros.size();
  const bool has_good = std::ranges::count(failed, false) > 0;
  for (size_t i = 0; i < rows.size(); i++) {
    const std::string_view row = all.substr(i * bytes, bytes);
    std::string wanted;
    if (!failed[i]) {
      for (const std::string& value : output.of_record[rows[i].record].values) wanted += value;
    } else if (!has_good) {
      wanted = output.zeros;
    } else {
      // The nearest good row, or the one before if two are equally near.
      const auto is_good = [&](size_t k) { return k < rows.size() && !failed[k]; };
      size_t far = 1;
      while (!is_good(i - far) && !is_good(i + far)) far++;
      wanted = all.substr((is_good(i - far) ? i - far : i + far) * bytes, bytes);
    }
    if (row != wanted) require(false, fmt::format("{}: row {} of {} is another", output.name, i, rows.size()));
  }
}

void Feed::check_lists(const ModelOutput& output, const std::vector<Row>& rows, const std::vector<bool>& failed,
                       const Written& got) const {
  // Filler has no values; but of made steps a row that failed counts for the longest.
  const Made none;
  size_t longest = output.kind == Kind::fixed ? static_cast<size_t>(output.shape.elements()) : 0;
  std::vector<const Made*> made;
  for (size_t i = 0; i < rows.size(); i++) {
    const Made& of_record = output.of_record[rows[i].record];
    made.push_back(rows[i].filler || failed[i] ? &none : &of_record);
    if (output.kind == Kind::padded) longest = std::max(longest, made.back()->values.size());
    if (output.kind == Kind::made && !rows[i].filler) longest = std::max(longest, of_record.values.size());
  }
  std::string values;
  std::vector<int64_t> offsets{0}, row_splits{0}, step_splits{0};
  for (const Made* row : made) {
    const size_t before = offsets.size() - 1;
    for (size_t i = 0; i < std::max(row->values.size(), longest); i++) {
      values += i < row->values.size() ? row->values[i] : output.kind == Kind::fixed ? "" : output.zeros;
      offsets.push_back(static_cast<int64_t>(values.size()));
    }
    for (const size_t end : row->ends) step_splits.push_back(static_cast<int64_t>(before + end));
    row_splits.push_back(static_cast<int64_t>(output.kind == Kind::nested ? step_splits.size() : offsets.size()) - 1);
  }
  const auto as_bytes = [](const std::vector<int64_t>& numbers) {
    return std::string_view(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t));
  };
  const bool is_padded = output.kind == Kind::padded || output.kind == Kind::made;
  if (output.dtype == DType::bytes) {
    require(
        got.bytes_of(output.name + ".bytes") == values && got.bytes_of(output.name + ".offsets") == as_bytes(offsets),
        output.name + " has other bytes");
  } else if (is_padded) {
    const int64_t each = output.kind == Kind::made ? 1 : std::max<int64_t>(1, output.shape.elements());
    require(got.bytes_of(output.name) == values &&
                got.at(output.name).shape == output.shape.with_rows(static_cast<int64_t>(longest) / each)
                                                 .with_rows(static_cast<int64_t>(rows.size())),
            output.name + " has other steps");
  } else {
    require(got.bytes_of(output.name + ".values") == values, output.name + " has other values");
  }
  if (output.kind == Kind::ragged || output.kind == Kind::nested)
    require(got.bytes_of(output.name + ".row_splits") == as_bytes(row_splits), output.name + " has other row splits");
  if (output.kind == Kind::nested)
    require(got.bytes_of(output.name + ".step_splits") == as_bytes(step_splits),
            output.name + " has other step splits");
}

// The batch as it travels, and as it is unpacked where it arrives.
void Feed::check_travelling(const BatchRows& batch, const Written& wanted) {
  const Written sent = write(*packed_plan_, packed_writer_, batch);
  Written arrived(packed_.buffer_bytes());
  BatchContent& content = arrived.buffer.content = packed_.content(arrived.memory.data());
  std::vector<Shape> shapes;
  for (size_t t = 0; t < packed_.packed().size(); t++) {
    const TensorView& view = sent.buffer.content.tensors[t].tensor;
    const BatchTensor& place = packed_.packed()[t];
    shapes.push_back(view.shape);
    require(view.size_bytes() <= place.capacity, "a packed tensor has no room");
    if (view.size_bytes() > 0) std::memcpy(arrived.memory.data() + place.offset, view.data, view.size_bytes());
  }
  content.rows = sent.buffer.content.rows;
  require(packed_.can_have(shapes, content.rows), "shapes that were sent are refused");
  packed_.check_arrived(arrived.memory.data(), shapes, content.rows, 0);
  packed_.set_shapes(shapes, content);
  packed_.unpack(arrived.buffer);
  for (const auto& [name, tensor, lent] : wanted.buffer.content.tensors)
    require(arrived.at(name).shape == tensor.shape && arrived.bytes_of(name) == wanted.bytes_of(name),
            name + " is another after it has travelled");
}

// Calls each RowWriter with values in blocks of their own, for rows with gaps between them.
void Feed::check_writers(const Chunk& chunk) {
  for (size_t o = 0; o < plan_->spec.outputs.size(); o++) {
    const OutputSpec& output = plan_->spec.outputs[o];
    if (!output.dense() || !output.jobs[0].rows || output.jobs[0].values > 1) continue;
    const RowWriter& writer = *plan_->writers.of(o);
    const auto number = static_cast<size_t>(output.jobs[0].column.number);
    const size_t count = std::min<size_t>(chunk.rows(), 80), bytes = output.row_bytes(),
                 stride = bytes + size_of(output.dtype) * draw_.below(3);
    std::vector<ExactBlock> blocks;
    std::vector<std::span<const std::byte>> values;
    for (uint32_t row = 0; row < count; row++) {
      const auto value = stored_value(plan_->spec.features[number], chunk.features()[number], row);
      blocks.emplace_back(std::string_view(reinterpret_cast<const char*>(value.data()), value.size()));
    }
    for (const ExactBlock& block : blocks) values.push_back(block.span());
    const OutputBlock out(count == 0 ? 0 : (count - 1) * stride + bytes), scratch(writer.scratch_bytes());
    RowOutcome outcome;
    if (writer.reads_ahead()) writer.read_ahead(values);
    writer.write(values, {}, out.data(), stride, scratch.span(), outcome);
    std::vector<bool> failed(count);
    for (const RowError& failure : outcome.failed) failed[failure.row] = !failure.message.empty();
    for (uint32_t row = 0; row < count; row++) {
      const size_t record = record_of(chunk, row);
      const Made& made = model_.outputs[o].of_record[record];
      std::string wanted;
      for (const std::string& value : made.values) wanted += value;
      const std::string_view got(reinterpret_cast<const char*>(out.data()) + row * stride, bytes);
      require(is_bad(record) || failed[row] == made.fails, "another row cannot be made");
      require(is_bad(record) || made.fails || got == wanted, "a RowWriter makes another row");
      if (row + 1 < count)
        require(is_untouched(out.span().subspan(row * stride + bytes, stride - bytes)),
                "a RowWriter wrote between rows");
    }
  }
}

void Feed::run() {
  try {
    refuse_empty_epoch(*plan_, data_->samples);
  } catch (const Error&) {
    return;
  }
  const bool delivers_before_error = draw_.coin();
  Assembler assembler(*plan_, {}, delivers_before_error);
  Walk walk(*plan_, {}, false);
  Step step;
  memory_.reserve(2000);
  for (int left = 6; left > 0 && checks_left_ > 0 && !assembler.failed(); left--) {
    std::vector<Ticket> opened;
    std::vector<std::vector<BatchRows>> out(static_cast<size_t>(plan_->replicas));
    walk.next(step, &opened);
    for (Ticket& ticket : opened) {
      const auto chunk = chunk_of(std::move(ticket));
      writer_.read_ahead(*chunk);
      if (memory_.size() <= 2) check_writers(*chunk);
      assembler.add(chunk, out);
    }
    for (size_t replica = 0; replica < out.size(); replica++)
      for (const BatchRows& batch : out[replica]) {
        if (batch.kind != BatchRows::Kind::batch) continue;
        check(batch);
        if (draw_.below(4) != 3) continue;
        const auto rows = static_cast<uint64_t>(plan_->global_batch * plan_->frames);
        const auto end = static_cast<int64_t>(std::min(draw_.near(rows), rows));
        if (const auto shorter = rows_before(end, batch, static_cast<int>(replica), *plan_)) check(*shorter);
      }
  }
}

// Draws what a pipeline says besides features and outputs.
std::string draw_order(Draw& draw, const Model& model, int replicas, size_t files) {
  constexpr const char *policies[] = {"DROP", "PARTIAL", "PAD"},
                       *shuffles[] = {"", "shuffle { mode: BLOCK buffer_size: 3 }", "shuffle { mode: GLOBAL }",
                                      "shuffle { mode: BUFFER buffer_size: 4 }"};
  const uint64_t records = model.records.size();
  const auto parts = static_cast<uint64_t>(replicas) * (1 + draw.below(3));
  const uint64_t rows = std::clamp<uint64_t>(draw.near(std::max<uint64_t>(1, records / parts)), 1, 300);
  std::string text = "source { ";
  for (size_t f = 0; f < files; f++) text += fmt::format("files: '/{}' ", f);
  text += fmt::format("{}}} batch {{ batch_size_per_replica: {} last_batch_policy: {} valid_mask: 'mask' }} {} ",
                      model.sequence ? "record_type: SEQUENCE_EXAMPLE " : "", rows, policies[draw.below(3)],
                      shuffles[draw.below(4)]);
  text +=
      fmt::format("errors {{ on_error: {} absent_feature: IGNORE }} ", draw.below(4) == 3 ? "RAISE" : "SKIP_RECORD");
  const bool dense =
      std::ranges::all_of(model.outputs, [](const ModelOutput& output) { return output.kind == Kind::dense; });
  if (dense && draw.below(4) == 3)
    text += fmt::format("window {{ size: {} shift: {} stride: {} drop_remainder: {} }} ", 1 + draw.below(4),
                        1 + draw.below(4), 1 + draw.below(2), draw.coin());
  text += records > 0 && draw.below(4) == 3 ? fmt::format("epoch {{ steps: {} }} ", 1 + draw.below(4))
                                            : "epoch { allow_empty: true } ";
  if (model.keeps && draw.coin()) text += "cache { what: DECODED limit: '4KiB' } ";
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static tbb::task_arena arena(1);
  // How the records are fed comes first, because what they hold may take all bytes.
  const size_t first = std::min<size_t>(size, 64);
  Draw draw(data, first), content(data + first, size - first);
  const Model model(content);
  const Files files = make_files(draw, model);
  const int replicas = 1 + static_cast<int>(draw.below(4));
  const ScopedSimdLevel level(std::min(simd_level(), static_cast<SimdLevel>(draw.below(3))));
  pipeline = draw_order(draw, model, replicas, files.files.size()) + model.text;
  try {
    const PipelineSpec spec = validate(parse_pipeline(pipeline), [](const FilePatterns& of) {
      return FileList{of.files, {}};
    });
    arena.execute([&] { Feed(draw, model, files, spec, replicas).run(); });
  } catch (const Error& error) {
    require(error.message().starts_with("cache: limit: "), error.what());  // it is too small for one picture
  }
  return 0;
}
