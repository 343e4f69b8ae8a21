#include "flowgraph/batch/packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "flowgraph/batch/batch_rows.h"
#include "flowgraph/pipeline/resolve_outputs.h"

namespace feedline::flow {
namespace {

// An output that is what it is made from.
OutputSpec as_stored(std::string name, DType dtype, const Shape& shape) {
  OutputSpec output;
  output.name = std::move(name);
  output.dtype = dtype;
  output.shape = shape;
  gpu::UnpackSpec copy = stored_elements(dtype, shape);
  copy.out = dtype;
  output.unpack = std::move(copy);
  return output;
}

OutputSpec feature_as_stored(const PipelineSpec& spec, int number) {
  const FeatureSpec& feature = spec.features[static_cast<size_t>(number)];
  const std::string name = "packed " + feature.name;
  OutputSpec output;
  if (feature.dtype == DType::bytes) {  // each value is unpacked by itself
    output = as_stored(name, DType::uint8, {feature.length});
    output.shape = {feature.shape.elements(), feature.length};
  } else {
    output = as_stored(name, feature.dtype, feature.shape);
  }
  output.from = FromFeature{number};
  return output;
}

// Collects columns, each once.
class Packer {
 public:
  explicit Packer(const PipelineSpec& feed) : feed_(feed), packing_{feed, {}} { packing_.spec.outputs.clear(); }

  Packing pack() {
    for (const OutputSpec& output : feed_.outputs) {
      std::vector<int>& columns = packing_.columns.emplace_back();
      if (output.internal) continue;
      if (const auto* stack = std::get_if<FromStack>(&output.from))
        for (const int feature : stack->features) columns.push_back(of_feature(feature));
      else if (!output.unpack)
        columns.push_back(add(output));
      else if (const auto* from = std::get_if<FromFeature>(&output.from))
        columns.push_back(of_feature(from->feature));
      else
        columns.push_back(of_number(output));
    }
    return std::move(packing_);
  }

 private:
  int add(OutputSpec output) {
    packing_.spec.outputs.push_back(std::move(output));
    return static_cast<int>(packing_.spec.outputs.size()) - 1;
  }
  int of_feature(int number) {
    const auto [known, is_new] = features_.try_emplace(number);
    if (is_new) known->second = add(feature_as_stored(feed_, number));
    return known->second;
  }
  // An expression's value, or a reserved feature: of each output its own.
  int of_number(const OutputSpec& output) {
    OutputSpec column =
        as_stored("packed " + output.name,
                  std::holds_alternative<FromExpression>(output.from) ? DType::float64 : DType::int64, {});
    column.from = output.from;
    return add(std::move(column));
  }

  const PipelineSpec& feed_;
  Packing packing_;
  std::map<int, int> features_;
};

}  // namespace

Packing pack(const PipelineSpec& spec) { return Packer(spec).pack(); }

PackedBatches::PackedBatches(const PipelineSpec& spec, const FeedFacts& facts)
    : packed_(facts.tensors),
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
    add(spec, packing, output);
    origins_.push_back({spec.outputs[output].name, packed_[tensors_.back().column].name, tensors_.back().stored});
  }
  size_t row_bytes = 1;
  for (const Job& job : jobs_)
    row_bytes += static_cast<size_t>(job.rows * job.spec.shape.elements()) * size_of(job.spec.out);
  rows_per_task_ = std::max<int64_t>(1, task_bytes / static_cast<int64_t>(row_bytes));
}

size_t PackedBatches::column_of(int output) const {
  return static_cast<size_t>(
      std::find_if(packed_.begin(), packed_.end(), [&](const BatchTensor& t) { return t.output == output; }) -
      packed_.begin());
}

size_t PackedBatches::column_row_bytes(size_t column) const {
  return static_cast<size_t>(packed_[column].shape.elements()) * size_of(packed_[column].dtype);
}

void PackedBatches::add(const PipelineSpec& spec, const Packing& packing, size_t number) {
  const OutputSpec& output = spec.outputs[number];
  const std::vector<int>& columns = packing.columns[number];
  const auto* stack = std::get_if<FromStack>(&output.from);
  if (!output.unpack && !stack) {  // the tensors of an output that varies
    for (size_t column = column_of(columns[0]); column < packed_.size() && packed_[column].output == columns[0];
         column++)
      tensors_.push_back({.name = packed_[column].name, .dtype = packed_[column].dtype, .column = column});
    return;
  }
  const size_t row = static_cast<size_t>(output.shape.elements()) * size_of(output.dtype);
  Tensor tensor{.name = output.name,
                .dtype = output.dtype,
                .shape = output.shape,
                .dense = true,
                .column = column_of(columns[0])};
  const size_t first = jobs_.size();
  for (size_t c = 0; c < columns.size(); c++) {
    const size_t column = column_of(columns[c]), column_row = column_row_bytes(column);
    const auto* from = std::get_if<FromFeature>(&output.from);
    const FeatureSpec* feature = from ? &spec.features[static_cast<size_t>(from->feature)] : nullptr;
    const size_t values =
        feature && feature->dtype == DType::bytes ? static_cast<size_t>(feature->shape.elements()) : 1;
    gpu::Unpacker unpack(stack ? stack->unpack[c] : *output.unpack);
    tensor.stored = !stack && unpack.is_copy() && unpack.spec().bit_offset == 0 && row == column_row;
    if (tensor.stored) break;
    jobs_.push_back({.column = column,
                     .column_stride = column_row / values,
                     .offset = buffer_bytes_ + c * size_of(output.dtype),
                     .stride = row / values,
                     .rows = frames_ * static_cast<int64_t>(values),
                     .spec = unpack.spec()});
    unpackers_.push_back(std::move(unpack));
  }
  if (jobs_.size() > first) {
    tensor.offset = buffer_bytes_;
    buffer_bytes_ += round_up(static_cast<uint64_t>(rows_) * row, tensor_alignment);
  }
  tensors_.push_back(std::move(tensor));
}

BatchContent PackedBatches::content(std::byte* memory) const {
  BatchContent content;
  for (const Tensor& tensor : tensors_)
    content.tensors.push_back({tensor.name,
                               {memory + (tensor.stored ? packed_[tensor.column].offset : tensor.offset), tensor.dtype,
                                tensor.shape.with_rows(0)}});
  return content;
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
      for (int64_t first = begin * job.rows; first < end * job.rows; first += block_rows) {
        const auto count = static_cast<size_t>(std::min(block_rows, end * job.rows - first)),
                   at = static_cast<size_t>(first);
        const std::byte* const from = buffer.memory + packed_[job.column].offset + at * job.column_stride;
        for (size_t i = 0; i < count; i++) rows[i] = from + i * job.column_stride;
        unpackers_[j](std::span(rows).first(count), buffer.memory + job.offset + at * job.stride, job.stride);
      }
    }
  });
}

}  // namespace feedline::flow
