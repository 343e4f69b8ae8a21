// What each of many records adds to a delivery's audit (base/audit.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "io/records/record_scanner.h"

namespace feedline::flow {

/// terms[i] = key * audit_term(of records[i]). `bytes` is where byte `offset` of their file lies in memory.
void compute_audit_terms(std::span<const io::RecordView> records, const std::byte* bytes, uint64_t offset, uint64_t key,
                         uint64_t* terms) noexcept;

}  // namespace feedline::flow
