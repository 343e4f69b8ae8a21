// Compares the SequenceExample parser with libprotobuf, for any records and any requested features.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "flowgraph/parse/example_reference.h"
#include "parser_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const feedline::test::ParserInput input(data, size, true);
  const std::string difference = feedline::test::compare_with_protobuf(input.features, input.records, nullptr,
                                                                       feedline::flow::RecordType::sequence_example);
  if (!difference.empty()) {
    std::fprintf(stderr, "%s\n", difference.c_str());
    std::abort();
  }
  return 0;
}
