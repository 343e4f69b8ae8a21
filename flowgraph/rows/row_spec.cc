#include "flowgraph/rows/row_spec.h"

#include <utility>

#include "unpack/unpack.h"

namespace feedline::flow {
namespace {

std::optional<RowSpec> of_stored_numbers(LookupRows rows) {
  if (unpack::Unpacker(rows.unpack).is_copy()) return std::nullopt;
  rows.unpack.normalize.reset();
  rows.unpack.channel_axis = -1;
  rows.unpack.out = rows.unpack.stored;
  return rows;
}

std::optional<RowSpec> of_stored_numbers(PictureRows rows) {
  const pictures::Finish& own = rows.finish;
  if ((rows.geometry.resize || rows.geometry.shorter) && own.filter != pictures::Filter::nearest) return std::nullopt;
  // A PictureWriter rounds normalised values to the nearest integer. The cast of an UnpackSpec would round them towards
  // zero.
  if (own.is_integer() && own.normalizes()) return std::nullopt;
  pictures::Finish finish{.filter = own.filter, .channels = own.channels, .fill = own.fill};
  const auto* decode = std::get_if<pictures::DecodeOptions>(&rows.origin);
  if (decode && decode->bits == 16) finish.dtype = DType::uint16;
  rows.finish = std::move(finish);
  return rows;
}

}  // namespace

std::optional<RowSpec> of_stored_numbers(const RowSpec& rows) {
  if (const auto* lookup = std::get_if<LookupRows>(&rows)) return of_stored_numbers(*lookup);
  if (const auto* pictures = std::get_if<PictureRows>(&rows)) return of_stored_numbers(*pictures);
  return std::nullopt;
}

}  // namespace feedline::flow
