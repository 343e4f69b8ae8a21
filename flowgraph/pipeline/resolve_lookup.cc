#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "flowgraph/pipeline/output_resolver.h"

namespace feedline::flow {

void resolve_lookup(OutputResolver& of) {
  const config::Lookup& lookup = of.config.lookup();
  if (of.config.feature().empty())
    of.refuse("feature",
              "lookup needs a feature with one value in each record: an INT64 value, the number of a row, or, with "
              "lookup.keys_file, a BYTES or INT64 value, the name of a row; name such a feature");
  const int number = of.feature_number("feature", of.config.feature());
  const FeatureSpec& from = of.feature(number);
  if (from.dtype == DType::float32 || from.kind != FeatureKind::fixed || from.shape.rank() > 0)
    of.refuse("lookup", fmt::format("it needs one INT64 or BYTES value in each record; feature '{}' is {}", from.name,
                                    describe(from)));
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
  of.output.shape = unpack.shape;
  of.add_job({.number = number}, unpack);
  of.output.jobs.back().rows = LookupRows{
      {table, !by_name ? TableKey::By::row : numbers ? TableKey::By::number_name : TableKey::By::name, unknown},
      std::move(unpack)};
}

}  // namespace feedline::flow
