#include "flowgraph/parse/audit_terms.h"

#include <array>
#include <random>
#include <vector>

#include "base/audit.h"
#include "base/machine.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::flow;

TEST_CASE("many terms at once are each record's own, however many") {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512));
  std::mt19937_64 random(7);
  const std::vector<std::byte> bytes(64 << 10);
  const uint64_t offset = (uint64_t{1} << 40) + 12345, key = audit_key(3, 5);
  constexpr size_t most = 80;
  std::vector<io::RecordView> records;
  std::vector<uint64_t> expected;
  for (size_t at = 0; records.size() < most; at += io::frame_bytes + random() % 700) {
    records.push_back({&bytes[at + io::header_bytes], 7, static_cast<uint32_t>(random())});
    expected.push_back(key * audit_term(offset + at, records.back().stored_crc));
  }
  for (size_t first = 0; first < 9; first++)
    for (size_t count = 0; first + count <= most; count++) {
      std::array<uint64_t, most + 1> terms;
      terms.fill(1);
      compute_audit_terms(std::span(records).subspan(first, count), bytes.data(), offset, key, &terms[0]);
      INFO(count << " records from " << first);
      CHECK(std::equal(terms.begin(), terms.begin() + static_cast<ptrdiff_t>(count),
                       expected.begin() + static_cast<ptrdiff_t>(first)));
      CHECK(terms[count] == 1);
    }
}
