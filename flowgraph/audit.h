// What a row adds to a delivery's audit (base/audit.h).
#pragma once

#include "base/audit.h"
#include "flowgraph/chunk.h"
#include "flowgraph/plan.h"

namespace feedline::flow {

/// For rows of any chunks; quickest where neighbours lie in one extent.
class RowAudit {
 public:
  explicit RowAudit(const Plan& plan) : plan_(plan) {}

  uint64_t operator()(const Chunk& chunk, uint32_t row) {
    if (&chunk != chunk_ || row - first_row_ >= rows_) {
      const Extent& extent = chunk.extent_of(row);
      chunk_ = &chunk;
      first_row_ = extent.first_row;
      rows_ = extent.rows;
      key_ = plan_.audit_keys[extent.file];
      // Of a record's payload: its address less this is the offset of its header.
      base_ = reinterpret_cast<uintptr_t>(chunk.records()[row].data) - chunk.offset_of(row);
    }
    const io::RecordView& record = chunk.records()[row];
    return key_ * audit_term(reinterpret_cast<uintptr_t>(record.data) - base_, record.stored_crc);
  }

 private:
  const Plan& plan_;
  const Chunk* chunk_ = nullptr;
  uint32_t first_row_ = 0, rows_ = 0;
  uint64_t key_ = 0;
  uintptr_t base_ = 0;
};

}  // namespace feedline::flow
