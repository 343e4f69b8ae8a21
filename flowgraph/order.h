// Which record comes when: a pure function of the counted data. No I/O, no threads.
//
// A pass over the data is a sequence of tickets, a ticket a read of a few hundred KiB of whole records. The samples of
// a pass are the rows of its tickets, in their order.
#pragma once

#include <cstdint>
#include <vector>

#include "flowgraph/data_set.h"

namespace feedline::flow {

/// Good records that lie one after another without a gap.
struct Extent {
  uint64_t offset = 0, length = 0;  // in the file, or in its inflated stream
  uint32_t records = 0;
};

struct Ticket {
  uint32_t file = 0;
  uint64_t first_record = 0;  // number in its file
  uint32_t rows = 0;          // records of all extents together
  std::vector<Extent> extents;

  uint64_t bytes() const noexcept;
};

/// How much one ticket may hold, what is read around its gaps included. A single stride of the index may exceed it:
/// that is a ticket of its own.
struct TicketLimits {
  uint64_t bytes = 0;
  uint64_t rows = 0;
};

/// File order: the sources one after another, their files in order, records from front to back.
class FileOrder {
 public:
  /// Keeps a reference to `data`.
  FileOrder(const DataSet& data, const TicketLimits& limits);

  uint64_t tickets() const noexcept { return cuts_.size(); }
  uint64_t samples() const noexcept { return data_->records; }

  /// Ticket number `number` of a pass; reuses `ticket`'s memory.
  void ticket(uint64_t number, Ticket& ticket) const;

  /// The most that any run of `count` consecutive samples touches, wherever it begins: tickets, and their bytes. In an
  /// endless sequence of passes, or within one. O(tickets).
  struct Window {
    uint64_t tickets = 0, bytes = 0;
  };
  Window largest_window(uint64_t count, bool within_one_pass) const;

  uint64_t memory_bytes() const noexcept { return cuts_.capacity() * sizeof(Cut); }

 private:
  struct Cut {  // one ticket: entries [begin, end) of its file's index
    uint32_t file;
    uint32_t begin, end;
    uint64_t sample;  // its first
    uint64_t bytes;   // of good records
  };

  const DataSet* data_;
  std::vector<Cut> cuts_;
};

}  // namespace feedline::flow
