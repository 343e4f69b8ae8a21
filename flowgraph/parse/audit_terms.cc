#include "flowgraph/parse/audit_terms.h"

#include "base/audit.h"
#include "base/each_simd_level.h"

namespace feedline::flow {

FEEDLINE_EACH_SIMD_LEVEL
void compute_audit_terms(std::span<const io::RecordView> records, const std::byte* bytes, uint64_t offset, uint64_t key,
                         uint64_t* __restrict terms) noexcept {
  // A payload's address minus `base` is the offset in the file of its record's header.
  const uintptr_t base = reinterpret_cast<uintptr_t>(bytes) + io::header_bytes - offset;
  for (size_t i = 0; i < records.size(); i++)
    terms[i] = key * audit_term(reinterpret_cast<uintptr_t>(records[i].data) - base, records[i].stored_crc);
}

}  // namespace feedline::flow
