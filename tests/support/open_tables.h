// Opens the tables of a pipeline for tests that make plans without a feeder.
#pragma once

#include <cstdint>
#include <memory>

#include "flowgraph/pipeline/spec.h"
#include "flowgraph/table/table.h"

namespace feedline::test {

inline flow::Tables open_tables(const flow::PipelineSpec& spec, uint64_t memory_limit) {
  flow::Tables tables;
  for (const flow::TableSpec& of : spec.tables) {
    const auto table = std::make_shared<flow::Table>(of);
    table->open(memory_limit);
    tables.push_back(table);
  }
  return tables;
}

}  // namespace feedline::test
