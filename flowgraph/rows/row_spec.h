// Describes by plain values how an output's rows are made if this can fail (pictures, look-ups, one-hot vectors).
// make_row_writer() (row_writer.h) makes a RowWriter from such a description.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "flowgraph/rows/cache_spec.h"
#include "pictures/decode/picture.h"
#include "pictures/shape/geometry.h"
#include "pictures/shape/render.h"
#include "unpack/unpack_spec.h"

namespace feedline::flow {

/// A row is `on` at the number of each class that a value has, and `off` elsewhere.
struct OneHotRows {
  double on = 1, off = 0;
  bool ignores_outside = false;  // a number that is no class has no place; false: the row fails
  unpack::UnpackSpec unpack;     // makes a row from one FLOAT64 for each class
  bool operator==(const OneHotRows&) const = default;
};

/// Says which row of a table a value of a feature stands for. The rows of a vocabulary are the numbers of its names.
struct TableKey {
  enum class By : uint8_t {
    row,          // a value is the number of a row, an INT64
    name,         // a value is the name of a row
    number_name,  // a value is an INT64, and its decimal text is the name of a row
  };
  size_t table = 0;  // number of the table in PipelineSpec::tables
  By by = By::row;
  std::optional<int64_t> unknown;  // the row for a value that the table does not have; nullopt: it stands for no row
  // If not 0, a name that the table does not have stands for one of so many rows after the table's, as its hash says.
  uint64_t unknown_buckets = 0;
  bool operator==(const TableKey&) const = default;
};

/// A row is a row of a table.
struct LookupRows {
  TableKey key;
  unpack::UnpackSpec unpack;  // makes a row of the output from a row of the table
  bool operator==(const LookupRows&) const = default;
};

/// A row is one number: the Table::arrival_number() of the table's row that LookupRows takes.
struct LookupNumberRows {
  TableKey key;
  bool operator==(const LookupNumberRows&) const = default;
};

/// A row is the number of a name in a vocabulary.
struct VocabularyRows {
  TableKey key;
  unpack::UnpackSpec unpack;  // makes a row from the number, an INT64
  bool operator==(const VocabularyRows&) const = default;
};

/// A row is one number: the place, below `buckets`, that a hash gives a value.
struct HashRows {
  uint64_t buckets = 1;
  bool of_numbers = false;    // values are INT64, and their decimal text is hashed
  unpack::UnpackSpec unpack;  // makes a row from the number, an INT64
  bool operator==(const HashRows&) const = default;
};

/// The shape of a picture whose UINT8 pixels lie in a feature's bytes without compression, as the field `decode_raw` of
/// an output says.
struct StoredPixels {
  int64_t height = 0, width = 0;
  int channels = 0;
  bool channels_first = false;
  bool operator==(const StoredPixels&) const = default;
};

/// Says what a picture is made from: encoded bytes, or pixels.
using PictureOrigin = std::variant<pictures::DecodeOptions, StoredPixels>;

/// The random choices for a picture depend on these values, on the epoch, and on the picture's number within the epoch.
struct ChoiceKeys {
  uint64_t seed = 0;
  std::string crop_group, flip_group;  // outputs of one group share a choice
  bool operator==(const ChoiceKeys&) const = default;
};

/// A row is a picture: decoded, cropped, resized, mirrored, normalised and cast.
struct PictureRows {
  PictureOrigin origin;
  pictures::GeometrySpec geometry;  // its size must not depend on the picture
  pictures::Finish finish;
  ChoiceKeys keys;
  std::optional<CacheSpec> cache = std::nullopt;  // the pipeline's cache, if any; says what it keeps of a picture
  bool operator==(const PictureRows&) const = default;
};

using RowSpec = std::variant<OneHotRows, LookupRows, LookupNumberRows, VocabularyRows, HashRows, PictureRows>;

/// Rows can be made in two steps if numbers are made first, and rows from the numbers by the output's UnpackSpec. Then
/// the numbers are sent as they are stored, and the rank or the GPU that receives them casts and normalises them.
/// Returns how the numbers are made; nullopt if two steps would not give the same rows, or save nothing.
std::optional<RowSpec> of_stored_numbers(const RowSpec& rows);

/// The first step of making a row, whose result is the same in every epoch, so that a cache can keep it.
struct KeptStep {
  std::string text;     // says what is made: steps with the same text make the same bytes from a value
  uint64_t bytes = 0;   // how many bytes are made from each value; 0: that depends on the value
  std::string why_not;  // for people: why nothing can be kept; if not empty, only this member counts
  // The maximum number of bytes in an entry. So much memory is needed while an entry is read from a disk, or is made in
  // order to be written to a disk. 0: no memory is needed, because an entry is the row itself.
  uint64_t entry_bytes = 0;
};

}  // namespace feedline::flow
