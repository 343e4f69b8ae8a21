// Error, the exception that feedline throws: a category for programs, a place, and a message for people.
//
// Every failure that feedline reports is an `Error`. In the JSON output of the tool, `category` is `name(Category)`.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "feedline/export.h"

namespace feedline {

/// The kind of a failure, for programs.
enum class Category : uint8_t {
  truncated_length,  // the file ends inside a record's 12-byte header
  truncated_data,    // the file ends after a record's header, inside the record
  bad_length_crc,    // the checksum of a record's length does not match
  bad_data_crc,      // the checksum of a record's payload does not match
  record_too_large,  // a record's length, whose checksum is good, exceeds `record_limit` or the size of the file
  bad_compression,   // the gzip or zlib stream is damaged, cut short, or not of the format that was asked for
  malformed_proto,   // a record is not a tf.Example
  wrong_dtype,       // the feature holds values of a different kind than the pipeline says
  wrong_count,       // the feature holds a different number of values than the pipeline says
  wrong_length,      // a bytes value has a different length than the pipeline says
  wrong_value,       // no class has this number, no table row has this number or name, or a formula overflows with it
  missing_feature,   // a required feature is missing from a record, or (with absent_feature: ERROR) from all records
  bad_image,         // an image cannot be decoded
  io_error,          // the operating system refused a request, or a file changed while it was read
  bad_pipeline,      // the pipeline, an option or a flag makes no sense, or does not fit the data
  stalled,           // a wait would never end: only the caller could end it, or a feeder or a rank has stopped
  device_error,      // a GPU does not exist, does not have enough memory, or has failed
  internal_error,    // feedline has a bug: one of its internal guarantees does not hold
};

/// Returns the name of the enumerator, for example "bad_data_crc".
FEEDLINE_PUBLIC std::string_view name(Category category) noexcept;

/// The place at which a failure happened. Members that do not apply are empty or -1.
struct Place {
  std::string file;
  int64_t offset = -1;  // bytes from the start of the file, or of the inflated stream of a compressed file
  int64_t record = -1;  // the number of good records that lie before the place in the file
  std::string feature;

  /// Returns a place that names only the file.
  static Place of_file(std::string file) { return {std::move(file), -1, -1, {}}; }
  bool operator==(const Place&) const = default;
};

/// A failure that feedline reports.
///
/// `what()` is one line, "FILE: offset N: record N: feature 'NAME': MESSAGE [CATEGORY]", without the parts that do not
/// apply.
class FEEDLINE_PUBLIC Error : public std::runtime_error {
 public:
  Error(Category category, std::string message, Place place = {});

  Category category() const noexcept { return category_; }
  const Place& place() const noexcept { return place_; }
  /// Returns only the message, without place and category. It says what was found, what was wanted and, if that helps,
  /// what to do.
  const std::string& message() const noexcept { return message_; }

  /// Returns a copy of this error in which the empty members of place() are filled from `outer`. A caller that knows
  /// more about the place adds it in this way.
  Error at(const Place& outer) const;

 private:
  Category category_;
  std::string message_;
  Place place_;
};

}  // namespace feedline
