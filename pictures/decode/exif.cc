#include "pictures/decode/exif.h"

#include <cstdint>
#include <optional>

namespace feedline::pictures {
namespace {

class Tiff {
 public:
  explicit Tiff(std::span<const std::byte> bytes) : bytes_(bytes) {
    is_big_endian_ = bytes.size() >= 2 && bytes[0] == std::byte{'M'};
  }
  // Reads a number of `size` bytes; nullopt if it does not lie in the data.
  std::optional<uint32_t> number(uint64_t at, size_t size) const noexcept {
    if (at > bytes_.size() || bytes_.size() - at < size) return std::nullopt;
    uint32_t value = 0;
    for (size_t i = 0; i < size; i++) {
      const auto byte = std::to_integer<uint32_t>(bytes_[at + i]);
      value |= byte << (8 * (is_big_endian_ ? size - 1 - i : i));
    }
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  bool is_big_endian_ = false;
};

// Returns how many bytes an integer of this TIFF type has. The orientation should be a SHORT (2 bytes), but some
// writers give it a different type.
size_t size_of_type(uint32_t type) noexcept {
  constexpr uint32_t is_byte = 1, is_long = 4, is_signed_byte = 6, is_signed_long = 9;
  return type == is_byte || type == is_signed_byte ? 1 : type == is_long || type == is_signed_long ? 4 : 2;
}

}  // namespace

Orientation exif_orientation(std::span<const std::byte> bytes) noexcept {
  constexpr uint32_t orientation_tag = 0x0112, entry_bytes = 12;
  if (std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()).starts_with(exif_begins))
    bytes = bytes.subspan(exif_begins.size());
  const Tiff tiff(bytes);
  const auto directory = tiff.number(4, 4);
  if (!directory) return {};
  const auto entries = tiff.number(*directory, 2);
  if (!entries) return {};
  for (uint32_t i = 0; i < *entries; i++) {
    const uint64_t entry = uint64_t{*directory} + 2 + uint64_t{i} * entry_bytes;
    const auto tag = tiff.number(entry, 2);
    if (!tag) return {};
    if (*tag != orientation_tag) continue;
    switch (tiff.number(entry + 8, size_of_type(tiff.number(entry + 2, 2).value_or(0))).value_or(1)) {
      case 2:
        return {.mirrored = true};
      case 3:
        return {.mirrored = true, .upside_down = true};
      case 4:
        return {.upside_down = true};
      case 5:
        return {.transposed = true};
      case 6:
        return {.transposed = true, .mirrored = true};
      case 7:
        return {.transposed = true, .mirrored = true, .upside_down = true};
      case 8:
        return {.transposed = true, .upside_down = true};
      default:
        return {};
    }
  }
  return {};
}

}  // namespace feedline::pictures
