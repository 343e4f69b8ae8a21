#include "flowgraph/rows/hash_writer.h"
#include "flowgraph/rows/lookup_writer.h"
#include "flowgraph/rows/one_hot_writer.h"
#include "flowgraph/rows/picture_writer.h"
#include "flowgraph/rows/row_writer.h"
#include "flowgraph/rows/vocabulary_writer.h"

namespace feedline::flow {
namespace {

struct Maker {
  using Made = std::unique_ptr<const RowWriter>;
  Made operator()(const OneHotRows& rows) const { return std::make_unique<OneHotWriter>(rows.unpack); }
  Made operator()(const LookupRows& rows) const {
    return std::make_unique<LookupWriter>(tables.at(rows.table), rows.by_name, rows.unpack);
  }
  Made operator()(const LookupNumberRows& rows) const {
    return std::make_unique<LookupNumberWriter>(RowFinder{tables.at(rows.table), rows.by_name});
  }
  Made operator()(const VocabularyRows& rows) const {
    return std::make_unique<VocabularyWriter>(tables.at(rows.table), rows.unknown, rows.unpack);
  }
  Made operator()(const HashRows& rows) const { return std::make_unique<HashWriter>(rows); }
  Made operator()(const PictureRows& rows) const { return std::make_unique<PictureWriter>(rows); }

  const Tables& tables;
};

}  // namespace

std::unique_ptr<const RowWriter> make_row_writer(const RowSpec& rows, const Tables& tables) {
  return std::visit(Maker{tables}, rows);
}

}  // namespace feedline::flow
