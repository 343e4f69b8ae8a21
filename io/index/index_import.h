// The text index of DALI's tfrecord2idx, "OFFSET LENGTH" a record (nvidia/dali, tools/tfrecord2idx), beside a counted
// file.
#pragma once

#include <cstdint>
#include <string>

#include "io/index/index.h"

namespace feedline::io {

/// What the text says that the counted file does not hold: the first line, for people; empty where they agree. Each
/// line must begin where the one before it ends, each entry of the index must be the line of its record, and both have
/// as many good records; lines in bad regions are passed over, tfrecord2idx verifies nothing. Reads the text in small
/// pieces. Throws Error io_error.
std::string differs_from_idx(const std::string& idx_file, const FileIndex& index);

}  // namespace feedline::io
