// Compares the text index of DALI's tfrecord2idx (nvidia/dali, tools/tfrecord2idx) with the index of a counted file.
// The text has one line, "OFFSET LENGTH", per record.
#pragma once

#include <string>

#include "io/index/index.h"

namespace feedline::io {

/// Compares the text in `idx_file` with `index`, which was made by reading the data file. Returns the first difference
/// in words, or an empty string if they agree.
///
/// They agree if each line begins where the line before it ends, if each entry of the index equals the line of its
/// record, and if both have the same number of good records. Lines that begin in bad regions are skipped, because
/// tfrecord2idx verifies nothing. Reads the text in small pieces. Throws Error io_error if it cannot be read.
std::string differs_from_idx(const std::string& idx_file, const FileIndex& index);

}  // namespace feedline::io
