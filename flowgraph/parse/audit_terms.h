// Computes the audit terms of many records at a time. A record's term is the number that it adds to the audit sum of a
// delivery (base/audit.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "io/records/record_scanner.h"

namespace feedline::flow {

/// Sets terms[i] = key * audit_term(records[i]). `bytes` is the address in memory of byte `offset` of the records'
/// file.
void compute_audit_terms(std::span<const io::RecordView> records, const std::byte* bytes, uint64_t offset, uint64_t key,
                         uint64_t* terms) noexcept;

}  // namespace feedline::flow
