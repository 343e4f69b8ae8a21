// Helpers to compare feeds whose ranks send rows to each other with feeds whose ranks each read their own.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "data.h"
#include "feedline/communicator.h"
#include "support/ranks.h"

namespace feedline::test {

using Ends = std::shared_ptr<Communicator>;

inline std::string host_bytes(const TensorView& tensor) {
  return {static_cast<const char*>(tensor.data), tensor.size_bytes()};
}

/// Returns everything that a batch holds, as text.
template <typename BytesOf = decltype(host_bytes)>
std::string text_of(const Batch& batch, BytesOf&& bytes_of = host_bytes) {
  std::string text = std::to_string(batch.epoch()) + " " + std::to_string(batch.step()) + " " +
                     std::to_string(batch.rows()) + " " + std::to_string(batch.valid_count()) + " " +
                     std::to_string(batch.audit());
  for (const NamedTensor& named : batch.tensors()) {
    const TensorView& tensor = named.tensor;
    text += "\n" + named.name + " " + std::string(name(tensor.dtype)) + to_string(tensor.shape) + " ";
    text += bytes_of(tensor);
  }
  return text;
}

/// The batches of an epoch and "end" after them, as text, for each replica.
using Texts = std::vector<std::vector<std::string>>;
inline Texts epoch_of(Feeder& feeder) {
  Texts texts(static_cast<size_t>(feeder.replicas()));
  for (bool ended = false; !ended;)
    for (int replica = 0; replica < feeder.replicas(); replica++) {
      const Batch batch = feeder.next(replica);
      texts[static_cast<size_t>(replica)].push_back(batch ? text_of(batch) : "end");
      ended = !batch;
    }
  return texts;
}

inline Options of_rank(std::shared_ptr<Transport> communicator, int replicas) {
  Options options;
  options.communicator = std::move(communicator);
  options.devices.assign(static_cast<size_t>(replicas), host());
  options.threads = 1;
  return options;
}

/// Returns what a rank is given in two epochs if each rank reads its own rows.
inline Texts split(const Pipeline& pipeline, int rank, int world_size, int replicas) {
  Options options = of_rank({}, replicas);
  options.rank = rank;
  options.world_size = world_size;
  Feeder feeder(pipeline.with("distribute.mode", "SPLIT"), options);
  Texts texts = epoch_of(feeder);
  const Texts second = epoch_of(feeder);
  for (size_t replica = 0; replica < texts.size(); replica++)
    texts[replica].insert(texts[replica].end(), second[replica].begin(), second[replica].end());
  return texts;
}

/// Runs `body` for all ranks at the same time, each with a communicator. Returns what each threw (its message), or "".
inline std::vector<std::string> on_communicators(int count,
                                                 const std::function<void(int rank, Ends communicator)>& body) {
  std::vector<std::unique_ptr<Communicator>> ends = communicators_between_threads(count);
  return side_by_side(count, [&](int rank) { body(rank, std::move(ends[static_cast<size_t>(rank)])); });
}

inline std::vector<std::string> nothing_thrown(int ranks) {
  return std::vector<std::string>(static_cast<size_t>(ranks));
}

/// Feeds two epochs to ranks of two replicas each, between which rows travel by `mode`, REPLICATE or SCATTER. Returns
/// what each rank threw: "other batches" if a replica is not given what it would be given if each rank read its own
/// rows.
inline std::vector<std::string> feed_rows_that_travel(const Pipeline& given, const std::string& mode, int ranks) {
  const Pipeline pipeline = given.with("distribute.mode", mode);
  const bool scatters = mode == "SCATTER";
  return on_communicators(ranks, [&](int rank, Ends end) {
    Feeder feeder(pipeline, of_rank(std::move(end), 2));
    Texts texts = epoch_of(feeder);
    const Texts second = epoch_of(feeder);
    const Texts wanted = scatters ? split(pipeline, rank, ranks, 2) : split(pipeline, 0, 1, 1);
    for (size_t replica = 0; replica < texts.size(); replica++) {
      texts[replica].insert(texts[replica].end(), second[replica].begin(), second[replica].end());
      if (texts[replica] != wanted[scatters ? replica : 0]) throw std::runtime_error("other batches");
    }
  });
}

// One output of each kind.
inline const std::string outputs =
    "feature { name: 'x' dtype: FLOAT32 shape: 3 } feature { name: 'b' dtype: BYTES length: 5 } "
    "feature { name: 'v' dtype: INT64 kind: VARIABLE } feature { name: 't' dtype: BYTES kind: VARIABLE } "
    "feature { name: 'raw' dtype: BYTES } "
    "output { name: 'id' feature: 'id' } output { name: 'half' dtype: FLOAT16 feature: 'x' normalize { std: 3 } } "
    "output { name: 'x' feature: 'x' } output { name: 'bits' dtype: FLOAT32 feature: 'b' "
    "unpack_bits { bit_offset: 3 shape: [4, 8] scale: -1 bias: 2 } } output { name: 'b' feature: 'b' } "
    "output { name: 'bytes' dtype: INT16 feature: 'b' decode_raw { shape: 5 } } "
    "output { name: 'v' feature: 'v' } output { name: 'v2' dtype: FLOAT32 feature: 'v' } "
    "output { name: 't' feature: 't' } output { name: 'raw' feature: 'raw' } "
    "output { name: 'score' dtype: FLOAT32 expression { formula: 'id * 3 + 1' } } "
    "output { name: 'pair' dtype: INT32 stack { features: ['id', 'id'] } } "
    "output { name: 'where' feature: '@record' } output { name: 'hidden' feature: 'id' internal: true } ";

inline std::string batch_text(int rows, const std::string& policy) {
  return "batch { global_batch_size: " + std::to_string(rows) + " last_batch_policy: " + policy +
         " valid_mask: 'ok' } ";
}

}  // namespace feedline::test
