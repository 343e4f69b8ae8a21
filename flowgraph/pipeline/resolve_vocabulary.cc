#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "flowgraph/pipeline/output_resolver.h"

namespace feedline::flow {

void resolve_vocabulary(OutputResolver& of) {
  constexpr int64_t most_buckets = int64_t{1} << 31;
  const config::Vocabulary& vocabulary = of.config.vocabulary();
  const int number = of.names_feature("vocabulary");
  const FeatureSpec& from = of.feature(number);
  const bool numbers = from.dtype == DType::int64;
  if (vocabulary.keys_file().empty())
    of.refuse("vocabulary.keys_file", "it is missing; give a file with one name on each line");
  of.refuse_all_but_numbers("numbers of names");
  std::optional<int64_t> unknown;
  if (vocabulary.has_unknown()) unknown = vocabulary.unknown();
  if (of.output.dtype == DType::int32 && unknown && !std::in_range<int32_t>(*unknown))
    of.refuse("vocabulary.unknown",
              fmt::format("{} does not fit into INT32; it must be {} to {}, or the dtype INT64", *unknown,
                          std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
  const int64_t buckets = vocabulary.unknown_buckets();
  if (buckets < 0 || buckets > most_buckets)
    of.refuse("vocabulary.unknown_buckets", fmt::format("{}; it must be 0 to {}", buckets, most_buckets));
  if (buckets > 0 && unknown)
    of.refuse("vocabulary.unknown_buckets",
              "names that the file does not have become vocabulary.unknown; remove one of the two");
  const size_t table = of.table(
      "vocabulary.keys_file",
      {.path = "", .keys_path = of.file_name("vocabulary.keys_file", vocabulary.keys_file()), .number_names = numbers});
  unpack::UnpackSpec unpack = stored_elements(DType::int64, Shape());
  of.finish(unpack, -1, DType::int64);
  of.output.shape = from.shape;
  of.add_job({.number = number}, unpack, static_cast<size_t>(from.shape.elements()));
  of.output.jobs.back().rows = VocabularyRows{
      {table, numbers ? TableKey::By::number_name : TableKey::By::name, unknown, static_cast<uint64_t>(buckets)},
      std::move(unpack)};
}

}  // namespace feedline::flow
