#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "flowgraph/pipeline/output_resolver.h"

namespace feedline::flow {

void resolve_lookup(OutputResolver& of) {
  const config::Lookup& lookup = of.config.lookup();
  const int number = of.names_feature("lookup");
  const FeatureSpec& from = of.feature(number);
  const bool numbers = from.dtype == DType::int64, by_name = !numbers || !lookup.keys_file().empty();
  if (lookup.table().empty()) of.refuse("lookup.table", "it is missing; name the .npy file");
  if (by_name && lookup.keys_file().empty())
    of.refuse("lookup.keys_file",
              fmt::format("feature '{}' is BYTES, so rows are looked up by name; give a file with one name on each "
                          "line, in the order of the rows",
                          from.name));
  if (lookup.resident() && lookup.on_device())
    of.refuse("lookup.resident",
              "lookup.on_device already puts the table into the memory of each device; remove lookup.resident");
  const size_t table = of.table("lookup.table", {.path = of.file_name("lookup.table", lookup.table()),
                                                 .keys_path = of.file_name("lookup.keys_file", lookup.keys_file()),
                                                 .resident = lookup.resident(),
                                                 .on_device = lookup.on_device(),
                                                 .number_names = by_name && numbers});
  std::optional<int64_t> unknown;
  if (lookup.has_unknown()) unknown = lookup.unknown();
  if (unknown && (*unknown < 0 || static_cast<uint64_t>(*unknown) >= of.tables[table].rows))
    of.refuse("lookup.unknown", fmt::format("{}; it must be the number of a row of {}, 0 to {}", *unknown,
                                            of.tables[table].name(), of.tables[table].rows - 1));
  const DType stored = of.tables[table].dtype;
  unpack::UnpackSpec unpack = stored_elements(stored, of.tables[table].row_shape);
  const int channel_axis = of.turn(unpack, ImageLayout::unknown);
  of.finish(unpack, channel_axis, stored);
  of.output.shape = of.shape_of_each(from, unpack.shape);
  of.add_job({.number = number}, unpack, static_cast<size_t>(from.shape.elements()));
  of.output.jobs.back().rows = LookupRows{{table,
                                           !by_name  ? TableKey::By::row
                                           : numbers ? TableKey::By::number_name
                                                     : TableKey::By::name,
                                           unknown},
                                          std::move(unpack)};
}

}  // namespace feedline::flow
