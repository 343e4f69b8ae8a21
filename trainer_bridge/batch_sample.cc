#include "trainer_bridge/batch_sample.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string_view>
#include <utility>

#include "base/base64.h"
#include "unpack/dispatch.h"

namespace feedline {
namespace {

bool is_number(const ElementSpec& element) {
  return element.kind == ElementSpec::Kind::dense && element.dtype != DType::bytes && element.shape.elements() == 1;
}

/// Returns the size in bytes of `count` pictures or numbers, each of which has `elements` elements.
size_t bytes_of(DType dtype, int64_t count, int64_t elements) {
  return size_of(dtype) * static_cast<size_t>(count * elements);
}

/// Returns the picture as JSON. A picture that is too large is made smaller: each pixel of the result is then the mean
/// of a square of pixels.
Json picture_json(const std::vector<uint8_t>& rgb, int64_t height, int64_t width) {
  const int64_t square = (std::max(height, width) + BatchSample::most_pixels - 1) / BatchSample::most_pixels;
  const int64_t rows = std::max<int64_t>(1, height / square), columns = std::max<int64_t>(1, width / square);
  std::string small;
  for (int64_t y = 0; y < rows; y++)
    for (int64_t x = 0; x < columns; x++)
      for (int64_t colour = 0; colour < 3; colour++) {
        int64_t sum = 0, pixels = 0;
        for (int64_t v = y * square; v < std::min(height, (y + 1) * square); v++)
          for (int64_t u = x * square; u < std::min(width, (x + 1) * square); u++, pixels++)
            sum += rgb[static_cast<size_t>((v * width + u) * 3 + colour)];
        small += static_cast<char>((sum + pixels / 2) / pixels);
      }
  return {{"width", columns}, {"height", rows}, {"rgb", base64(small)}};
}

}  // namespace

BatchSample::BatchSample(const std::vector<ElementSpec>& elements, const Pipeline& pipeline) {
  for (const ElementSpec& element : elements) {
    if (auto pictures = PictureOutput::of(element, pipeline))
      outputs_.push_back({element.name, std::move(pictures)});
    else if (is_number(element))
      outputs_.push_back({element.name, std::nullopt});
  }
}

BatchSample::OutputSample BatchSample::keep(const Output& output, const Batch& batch) {
  const TensorView tensor = batch.at(output.name);
  OutputSample kept{.output = &output, .dtype = tensor.dtype, .count = batch.valid_count(), .bytes = {}};
  int64_t elements = 1;
  if (const auto& pictures = output.pictures) {
    elements = pictures->height() * pictures->width() * pictures->channels();
    const auto most = static_cast<int64_t>(most_bytes / std::max<size_t>(1, bytes_of(tensor.dtype, 1, elements)));
    kept.count = std::min({kept.count * pictures->frames(), most_pictures, std::max<int64_t>(1, most)});
  } else {
    kept.count = std::min(kept.count, most_numbers);
  }
  const auto* const from = static_cast<const std::byte*>(tensor.data);
  kept.bytes.assign(from, from + bytes_of(tensor.dtype, kept.count, elements));
  return kept;
}

void BatchSample::take(const Batch& batch) noexcept try {
  if (!wanted_.exchange(false)) return;  // another thread has just taken the batch of its replica
  auto sample = std::make_shared<Sample>(Sample{batch.epoch(), batch.step(), batch.replica(), {}});
  for (const Output& output : outputs_) sample->outputs.push_back(keep(output, batch));
  const Lock lock(mutex_);
  sample_ = std::move(sample);
  returned_ = false;
} catch (const std::exception&) {
}

Json BatchSample::json() {
  std::shared_ptr<const Sample> sample;
  {
    const Lock lock(mutex_);
    sample = sample_;
    if (std::exchange(returned_, true)) wanted_ = true;
  }
  if (!sample) return {};
  Json outputs = Json::array();
  for (const OutputSample& kept : sample->outputs) {
    Json list = Json::array();
    const TensorView tensor{.data = const_cast<std::byte*>(kept.bytes.data()), .dtype = kept.dtype, .shape = {}};
    if (const auto& pictures = kept.output->pictures) {
      std::vector<uint8_t> rgb(static_cast<size_t>(pictures->height() * pictures->width() * 3));
      for (int64_t i = 0; i < kept.count; i++) {
        pictures->to_rgb(tensor, i, rgb);
        list.push_back(picture_json(rgb, pictures->height(), pictures->width()));
      }
      outputs.push_back({{"name", kept.output->name}, {"pictures", std::move(list)}});
    } else {
      unpack::with_type(kept.dtype, [&](auto type) {
        const auto* const numbers = static_cast<const typename decltype(type)::t*>(tensor.data);
        for (int64_t i = 0; i < kept.count; i++) {
          const auto number = unpack::cast<double>(numbers[i]);
          list.push_back(std::isfinite(number) ? Json(number) : Json());
        }
      });
      outputs.push_back({{"name", kept.output->name}, {"numbers", std::move(list)}});
    }
  }
  return {
      {"epoch", sample->epoch}, {"step", sample->step}, {"replica", sample->replica}, {"outputs", std::move(outputs)}};
}

}  // namespace feedline
