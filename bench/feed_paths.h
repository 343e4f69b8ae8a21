// What feed_bench measures: data sets, bare loops over them, and paths through feedline, which are compared with the
// loops.
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
  std::variant<Loop, std::string> work;  // a bare loop; or a path: text to overlay on the set's pipeline
  std::vector<std::string> against;      // names of earlier rows: the work that it includes, done in turn
  double wanted = 0;                     // the wanted ratio to the rate of those rows together
  bool one_core = false;                 // measured on one core only
};

struct DataSet {
  std::string title, file;
  Pipeline pipeline;
  uint64_t records;
  int batch;  // rows in a batch, as for the peers
  std::function<std::string(Random&)> record;
  std::vector<Row> rows;
};

std::vector<DataSet> data_sets();

}  // namespace feedline::bench
