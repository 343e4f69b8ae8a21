#include "flowgraph/parse/record_parser.h"

namespace feedline::flow {

std::unique_ptr<const RecordParser> record_parser(const PipelineSpec& spec) {
  switch (spec.sources.front().record_type) {
    case RecordType::raw:
      return raw_parser(spec.features);
    case RecordType::sequence_example:
      return sequence_example_parser(spec.features);
    case RecordType::example:
      break;
  }
  return example_parser(spec.features);
}

}  // namespace feedline::flow
