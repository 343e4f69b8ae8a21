// Compares the parsers of records with libprotobuf.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "flowgraph/pipeline/spec.h"

namespace feedline::test {

/// What an arena is planned for besides the records that are parsed in it, and what the session is told.
struct ArenaPlan {
  uint64_t more_rows = 0, more_payload_bytes = 0;
  uint64_t other_payload_bytes = 0;  // of records for which the arena is not planned, but which payload_bytes counts
  uint64_t kept_free = 0;            // flow::ChunkRecords::kept_free
};

/// Parses the records with both: all of them in one call with columns of exactly arena_bound() bytes, without SIMD and
/// with it, and one by one with SIMD, in a way in which AddressSanitizer sees each write outside a row (but not those of
/// SIMD instructions). Each record lies in a block of its own. Returns what differs, or an empty string. Sets `hits` to
/// the session's layout_hits(). RAW records must have one feature.
std::string compare_with_protobuf(const std::vector<flow::FeatureSpec>& features, std::span<const std::string> records,
                                  uint64_t* hits = nullptr, flow::RecordType type = flow::RecordType::example,
                                  const ArenaPlan& plan = {});

}  // namespace feedline::test
