#include "flowgraph/batch/packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "base/load.h"
#include "flowgraph/batch/batch_rows.h"
#include "flowgraph/pipeline/stored_elements.h"
#include "flowgraph/table/table.h"

namespace feedline::flow {
namespace {

[[noreturn]] void refuse_arrived(int from, const std::string& what) {
  throw Error(
      Category::bad_pipeline,
      fmt::format("the rows that rank {} sent cannot be used: {}; all ranks must run the same version of feedline",
                  from, what));
}

/// Returns whether the numbers of these jobs, side by side, can be unpacked as one row, because they have one type.
bool can_merge(const DenseJob& a, const DenseJob& b) { return a.unpack.stored == b.unpack.stored; }

/// Returns the UnpackSpec that unpacks the scalars of all jobs at once from where they lie side by side.
unpack::UnpackSpec merged(std::span<const DenseJob> jobs) {
  unpack::UnpackSpec unpack = stored_elements(jobs[0].unpack.stored, Shape({static_cast<int64_t>(jobs.size())}));
  unpack.out = jobs[0].unpack.out;
  unpack.normalize = jobs[0].unpack.normalize;
  if (!unpack.normalize) return unpack;
  const auto of_each = [&](std::vector<float> unpack::Normalize::*values) {
    std::vector<float>& all = (*unpack.normalize).*values;
    for (const DenseJob& job : jobs.subspan(1)) {
      const std::vector<float>& own = (*job.unpack.normalize).*values;
      all.insert(all.end(), own.begin(), own.end());
    }
  };
  of_each(&unpack::Normalize::mean);
  of_each(&unpack::Normalize::std);
  unpack.channel_axis = 0;
  return unpack;
}

// Makes the second pipeline of a Packing. Each feature becomes one column, even if several outputs are made from it. So
// packing is idempotent: if the second pipeline is packed once more, its columns stay the same. This is needed if a
// Transfer sends packed batches to another rank, and an Upload then copies them to a GPU. The rows are then packed only
// once, but the Upload packs the original pipeline, and the Transfer packs the second one.
class Packer {
 public:
  explicit Packer(const PipelineSpec& feed) : feed_(feed), packing_{feed, {}} { packing_.spec.outputs.clear(); }

  Packing pack() {
    for (const OutputSpec& output : feed_.outputs) {
      Packing::Output& packed = packing_.outputs.emplace_back();
      if (output.internal) continue;
      if (!output.dense())
        packed.passed_through = add(output);
      else if (output.jobs[0].rows)
        packed.jobs = {of_made_rows(output)};
      else if (output.jobs.size() > 1)
        packed.jobs = of_stack(output);
      else
        packed.jobs = {of_column("packed " + output.name, output.jobs[0])};
    }
    return std::move(packing_);
  }

 private:
  int add(OutputSpec output) {
    packing_.spec.outputs.push_back(std::move(output));
    return static_cast<int>(packing_.spec.outputs.size()) - 1;
  }

  /// Returns the job of an output whose rows can fail, so that the rank that reads makes them on its host. In general
  /// the made rows are sent, and the job copies them. If rows can be made from stored numbers, these numbers are sent
  /// instead. If each receiver has the table from which rows are looked up, only the numbers of the table's rows are
  /// sent.
  Packing::Job of_made_rows(OutputSpec output) {
    DenseJob& job = output.jobs[0];
    if (const auto* lookup = std::get_if<LookupRows>(&*job.rows); lookup && feed_.tables[lookup->key.table].on_device) {
      const size_t table = lookup->key.table;
      unpack::UnpackSpec unpack = std::exchange(job.unpack, stored_elements(DType::int64, {}));
      job.unpack.out = output.dtype = DType::int64;
      job.rows = LookupNumberRows{lookup->key};
      const size_t values = job.values;
      output.shape = values > 1 ? Shape({static_cast<int64_t>(values)}) : Shape();
      output.name = "packed " + output.name;
      return {.column = add(std::move(output)), .unpack = std::move(unpack), .values = values, .table = table};
    }
    if (auto stored = of_stored_numbers(*job.rows)) {
      unpack::UnpackSpec copy = stored_elements(job.unpack.stored, job.unpack.shape);
      copy.out = copy.stored;
      const unpack::UnpackSpec unpack = std::exchange(job.unpack, std::move(copy));
      job.rows = std::move(stored);
      output.dtype = unpack.stored;
      output.name = "packed " + output.name;
      const size_t values = job.values;
      return {.column = add(std::move(output)), .unpack = unpack, .values = values};
    }
    unpack::UnpackSpec copy = stored_elements(output.dtype, output.shape);
    copy.out = output.dtype;
    output.name = "packed " + output.name;
    return {.column = add(std::move(output)), .unpack = std::move(copy)};
  }

  /// `name` becomes the name of the column, unless the column is a feature.
  Packing::Job of_column(std::string name, const DenseJob& job) {
    const auto number = [&] {
      if (job.column.kind != ColumnRef::Kind::feature)
        return add_stored(std::move(name), {.column = job.column, .unpack = stored_elements(job.unpack.stored, {})});
      const auto [known, is_new] = features_.try_emplace(job.column.number);
      if (is_new) known->second = of_feature(job.column);
      return known->second;
    };
    return {number(), job.unpack, job.values, job.offset};
  }

  int of_feature(const ColumnRef& column) {
    const FeatureSpec& feature = feed_.features[static_cast<size_t>(column.number)];
    const std::string name = "packed " + feature.name;
    if (feature.dtype != DType::bytes)
      return add_stored(name, {.column = column, .unpack = stored_elements(feature.dtype, feature.shape)});
    // Bytes: each value is unpacked by itself.
    return add_stored(name, {.column = column,
                             .unpack = stored_elements(DType::uint8, {feature.length}),
                             .values = static_cast<size_t>(feature.shape.elements())});
  }

  /// Returns the jobs of a stack. Adjacent scalars of one type become one column, so that one kernel unpacks them all.
  std::vector<Packing::Job> of_stack(const OutputSpec& stack) {
    std::vector<Packing::Job> jobs;
    for (size_t first = 0, last = 1; first < stack.jobs.size(); first = last++) {
      while (last < stack.jobs.size() && can_merge(stack.jobs[first], stack.jobs[last])) last++;
      const std::span run = std::span(stack.jobs).subspan(first, last - first);
      const std::string name = fmt::format("packed {}{}", stack.name, first == 0 ? "" : fmt::format("[{}:]", first));
      if (run.size() == 1) {
        jobs.push_back(of_column(name, run[0]));
        continue;
      }
      OutputSpec column;
      column.name = name;
      column.dtype = run[0].unpack.stored;
      column.shape = Shape({static_cast<int64_t>(run.size())});
      for (const DenseJob& job : run) {
        DenseJob copy{.column = job.column, .unpack = stored_elements(column.dtype, {})};
        copy.unpack.out = column.dtype;
        copy.offset = column.jobs.size() * size_of(column.dtype);
        column.jobs.push_back(std::move(copy));
      }
      jobs.push_back({.column = add(std::move(column)), .unpack = merged(run), .offset = run[0].offset});
    }
    return jobs;
  }

  int add_stored(std::string name, DenseJob job) {
    OutputSpec output;
    output.name = std::move(name);
    output.dtype = job.unpack.out = job.unpack.stored;
    output.shape = job.unpack.shape;
    if (job.values > 1) output.shape = Shape({static_cast<int64_t>(job.values), job.unpack.shape.elements()});
    output.jobs.push_back(std::move(job));
    return add(std::move(output));
  }

  const PipelineSpec& feed_;
  Packing packing_;
  std::map<int, int> features_;
};

}  // namespace

Packing pack(const PipelineSpec& spec) { return Packer(spec).pack(); }

PackedBatches::PackedBatches(const PipelineSpec& spec, const FeedFacts& facts, Tables tables)
    : packed_(facts.tensors),
      table_specs_(spec.tables),
      tables_(std::move(tables)),
      frames_(facts.frames),
      rows_(facts.rows),
      windows_(spec.window.has_value()),
      packed_bytes_(round_up(facts.buffer_bytes, tensor_alignment)),
      buffer_bytes_(packed_bytes_) {
  for (size_t column = 0; column < packed_.size() && packed_[column].part == BatchTensor::Part::valid; column++)
    tensors_.push_back({.name = packed_[column].name, .dtype = packed_[column].dtype, .column = column});
  const Packing packing = pack(spec);
  for (size_t output = 0; output < spec.outputs.size(); output++) {
    if (spec.outputs[output].internal) continue;
    add(spec.outputs[output], packing.outputs[output]);
    Origin& origin = origins_.emplace_back(
        Origin{spec.outputs[output].name, packed_[tensors_.back().column].name, tensors_.back().stored});
    if (!origin.stored && jobs_.back().table) origin.table = table_of(jobs_.back()).name();
  }
  size_t row_bytes = 1;
  for (const Job& job : jobs_)
    row_bytes += static_cast<size_t>(job.rows * job.spec.shape.elements()) * size_of(job.spec.out);
  rows_per_task_ = std::max<int64_t>(1, task_bytes / static_cast<int64_t>(row_bytes));
}

size_t PackedBatches::column_of(int output) const {
  return static_cast<size_t>(std::ranges::find(packed_, output, &BatchTensor::output) - packed_.begin());
}

void PackedBatches::add(const OutputSpec& output, const Packing::Output& packed) {
  if (!output.dense()) {
    for (size_t column = column_of(packed.passed_through);
         column < packed_.size() && packed_[column].output == packed.passed_through; column++)
      tensors_.push_back({.name = packed_[column].name, .dtype = packed_[column].dtype, .column = column});
    return;
  }
  const size_t row = output.row_bytes();
  Tensor tensor{.name = output.name,
                .dtype = output.dtype,
                .shape = output.shape,
                .dense = true,
                .column = column_of(packed.jobs[0].column)};
  const size_t first = jobs_.size();
  for (const Packing::Job& job : packed.jobs) {
    const size_t column = column_of(job.column), column_row = packed_[column].row_bytes();
    unpack::Unpacker unpack(job.unpack);
    tensor.stored =
        packed.jobs.size() == 1 && unpack.is_copy() && unpack.spec().bit_offset == 0 && row == column_row && !job.table;
    if (tensor.stored) break;
    jobs_.push_back({.column = column,
                     .column_stride = column_row / job.values,
                     .offset = buffer_bytes_ + job.offset,
                     .stride = row / job.values,
                     .rows = frames_ * static_cast<int64_t>(job.values),
                     .spec = unpack.spec(),
                     .table = job.table});
    unpackers_.push_back(std::move(unpack));
  }
  if (jobs_.size() > first) {
    tensor.offset = buffer_bytes_;
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(rows_), row, &bytes) ||
        bytes > most_batch_bytes - std::min(buffer_bytes_, most_batch_bytes))
      throw Error(
          Category::bad_pipeline,
          fmt::format("batch: {} rows of output '{}' take too much memory; lower the batch size", rows_, output.name));
    buffer_bytes_ += round_up(bytes, tensor_alignment);
  }
  tensors_.push_back(std::move(tensor));
}

BatchContent PackedBatches::content(std::byte* memory) const {
  BatchContent content;
  for (const Tensor& tensor : tensors_) {
    const bool shared = tensor.stored && std::ranges::count_if(tensors_, [&](const Tensor& other) {
                                           return other.stored && other.column == tensor.column;
                                         }) > 1;
    content.tensors.push_back({tensor.name,
                               {memory + (tensor.stored ? packed_[tensor.column].offset : tensor.offset), tensor.dtype,
                                tensor.shape.with_rows(0)},
                               shared});
  }
  return content;
}

bool PackedBatches::can_have(const std::vector<Shape>& packed, int64_t rows) const noexcept {
  using Part = BatchTensor::Part;
  if (rows < 0 || rows > this->rows() || packed.size() != packed_.size()) return false;
  const int64_t frames = rows * frames_;
  for (size_t t = 0; t < packed.size(); t++) {
    const BatchTensor& tensor = packed_[t];
    const Shape& shape = packed[t];
    const size_t free_axis = tensor.part == Part::padded ? 1 : 0;  // the axis whose length differs from batch to batch
    if (shape.rank() <= free_axis) return false;
    const int64_t length = shape[free_axis];
    Shape wanted{length};
    uint64_t bytes = size_of(tensor.dtype);  // of an element of the free axis
    switch (tensor.part) {
      case Part::dense:
      case Part::valid:
        if (shape != (windows_ ? tensor.shape.with_rows(frames_) : tensor.shape).with_rows(rows)) return false;
        continue;  // needs no check: the plan has room for all rows
      case Part::padded:
        wanted = tensor.shape.with_rows(length).with_rows(frames);
        bytes = static_cast<uint64_t>(frames) * tensor.row_bytes();
        break;
      case Part::row_splits:
        wanted = {frames + 1};
        break;
      case Part::offsets:
      case Part::step_splits:
        if (length < 1) return false;
        break;
      case Part::values:
      case Part::bytes:
        break;
    }
    if (shape != wanted || length < 0 || static_cast<uint64_t>(length) > tensor.capacity / std::max<uint64_t>(1, bytes))
      return false;
  }
  return true;
}

void PackedBatches::check_arrived(const std::byte* memory, const std::vector<Shape>& packed, int64_t rows,
                                  int from) const {
  using Part = BatchTensor::Part;
  int64_t divided = 0;  // how many elements the next offsets or splits divide
  for (size_t t = 0; t < packed_.size(); t++) {
    const BatchTensor& tensor = packed_[t];
    const std::byte* const data = memory + tensor.offset;
    const int64_t elements = packed[t].elements();
    const bool divides =
        tensor.part == Part::offsets || tensor.part == Part::step_splits || tensor.part == Part::row_splits;
    if (divides) {
      const std::span splits(reinterpret_cast<const int64_t*>(data), static_cast<size_t>(elements));
      if (splits.front() != 0 || splits.back() != divided || !std::ranges::is_sorted(splits))
        refuse_arrived(from, fmt::format("the offsets in '{}' do not fit its {} elements", tensor.name, divided));
    } else if (tensor.dtype == DType::boolean) {
      uint8_t any = 0;
      for (int64_t i = 0; i < elements; i++) any |= std::to_integer<uint8_t>(data[i]);
      if (any > 1) refuse_arrived(from, fmt::format("'{}' has a BOOL that is neither 0 nor 1", tensor.name));
    }
    divided = divides ? elements - 1 : elements;
  }
  for (const Job& job : jobs_) check_table_rows(job, memory + packed_[job.column].offset, rows, from);
}

void PackedBatches::check_table_rows(const Job& job, const std::byte* column, int64_t rows, int from) const {
  if (!job.table) return;
  for (int64_t i = 0; i < rows * job.rows; i++) {
    const auto number = load<int64_t>(column + static_cast<size_t>(i) * job.column_stride);
    if (number < 0 || static_cast<uint64_t>(number) > table_of(job).rows)  // row r has number r + 1, and 0 is no row
      refuse_arrived(from, fmt::format("{} is not the number of a row of {}", number, table_of(job).name()));
  }
}

void PackedBatches::set_shapes(const std::vector<Shape>& packed, BatchContent& content) const {
  for (size_t t = 0; t < tensors_.size(); t++) {
    const Tensor& tensor = tensors_[t];
    content.tensors[t].tensor.shape = !tensor.dense ? packed[tensor.column]
                                      : windows_    ? tensor.shape.with_rows(frames_).with_rows(content.rows)
                                                    : tensor.shape.with_rows(content.rows);
  }
}

void PackedBatches::unpack(BatchBuffer& buffer) const {
  side_by_side(buffer.content.rows, rows_per_task_, [&](int64_t begin, int64_t end) {
    std::array<const std::byte*, block_rows> rows;
    for (size_t j = 0; j < jobs_.size(); j++) {
      const Job& job = jobs_[j];
      const Table* const table = job.table ? tables_.at(*job.table).get() : nullptr;
      for (int64_t first = begin * job.rows; first < end * job.rows; first += block_rows) {
        const auto count = static_cast<size_t>(std::min(block_rows, end * job.rows - first)),
                   at = static_cast<size_t>(first);
        const std::byte* const from = buffer.memory + packed_[job.column].offset + at * job.column_stride;
        for (size_t i = 0; i < count; i++) {
          rows[i] = from + i * job.column_stride;
          if (!table) continue;
          int64_t number;
          std::memcpy(&number, rows[i], sizeof number);
          rows[i] = table->arrival_row(number);
        }
        unpackers_[j](std::span(rows).first(count), buffer.memory + job.offset + at * job.stride, job.stride);
      }
    }
  });
}

}  // namespace feedline::flow
