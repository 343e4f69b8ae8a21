#include "flowgraph/feed/parse_stage.h"

namespace feedline::flow {

ChunkRef ParseStage::take(const ToParse& message) const {
  const ChunkRef* const chunk = std::get_if<ChunkRef>(&message);
  return chunk ? *chunk : read_.take_untried();
}

void ParseStage::parse(Chunk& chunk) {
  read_.keep(chunk);
  chunk.parse(plan_);
  writer_.read_ahead(chunk);
  layout_hits_ += chunk.layout_hits();
  parsed_ += chunk.rows();
}

}  // namespace feedline::flow
