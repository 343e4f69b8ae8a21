#include "feedline/error.h"

#include <fmt/format.h>

#include <array>

#include "base/append.h"

namespace feedline {
namespace {

constexpr std::array names = {
    "truncated_length", "truncated_data", "bad_length_crc", "bad_data_crc", "record_too_large", "bad_compression",
    "malformed_proto",  "wrong_dtype",    "wrong_count",    "wrong_length", "wrong_value",      "missing_feature",
    "bad_image",        "io_error",       "bad_pipeline",   "stalled",      "device_error",     "internal_error",
};

std::string describe(Category category, const std::string& message, const Place& place) {
  std::string text;
  if (!place.file.empty()) append(text, "{}: ", place.file);
  if (place.offset >= 0) append(text, "offset {}: ", place.offset);
  if (place.record >= 0) append(text, "record {}: ", place.record);
  if (!place.feature.empty()) append(text, "feature '{}': ", place.feature);
  append(text, "{} [{}]", message, name(category));
  return text;
}

}  // namespace

std::string_view name(Category category) noexcept { return names[static_cast<size_t>(category)]; }

Error::Error(Category category, std::string message, Place place)
    : std::runtime_error(describe(category, message, place)),
      category_(category),
      message_(std::move(message)),
      place_(std::move(place)) {}

Error Error::at(const Place& outer) const {
  Place merged = place_;
  if (merged.file.empty()) merged.file = outer.file;
  if (merged.offset < 0) merged.offset = outer.offset;
  if (merged.record < 0) merged.record = outer.record;
  if (merged.feature.empty()) merged.feature = outer.feature;
  return Error(category_, message_, std::move(merged));
}

}  // namespace feedline
