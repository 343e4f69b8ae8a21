// Compares the parsers of Examples and SequenceExamples with libprotobuf.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "flowgraph/pipeline/spec.h"

namespace feedline::test {

/// Parses the records with both, in one session, with columns of exactly arena_bound() bytes. Returns what differs, or
/// an empty string. Sets `hits` to the session's layout_hits().
std::string compare_with_protobuf(const std::vector<flow::FeatureSpec>& features, std::span<const std::string> records,
                                  uint64_t* hits = nullptr, flow::RecordType type = flow::RecordType::example);

}  // namespace feedline::test
