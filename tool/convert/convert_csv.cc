#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/format_count.h"
#include "base/parse.h"
#include "io/file.h"
#include "tool/convert/convert.h"
#include "tool/convert/csv_reader.h"
#include "tool/convert/example_writer.h"

namespace feedline::tool {
namespace {

/// The narrowest type that can hold a text without changing it. The types are in order from narrow to wide. "007" and
/// whole numbers beyond int64 are text, because they would change as numbers.
enum class Reads : uint8_t { as_int, as_float, as_text };

Reads reads(std::string_view text) {
  const std::string_view digits = text.substr(text.starts_with('-'));
  if (digits.size() > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9') return Reads::as_text;
  if (parse_number<int64_t>(text)) return Reads::as_int;
  if (digits.find_first_not_of("0123456789") == std::string_view::npos) return Reads::as_text;
  return parse_number<double>(text) ? Reads::as_float : Reads::as_text;
}

/// What look() finds out about a column.
struct CsvColumn {
  std::string key;
  std::optional<Kind> told;  // what --type says
  Reads widest = Reads::as_int;
  uint64_t cells = 0;  // cells that are not missing
  uint64_t length_min = UINT64_MAX, length_max = 0;
  bool rounded = false;  // some number was rounded to float32

  Kind kind() const {
    if (told) return *told;
    return widest == Reads::as_int ? Kind::int64_list : widest == Reads::as_float ? Kind::float_list : Kind::bytes_list;
  }

  /// Precondition: the cell is not missing.
  void look_at(const CsvReader::Cell& cell) {
    cells++;
    length_min = std::min<uint64_t>(length_min, cell.text.size());
    length_max = std::max<uint64_t>(length_max, cell.text.size());
    if (told || widest == Reads::as_text) return;
    // An empty string in quotes is a value, but not a number.
    widest = std::max(widest, cell.text.empty() ? Reads::as_text : reads(cell.text));
  }
};

bool is_missing(const CsvReader::Cell& cell) { return cell.text.empty() && !cell.quoted; }

/// A table, which is read twice: look() finds out the types of the columns, then for_rows() passes the rows on.
class Csv {
 public:
  Csv(const std::string& file, const std::map<std::string, Kind>& types, std::optional<char> delimiter)
      : input_(file), file_(file), types_(types), delimiter_(delimiter) {}

  /// Calls on_row(cells, line) for each row after the header. Each row has as many cells as the header. Adds the bytes
  /// that were read to `progress`, unless it is null.
  template <typename OnRow>
  void for_rows(Progress* progress, OnRow&& on_row) {
    CsvReader reader(input_, delimiter_.value_or(','));
    std::vector<CsvReader::Cell> cells;
    if (!reader.next(cells)) refuse_input(file_, "is empty; its first row must name the features");
    if (columns_.empty()) take_header(cells);
    std::optional<Meter> meter;
    if (progress) meter.emplace(*progress);
    for (uint64_t told = 0; reader.next(cells);) {
      if (cells.size() != columns_.size())
        refuse_input(
            file_,
            fmt::format(
                "line {} has {}, but the header has {}; give every line as many cells as the header, and leave cells "
                "empty for missing values",
                reader.line(), format_count(cells.size(), "cell"), columns_.size()));
      on_row(cells, reader.line());
      if (meter) meter->add(reader.position() - std::exchange(told, reader.position()));
    }
  }

  /// Reads the whole table to find out the types of its columns, and shows progress. Returns the number of rows.
  uint64_t look() {
    uint64_t rows = 0;
    Progress progress("reading", input_.size());
    for_rows(&progress, [&](const std::vector<CsvReader::Cell>& cells, uint64_t) {
      rows++;
      for (size_t i = 0; i < cells.size(); i++)
        if (!is_missing(cells[i])) columns_[i].look_at(cells[i]);
    });
    if (rows == 0) refuse_input(file_, "has a header but no rows");
    if (std::ranges::all_of(columns_, [](const CsvColumn& column) { return column.cells == 0; }))
      refuse_input(file_, "has only empty cells, so its records would have no values");
    return rows;
  }

  /// Sets feature `i` of the record to the cell's text, as a value of the column's type. `line` is for error messages.
  void set(ExampleWriter& example, size_t i, std::string_view text, uint64_t line) {
    const CsvColumn& column = columns_[i];
    const auto refuse = [&](const char* wanted) {
      refuse_input(file_,
                   fmt::format("line {}: column {} has {}, which is not a {}; correct the cell, or give the column a "
                               "different --type",
                               line, text_literal(column.key), text_literal(text.substr(0, 40)), wanted));
    };
    if (column.kind() == Kind::int64_list) {
      const auto value = parse_number<int64_t>(text);
      if (!value) refuse("whole number from -2^63 to 2^63 - 1");
      example.set_ints(i, {&*value, 1});
    } else if (column.kind() == Kind::float_list) {
      const auto value = parse_number<double>(text);
      if (!value) refuse("number");
      const std::optional<float> rounded = to_float32(*value);
      if (!rounded) refuse("number in the range of float32");
      columns_[i].rounded = columns_[i].rounded || (std::isfinite(*value) && static_cast<double>(*rounded) != *value);
      example.set_floats(i, {&*rounded, 1});
    } else {
      example.set_bytes(i, text);
    }
  }

  const std::vector<CsvColumn>& columns() const { return columns_; }
  const io::InputFile& input() const { return input_; }

 private:
  void take_header(const std::vector<CsvReader::Cell>& cells) {
    if (!delimiter_ && cells.size() == 1 && !cells[0].quoted)
      for (const auto& [other, name] : {std::pair{'\t', "tab"}, {';', "semicolon"}})
        if (cells[0].text.find(other) != std::string_view::npos)
          refuse_input(file_, fmt::format("the first row has a {0}, but no comma; if {0}s separate the cells, use "
                                          "--delimiter {0}; if the table has only one column, use --delimiter comma",
                                          name));
    std::set<std::string_view> seen;
    for (const CsvReader::Cell& cell : cells) {
      if (cell.text.empty())
        refuse_input(file_, fmt::format("column {} has no name in the first row; add a name", columns_.size() + 1));
      if (!seen.insert(cell.text).second)
        refuse_input(file_, fmt::format("two columns have the name {}; rename one of them", text_literal(cell.text)));
      columns_.emplace_back().key = cell.text;
      if (const auto told = types_.find(columns_.back().key); told != types_.end()) columns_.back().told = told->second;
    }
    for (const auto& [key, kind] : types_)
      if (!seen.contains(key)) refuse_input(file_, fmt::format("--type: there is no column {}", text_literal(key)));
  }

  const io::InputFile input_;  // stays open, so that both passes read the same file
  const std::string file_;
  const std::map<std::string, Kind>& types_;
  const std::optional<char> delimiter_;
  std::vector<CsvColumn> columns_;
};

TextFeature text_feature(const CsvColumn& column, uint64_t rows) {
  TextFeature text{.key = column.key, .kind = column.kind()};
  text.missing = column.cells < rows;
  const auto remark = [&](const std::string& more) { text.remark += (text.remark.empty() ? "" : "; ") + more; };
  if (text.kind == Kind::bytes_list) {
    if (column.length_min == column.length_max && column.length_min > 0 && !text.missing)
      text.length = static_cast<int64_t>(column.length_min);
    else
      remark(fmt::format("{} bytes", format_range(column.length_min, column.length_max)));
  }
  if (column.rounded) remark("rounded to float32");
  if (text.missing) remark(fmt::format("in {} of {} rows", format_count(column.cells), format_count(rows)));
  return text;
}

}  // namespace

Converted convert_csv(const std::string& file, const std::map<std::string, Kind>& types, std::optional<char> delimiter,
                      const ConvertTarget& target) {
  Csv csv(file, types, delimiter);
  const uint64_t rows = csv.look();
  std::vector<std::string> keys;
  uint64_t names = 0;
  for (const CsvColumn& column : csv.columns()) {
    keys.push_back(column.key);
    names += column.key.size() + 16;
  }
  OutputFolder out(target.folder);
  Converted result;
  ExampleWriter example(keys);
  const uint64_t bytes = csv.input().size() + rows * names;
  Progress progress("writing", bytes);
  ShardWriter writer(out, target, "data", rows, bytes, progress);
  csv.for_rows(nullptr, [&](const std::vector<CsvReader::Cell>& cells, uint64_t line) {
    for (size_t i = 0; i < cells.size(); i++)
      if (!is_missing(cells[i])) csv.set(example, i, cells[i].text, line);
    writer.write(example.finish(), file);
  });
  csv.input().check_unchanged();
  result.sets.push_back(writer.finish());
  progress.done();

  std::vector<TextFeature> features;
  std::vector<std::string> comments = {"Columns of " + text_literal(file)};
  for (const CsvColumn& column : csv.columns()) {
    if (column.cells > 0)
      features.push_back(text_feature(column, rows));
    else
      comments.push_back(fmt::format("Column {} is empty", text_literal(column.key)));
  }
  publish(out, result, comments, features);
  return result;
}

}  // namespace feedline::tool
