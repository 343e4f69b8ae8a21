// What feed_bench measures: data sets, bare loops over them, and paths (pipelines) through feedline. The paths are
// compared with the loops.
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

/// One line of the result.
struct Row {
  std::string name;
  std::variant<Loop, std::string> work;  // a bare loop; or a path: text to overlay on the set's pipeline
  std::vector<std::string> against;      // the names of earlier rows with which this row is compared
  double wanted = 0;                     // the wanted ratio to the rate of doing these rows one after another
  bool one_core = false;                 // measured on one core only
};

struct DataSet {
  std::string title, file;
  Pipeline pipeline;
  uint64_t records;
  int batch;  // rows in a batch, as in the comparison with other loaders
  std::function<std::string(Random&)> record;
  std::vector<Row> rows;
};

/// Returns a pipeline of the comparison with other loaders: peers/NAME.textproto.
Pipeline peers(const std::string& name);

std::vector<DataSet> data_sets();

}  // namespace feedline::bench
