// A sheet of small pictures, as a PNG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace feedline::tool {

/// Rows of cells. All cells have the same size and the same number of pictures, which lie side by side. What is not
/// drawn is grey.
class ContactSheet {
 public:
  struct Size {
    int64_t height = 0, width = 0;
  };

  /// Makes an empty sheet. `pictures` are the sizes of a cell's pictures, from left to right. `cells`, at least 1, is
  /// the expected number of cells. It decides how many cells a row has: the sheet has as few rows as a width of 1024
  /// pixels allows, and the rows have about equally many cells. If one cell is wider than 1024 pixels, each row has one
  /// cell. More cells than `cells` may be added.
  ContactSheet(const std::vector<Size>& pictures, int64_t cells);

  int64_t cells_in_a_row() const noexcept { return across_; }
  int64_t cells() const noexcept { return cells_; }

  /// Adds an empty cell after the last one. Throws Error bad_pipeline if the sheet becomes too large.
  void add_cell();
  /// Draws picture number `picture` of the last cell. `rgb` has three bytes for each pixel (red, green and blue), row
  /// by row.
  void draw(size_t picture, std::span<const uint8_t> rgb);
  /// Returns the sheet as the bytes of a PNG file. Precondition: there is a cell.
  std::vector<std::byte> to_png() const;

 private:
  struct Spot {
    int64_t x;  // pixels from the left edge of the cell
    Size size;
  };

  std::vector<Spot> spots_;
  Size cell_, sheet_;
  int64_t across_ = 1, cells_ = 0;
  std::vector<uint8_t> pixels_;
};

}  // namespace feedline::tool
