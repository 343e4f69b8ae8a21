// A bad record, as the code that finds it hands it on to the error log.
#pragma once

#include <cstdint>

#include "feedline/error.h"

namespace feedline::flow {

/// A record that cannot be fed. It is found when its chunk is parsed, or when the rows of its step are made.
struct BadRecord {
  /// The term that a record adds to the audit sum over the data (base/audit.h).
  struct AuditTerm {
    uint64_t as_stored = 0;    // the term with the CRC that is stored in the file
    uint64_t as_computed = 0;  // the term with the CRC of the payload; differs if the payload or the CRC is damaged
    bool lost = false;         // the record cannot be identified, so both terms are unknown
  };
  /// Returns the term of a record whose checksums are good.
  static AuditTerm sound(uint64_t term) noexcept { return {.as_stored = term, .as_computed = term}; }

  // The record's row in the chunk, or in the step (numbered as TicketRows::at). A record that was passed over
  // (Chunk::passed_over) has no row. Then this is the first row after the record, and `audit` is not set.
  int64_t row;
  Error error;  // its category, what is wrong, and its place
  AuditTerm audit = {};
};

}  // namespace feedline::flow
