// A sheet of small pictures, as a PNG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace feedline::tool {

/// Rows of cells of one size. A cell has the same number of pictures, side by side. What is not drawn is grey.
class ContactSheet {
 public:
  struct Size {
    int64_t height = 0, width = 0;
  };

  /// Makes an empty sheet. `pictures` are the sizes of a cell's pictures, from left to right. `cells`, at least 1, is
  /// the expected number of cells, from which the cells in a row follow: the rows are as few as 1024 pixels of width
  /// allow, and equally full. A cell that is wider has a row of its own. More cells than that may be added.
  ContactSheet(const std::vector<Size>& pictures, int64_t cells);

  int64_t cells_in_a_row() const noexcept { return across_; }
  int64_t cells() const noexcept { return cells_; }

  /// Adds an empty cell after the last one. Throws Error bad_pipeline if the sheet becomes too large.
  void add_cell();
  /// Draws a picture of the last cell: red, green and blue of each pixel.
  void draw(size_t picture, std::span<const uint8_t> rgb);
  /// Returns the sheet as the bytes of a PNG file. Precondition: there is a cell.
  std::vector<std::byte> to_png() const;

 private:
  struct Spot {
    int64_t x;  // in the cell
    Size size;
  };

  std::vector<Spot> spots_;
  Size cell_, sheet_;
  int64_t across_ = 1, cells_ = 0;
  std::vector<uint8_t> pixels_;
};

}  // namespace feedline::tool
