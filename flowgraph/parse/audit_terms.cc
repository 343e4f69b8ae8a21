#include "flowgraph/parse/audit_terms.h"

#include "base/audit.h"
#include "base/compiled_for.h"

namespace feedline::flow {
namespace {

void compute(const io::RecordView* records, size_t count, uintptr_t base, uint64_t key, uint64_t* __restrict terms) {
  for (size_t i = 0; i < count; i++)
    terms[i] = key * audit_term(reinterpret_cast<uintptr_t>(records[i].data) - base, records[i].stored_crc);
}

}  // namespace

void compute_audit_terms(std::span<const io::RecordView> records, const std::byte* bytes, uint64_t offset, uint64_t key,
                         uint64_t* terms) noexcept {
  // A payload's address minus `base` is the offset in the file of its record's header.
  const uintptr_t base = reinterpret_cast<uintptr_t>(bytes) + io::header_bytes - offset;
  compiled_for<compute>(simd_level())(records.data(), records.size(), base, key, terms);
}

}  // namespace feedline::flow
