#include <fmt/format.h>

#include <memory>
#include <utility>

#include "flowgraph/pipeline/output_resolver.h"
#include "flowgraph/rows/lookup_writer.h"
#include "io/read/source.h"

namespace feedline::flow {
namespace {

std::string path_of(const OutputResolver& of, std::string_view field, const std::string& path) {
  if (path.find('\0') != std::string::npos) of.refuse(field, "it is not a file name, because it has a NUL character");
  if (path.empty()) return path;
  return io::absolute_name(of.folder, path);
}

// Returns the table of an output. Outputs with the same TableSpec share one table.
std::shared_ptr<Table> table_of(OutputResolver& of, TableSpec wanted) {
  for (const std::shared_ptr<Table>& table : of.tables)
    if (table->spec() == wanted) return table;
  try {
    return of.tables.emplace_back(std::make_shared<Table>(std::move(wanted)));
  } catch (const Error& error) {
    throw Error(error.category(), fmt::format("{}: lookup.table: {}", of.path, error.message()), error.place());
  }
}

}  // namespace

void resolve_lookup(OutputResolver& of) {
  const config::Lookup& lookup = of.config.lookup();
  if (of.config.feature().empty())
    of.refuse("feature",
              "lookup needs a feature of one INT64 value, a row's number, or one of BYTES, its name; name one");
  const int number = of.feature_number("feature", of.config.feature());
  const FeatureSpec& from = of.feature(number);
  if (from.dtype == DType::float32 || from.kind != FeatureKind::fixed || from.shape.rank() > 0)
    of.refuse("lookup", fmt::format("it needs one INT64 or BYTES value in each record; feature '{}' is {}", from.name,
                                    describe(from)));
  const bool by_name = from.dtype == DType::bytes;
  if (lookup.table().empty()) of.refuse("lookup.table", "it is missing; name the .npy file");
  if (by_name && lookup.keys_file().empty())
    of.refuse("lookup.keys_file",
              fmt::format("feature '{}' is BYTES, so rows are looked up by name; give a file with the "
                          "name of each row, one on a line",
                          from.name));
  if (!by_name && !lookup.keys_file().empty())
    of.refuse(
        "lookup.keys_file",
        fmt::format("feature '{}' is INT64, so rows are looked up by number; remove it, or declare the feature as "
                    "BYTES",
                    from.name));
  if (lookup.resident() && lookup.on_device())
    of.refuse("lookup.resident", "lookup.on_device has the table in the memory of the device already; remove it");
  const std::shared_ptr<Table> table =
      table_of(of, {path_of(of, "lookup.table", lookup.table()), path_of(of, "lookup.keys_file", lookup.keys_file()),
                    lookup.resident(), lookup.on_device()});
  unpack::UnpackSpec unpack = stored_elements(table->dtype(), table->row_shape());
  const int channel_axis = of.turn(unpack, ImageLayout::unknown);
  of.finish(unpack, channel_axis, table->dtype());
  of.output.shape = unpack.shape;
  of.output.table = table;
  auto writer = std::make_shared<LookupWriter>(table, by_name, unpack);
  of.add_job({.number = number}, std::move(unpack));
  of.output.jobs.back().writer = std::move(writer);
}

}  // namespace feedline::flow
