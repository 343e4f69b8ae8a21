#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "flowgraph/pipeline/output_resolver.h"

namespace feedline::flow {

void resolve_hash(OutputResolver& of) {
  constexpr int64_t most_buckets = int64_t{1} << 62;
  const int number = of.names_feature("hash");
  const FeatureSpec& from = of.feature(number);
  const int64_t buckets = of.config.hash().buckets();
  if (buckets < 1 || buckets > most_buckets)
    of.refuse("hash.buckets", fmt::format("{}; it must be 1 to {}", buckets, most_buckets));
  of.refuse_all_but_numbers("numbers of buckets");
  if (of.output.dtype == DType::int32 && buckets - 1 > std::numeric_limits<int32_t>::max())
    of.refuse("hash.buckets", fmt::format("numbers below {} do not fit into INT32; it must be at most {}, or the dtype "
                                          "INT64",
                                          buckets, int64_t{1} << 31));
  unpack::UnpackSpec unpack = stored_elements(DType::int64, Shape());
  of.finish(unpack, -1, DType::int64);
  of.output.shape = from.shape;
  of.add_job({.number = number}, unpack, static_cast<size_t>(from.shape.elements()));
  of.output.jobs.back().rows = HashRows{static_cast<uint64_t>(buckets), from.dtype == DType::int64, std::move(unpack)};
}

}  // namespace feedline::flow
