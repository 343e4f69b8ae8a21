// Statistics for people: a table for the terminal, and a page for a browser.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace feedline::tool {

/// One row of numbers: those of an output, of a part of it, of its lengths or of the sizes of its strings.
struct StatsRow {
  std::string name;     // "image", "image: red", "tags: length"; may hold any bytes
  const Json* numbers;  // lies in the output's JSON
};
/// Returns the rows of an output of stats_json(). `output` must outlive the rows.
std::vector<StatsRow> stats_rows(const Json& output);

/// Returns a label or a number as people write it.
std::string value_text(const Json& value);

/// Returns a text: how many samples were counted, how many samples there are, and how many records were bad.
std::string stats_summary(const Json& statistics);

/// Returns what stats_json() says as text: a table, then labels, class weights and `normalize` blocks.
std::string stats_table(const Json& statistics);

/// Returns what stats_json() says as one HTML page, with a histogram of each row of numbers. The page needs neither
/// network nor scripts, and is light or dark as the reader's system. Names may hold any bytes.
std::string stats_page(const Json& statistics);

}  // namespace feedline::tool
