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
  Made operator()(const OneHotRows& rows) const { return std::make_unique<OneHotWriter>(rows); }
  Made operator()(const LookupRows& rows) const {
    return std::make_unique<LookupWriter>(finder_of(rows.key), rows.unpack);
  }
  Made operator()(const LookupNumberRows& rows) const {
    return std::make_unique<LookupNumberWriter>(finder_of(rows.key));
  }
  Made operator()(const VocabularyRows& rows) const {
    return std::make_unique<VocabularyWriter>(finder_of(rows.key), rows.unpack);
  }
  Made operator()(const HashRows& rows) const { return std::make_unique<HashWriter>(rows); }
  Made operator()(const PictureRows& rows) const { return std::make_unique<PictureWriter>(rows); }

  RowFinder finder_of(const TableKey& key) const { return {tables.at(key.table), key}; }

  const Tables& tables;
};

}  // namespace

std::unique_ptr<const RowWriter> make_row_writer(const RowSpec& rows, const Tables& tables) {
  return std::visit(Maker{tables}, rows);
}

}  // namespace feedline::flow
