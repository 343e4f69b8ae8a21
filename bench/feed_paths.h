// What feed_bench measures: data sets, bare loops over them, and paths through feedline beside what these loops allow.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "feed_data.h"
#include "feedline/pipeline.h"
#include "on_cpus.h"

namespace feedline::bench {

struct Row {
  std::string name;
  std::variant<Loop, std::string> work;  // a loop; or a path: what is laid over the data set's pipeline for a Feeder
  std::vector<std::string> against;      // rows before it: what it cannot do without, one after another
  double wanted = 0;                     // of the rate that these have together
  bool one_core = false;                 // measured on one core alone
};

struct DataSet {
  std::string title, file;
  Pipeline pipeline;
  uint64_t records;
  int batch;  // rows of a batch, as the peers have it
  std::function<std::string(Random&)> record;
  std::vector<Row> rows;
};

std::vector<DataSet> data_sets();

}  // namespace feedline::bench
