// Tables: an .npy file whose type, shape and length are drawn must be refused, or give the rows that it has, as its
// numbers say without a reading of its text.
// covers: io/npy_header.cc
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "draw.h"
#include "feedline/error.h"
#include "flowgraph/table/table.h"
#include "require.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace feedline;
using test::Draw;
using test::require;

__extension__ using Wide = unsigned __int128;

constexpr uint64_t most_row_bytes = (uint64_t{1} << 31) - 1;

/// An .npy file as it was drawn, and what is known of it.
struct File {
  std::string bytes;
  std::string elements;
  uint64_t rows = 0, row_bytes = 0;
  std::string type;           // without the byte order
  std::vector<int64_t> axes;  // of a row
  bool good = true;           // a table can be made of it
};

std::string shape_text(Draw& draw, const std::vector<uint64_t>& shape, bool& good) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); i++) {
    if (i > 0) text += draw.coin() ? ", " : " ,\n";
    text += std::to_string(shape[i]) + (draw.below(8) == 1 ? "L" : "");
    good &= shape[i] < uint64_t{1} << 63;
  }
  if (shape.size() == 1 || draw.below(4) == 1) text += shape.empty() && draw.coin() ? "" : ",";
  good &= !text.ends_with("(,");
  static const std::string ends[] = {")", " )", "", "]"};
  text += ends[draw.below(12) == 1 ? draw.below(4) : 0];
  good &= text.ends_with(')');
  return text;
}

// Returns the dictionary of a header.
std::string dictionary(Draw& draw, const std::string& descr, bool fortran, const std::vector<uint64_t>& shape,
                       bool& good) {
  const std::string quote = draw.coin() ? "'" : "\"";
  std::array<std::string, 3> entries = {
      "descr" + quote + ": " + quote + descr + quote,
      "fortran_order" + quote + (draw.coin() ? ":" : " : ") + (fortran ? "True" : "False"),
      "shape" + quote + ": " + shape_text(draw, shape, good)};
  std::rotate(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(draw.below(3)), entries.end());
  std::string text = "{";
  const size_t left_out = draw.below(16), twice = draw.below(16), foreign = draw.below(32);
  for (size_t i = 0; i < entries.size(); i++) {
    for (size_t copy = i == left_out ? 1 : 0; copy < (i == twice ? 2 : 1); copy++)
      text += (text.size() > 1 ? ", " : "") + quote + entries[i];
    if (i == foreign) text += ", 'other': 1";
  }
  good &= (left_out > 2 || left_out == twice) && foreign > 2;
  static const std::string ends[] = {", }", "}", "}  \n", ",}", "", ", ", "x"};
  const size_t end = draw.below(std::size(ends));
  good &= end < 4;
  return text + ends[end];
}

File draw_file(Draw& draw) {
  static const std::string orders[] = {"<", "|", "=", ">", "x", ""}, kinds[] = {"f", "i", "u", "b", "c", "S", "V", "O"},
                           types[] = {"f2", "f4", "f8", "b1", "u1", "u2", "u4", "i1", "i2", "i4", "i8"};
  File file;
  const std::string order = orders[draw.coin() ? 0 : draw.below(6)];
  const uint64_t element = draw.coin() ? uint64_t{1} << draw.below(4) : draw.near(8);
  const std::string kind = draw.one_of(kinds);
  file.type = draw.coin() ? draw.one_of(types) : kind + std::to_string(element);
  const uint64_t element_bytes = std::stoull(file.type.substr(1));
  file.good &= std::ranges::find(types, file.type) != std::end(types) && order != "x" && !order.empty() &&
               (order != ">" || element_bytes == 1);

  std::vector<uint64_t> shape;
  const bool many = draw.below(4) == 1;  // axes, of few elements
  const uint64_t bound = most_row_bytes / std::max<uint64_t>(1, element_bytes);
  for (uint64_t axes = many ? draw.near(Shape::max_rank) % 12 : draw.below(4); axes > 0; axes--)
    shape.push_back(many ? 1 + draw.below(8) / 7 : draw.coin() ? 1 + draw.below(4) : draw.near(bound));
  const bool fortran = draw.below(8) == 1;
  file.good &= !shape.empty() && !(fortran && shape.size() > 1) && shape.size() <= 1 + Shape::max_rank;
  Wide row_bytes = element_bytes;
  for (size_t i = 1; i < shape.size() && file.good; i++) {
    row_bytes *= shape[i];
    file.axes.push_back(static_cast<int64_t>(shape[i]));
    file.good &= shape[i] > 0 && row_bytes <= most_row_bytes;
  }
  file.row_bytes = static_cast<uint64_t>(row_bytes);
  // So many rows that their bytes are a few more than 2^64.
  if (!shape.empty() && file.row_bytes >= 4 && std::has_single_bit(file.row_bytes) && draw.below(16) == 1)
    shape[0] = (~uint64_t{0} / file.row_bytes) + 1 + draw.below(3);
  file.rows = shape.empty() ? 0 : shape[0];
  std::string text = dictionary(draw, order + file.type, fortran, shape, file.good);

  const Wide wanted = row_bytes * file.rows;
  uint64_t size = wanted <= 4000 ? static_cast<uint64_t>(wanted) : file.rows * file.row_bytes % 4000,
           length = text.size();
  if (draw.below(8) == 1) {
    size = draw.near(size) % 5000;
  } else if (draw.below(8) == 1) {
    length = draw.near(text.size());
  } else if (draw.below(8) == 1) {
    length = draw.near(64 << 10) % (1 << 17);
    text.resize(length, ' ');
  }
  file.elements.resize(size);
  for (size_t i = 0; i < file.elements.size(); i++) file.elements[i] = static_cast<char>(i * 7 + i / 251);
  file.good &= file.rows > 0 && size == wanted && text.find('}') != text.npos;

  const uint64_t version = draw.below(8) > 0 ? 1 + draw.below(3) : draw.near(2) % 256,
                 length_bytes = version == 1 ? 2 : 4;
  length %= uint64_t{1} << 8 * length_bytes;
  file.good &= version >= 1 && version <= 3 && length <= 64 << 10 && length == text.size();
  file.bytes = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
  for (size_t i = 0; i < length_bytes; i++) file.bytes += static_cast<char>(length >> 8 * i);
  file.bytes += text + file.elements;
  if (draw.below(32) == 1) {  // another beginning, or little more than it
    const size_t at = draw.below(14);
    at < 6 ? void(file.bytes[at] ^= 1) : file.bytes.resize(at);
    file.good = false;
  }
  return file;
}

// Rows in any order, some of them twice, and numbers of no row.
void check_rows(Draw& draw, const flow::Table& table, const File& file) {
  std::vector<int64_t> rows(1 + draw.below(flow::Table::most_at_once));
  for (int64_t& row : rows) row = draw.below(8) == 1 ? -1 : static_cast<int64_t>(draw.near(file.rows) % file.rows);
  std::vector<const std::byte*> at(rows.size());
  const test::OutputBlock scratch(rows.size() * table.scratch_bytes());
  table.read_ahead(static_cast<uint64_t>(std::max<int64_t>(0, rows[0])));
  table.read(rows, scratch.span(), at);
  for (size_t i = 0; i < rows.size(); i++) {
    const std::string found(reinterpret_cast<const char*>(at[i]), file.row_bytes);
    if (rows[i] < 0) continue;
    require(found == file.elements.substr(static_cast<uint64_t>(rows[i]) * file.row_bytes, file.row_bytes),
            "another row");
    if (!table.spec().on_device) continue;
    const std::byte *const arrived = table.arrival_row(flow::Table::arrival_number(rows[i])), *const none =
                                                                                                  table.arrival_row(0);
    require(std::equal(at[i], at[i] + file.row_bytes, arrived), "another row arrives");
    require(std::all_of(none, none + file.row_bytes, [](std::byte byte) { return byte == std::byte{0}; }),
            "no row is not 0");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const test::TempDir folder;
  Draw draw(data, size);
  const File file = draw_file(draw);
  flow::TableSpec spec{.path = folder.write("table.npy", file.bytes), .keys_path = {}};
  spec.resident = draw.coin();
  spec.on_device = !spec.resident && draw.coin();
  uint64_t memory = spec.on_device ? file.row_bytes : 0, names_memory = 0;
  if (spec.resident || spec.on_device) memory += file.elements.size();
  bool named = true;
  if (draw.coin() && file.rows < 5000) {
    const uint64_t count = draw.below(4) == 1 ? draw.near(file.rows) % 5000 : file.rows;
    std::string names;
    for (uint64_t i = 0; i < count; i++) names += std::to_string(i) + "\n";
    spec.keys_path = folder.write("names", names);
    named = count == file.rows;
    names_memory = names.size() + (file.rows + 1) * 8 + std::bit_ceil(2 * file.rows + 1) * 8;
  }
  const uint64_t needed = memory + names_memory, limit = draw.coin() ? needed : draw.near(needed);
  bool made = false;
  try {
    flow::Table table(spec);
    made = true;
    require(file.good, "a table is made of a file that is none");
    require(
        table.rows() == file.rows && table.row_bytes() == file.row_bytes && table.spec().row_shape == Shape(file.axes),
        "a table of another size");
    table.open(limit, {.direct = Toggle::off});
    require(named && needed <= limit && table.memory_bytes() == needed, "a table takes more memory than it may");
    check_rows(draw, table, file);
  } catch (const Error& error) {
    require(made ? !named || needed > limit : !file.good, error.what());
    require(error.category() == Category::bad_pipeline && !error.message().empty(), error.what());
  }
  return 0;
}
