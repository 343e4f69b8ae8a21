// Copies a few pictures and numbers out of a batch, so that people can look at what is being fed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mutex.h"
#include "feedline/batch.h"
#include "feedline/element_spec.h"
#include "feedline/pipeline.h"
#include "trainer_bridge/picture_output.h"

namespace feedline {

/// Keeps a part of one batch: the first pictures of each output whose values are pictures, and the first numbers of
/// each output that has one number for each row. Other outputs are left out, and so are the rows from number
/// valid_count() on, which only fill up the batch. A row in place of a bad record is kept if it lies before them.
/// Thread-safe.
class BatchSample {
 public:
  static constexpr int64_t most_pictures = 8, most_numbers = 1024;
  static constexpr size_t most_bytes = 1 << 20;  // of an output's pictures; the first picture is always kept
  static constexpr int64_t most_pixels = 96;     // the longest side of a picture in json()

  BatchSample(const std::vector<ElementSpec>& elements, const Pipeline& pipeline);

  /// Returns whether take() would keep a batch now. Takes no lock.
  bool wanted() const noexcept { return wanted_.load(std::memory_order_relaxed); }
  /// If a batch is wanted, copies the part of `batch` that is kept. The batch's tensors must be readable on the host.
  /// Throws nothing: if there is no memory for the copy, it keeps nothing of this batch.
  void take(const Batch& batch) noexcept FEEDLINE_EXCLUDES(mutex_);

  /// Returns the sample: {"epoch", "step", "replica", "outputs": [{"name", and "pictures": [{"width", "height", "rgb":
  /// red, green and blue of each pixel, in base64}] or "numbers": [...]}]}. Pictures larger than most_pixels are scaled
  /// down. Numbers that are not finite are null. Returns null if no batch has been taken yet. If the sample has been
  /// returned before, asks take() for the next batch, so that a later call returns a newer sample.
  Json json() FEEDLINE_EXCLUDES(mutex_);

 private:
  struct Output {
    std::string name;
    std::optional<PictureOutput> pictures;  // nullopt: numbers
  };
  struct OutputSample {
    const Output* output;
    DType dtype;
    int64_t count;  // pictures or numbers
    std::vector<std::byte> bytes;
  };
  struct Sample {
    uint64_t epoch, step;
    int replica;
    std::vector<OutputSample> outputs;
  };
  static OutputSample keep(const Output& output, const Batch& batch);

  std::vector<Output> outputs_;
  std::atomic<bool> wanted_ = false;
  Mutex mutex_;
  std::shared_ptr<const Sample> sample_ FEEDLINE_GUARDED_BY(mutex_);  // null: there is none yet
  bool returned_ FEEDLINE_GUARDED_BY(mutex_) = true;                  // whether json() has returned it
};

}  // namespace feedline
