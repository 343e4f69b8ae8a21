#include "tool/feeding/contact_sheet.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cstring>

#include "feedline/error.h"

namespace feedline::tool {
namespace {

constexpr int64_t usual_sheet_width = 1024, most_pixels = int64_t{1} << 29;
constexpr int64_t around_cell = 4, between_pictures = 1;
constexpr uint8_t background = 0xd0;

}  // namespace

ContactSheet::ContactSheet(const std::vector<Size>& pictures, int64_t cells) {
  for (const Size& size : pictures) {
    spots_.push_back({spots_.empty() ? 0 : cell_.width + between_pictures, size});
    cell_.width = spots_.back().x + size.width;
    cell_.height = std::max(cell_.height, size.height);
  }
  const int64_t fit = std::max<int64_t>((usual_sheet_width - around_cell) / (cell_.width + around_cell), 1);
  const int64_t rows = (cells + fit - 1) / fit;
  across_ = (cells + rows - 1) / rows;
  sheet_ = {around_cell, around_cell + across_ * (cell_.width + around_cell)};
}

void ContactSheet::add_cell() {
  if (cells_++ % across_ != 0) return;
  sheet_.height += cell_.height + around_cell;
  if (sheet_.height > most_pixels / sheet_.width)
    throw Error(Category::bad_pipeline, fmt::format("the sheet would have more than {} pixels; show fewer samples with "
                                                    "--samples, or make the pictures smaller with 'resize' in the "
                                                    "pipeline",
                                                    most_pixels));
  pixels_.resize(static_cast<size_t>(sheet_.height * sheet_.width * 3), background);
}

void ContactSheet::draw(size_t picture, std::span<const uint8_t> rgb) {
  const int64_t cell = cells_ - 1;
  const int64_t x = around_cell + cell % across_ * (cell_.width + around_cell) + spots_[picture].x;
  const int64_t y = around_cell + cell / across_ * (cell_.height + around_cell);
  const Size& size = spots_[picture].size;
  const auto row_bytes = static_cast<size_t>(size.width * 3);
  for (int64_t row = 0; row < size.height; row++)
    std::memcpy(&pixels_[static_cast<size_t>(((y + row) * sheet_.width + x) * 3)],
                &rgb[static_cast<size_t>(row) * row_bytes], row_bytes);
}

std::vector<std::byte> ContactSheet::to_png() const {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(sheet_.width);
  image.height = static_cast<png_uint_32>(sheet_.height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<std::byte> bytes(size);
  if (!png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels_.data(), 0, nullptr))
    throw Error(Category::bad_pipeline, fmt::format("the sheet of {} x {} pixels cannot be encoded: {}", sheet_.width,
                                                    sheet_.height, image.message));
  bytes.resize(size);
  return bytes;
}

}  // namespace feedline::tool
