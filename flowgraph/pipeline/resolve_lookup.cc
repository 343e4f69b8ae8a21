#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "flowgraph/pipeline/output_resolver.h"
#include "flowgraph/table/table.h"
#include "io/read/source.h"

namespace feedline::flow {
namespace {

std::string path_of(const OutputResolver& of, std::string_view field, const std::string& path) {
  if (path.find('\0') != std::string::npos) of.refuse(field, "it is not a file name, because it has a NUL character");
  if (path.empty()) return path;
  return io::absolute_name(of.folder, path);
}

// Returns the number of an output's table. Outputs whose `lookup` fields are the same share one table.
size_t table_of(OutputResolver& of, const std::string& path, const std::string& keys_path,
                const config::Lookup& lookup) {
  const TableSpec wanted{
      .path = path, .keys_path = keys_path, .resident = lookup.resident(), .on_device = lookup.on_device()};
  const auto says_the_same = [&](TableSpec table) {
    table.dtype = DType::unset;
    table.row_shape = {};
    table.rows = 0;
    return table == wanted;
  };
  const auto known = std::ranges::find_if(of.tables, says_the_same);
  if (known != of.tables.end()) return static_cast<size_t>(known - of.tables.begin());
  try {
    of.tables.push_back(Table(wanted).spec());
    return of.tables.size() - 1;
  } catch (const Error& error) {
    throw Error(error.category(), fmt::format("{}: lookup.table: {}", of.path, error.message()), error.place());
  }
}

}  // namespace

void resolve_lookup(OutputResolver& of) {
  const config::Lookup& lookup = of.config.lookup();
  if (of.config.feature().empty())
    of.refuse("feature",
              "lookup needs a feature with one value in each record: an INT64 value, the number of a row, or a BYTES "
              "value, the name of a row; name such a feature");
  const int number = of.feature_number("feature", of.config.feature());
  const FeatureSpec& from = of.feature(number);
  if (from.dtype == DType::float32 || from.kind != FeatureKind::fixed || from.shape.rank() > 0)
    of.refuse("lookup", fmt::format("it needs one INT64 or BYTES value in each record; feature '{}' is {}", from.name,
                                    describe(from)));
  const bool by_name = from.dtype == DType::bytes;
  if (lookup.table().empty()) of.refuse("lookup.table", "it is missing; name the .npy file");
  if (by_name && lookup.keys_file().empty())
    of.refuse("lookup.keys_file",
              fmt::format("feature '{}' is BYTES, so rows are looked up by name; give a file with one name on each "
                          "line, in the order of the rows",
                          from.name));
  if (!by_name && !lookup.keys_file().empty())
    of.refuse(
        "lookup.keys_file",
        fmt::format("feature '{}' is INT64, so rows are looked up by number; remove lookup.keys_file, or declare the "
                    "feature as BYTES",
                    from.name));
  if (lookup.resident() && lookup.on_device())
    of.refuse("lookup.resident",
              "lookup.on_device already puts the table into the memory of each device; remove lookup.resident");
  const size_t table = table_of(of, path_of(of, "lookup.table", lookup.table()),
                                path_of(of, "lookup.keys_file", lookup.keys_file()), lookup);
  const DType stored = of.tables[table].dtype;
  unpack::UnpackSpec unpack = stored_elements(stored, of.tables[table].row_shape);
  const int channel_axis = of.turn(unpack, ImageLayout::unknown);
  of.finish(unpack, channel_axis, stored);
  of.output.shape = unpack.shape;
  of.add_job({.number = number}, unpack);
  of.output.jobs.back().rows = LookupRows{table, by_name, std::move(unpack)};
}

}  // namespace feedline::flow
