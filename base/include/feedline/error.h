// Errors: a category for programs, a place, and a message for people.
//
// Every failure that feedline reports is an `Error`. What scripts see as `category` is `name(Category)`.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "feedline/export.h"

namespace feedline {

enum class Category : uint8_t {
  truncated_length,  // the file ends inside a record's 12-byte header
  truncated_data,    // the file ends behind the header, inside the record
  bad_length_crc,
  bad_data_crc,
  record_too_large,  // a length, with a good checksum, beyond `record_limit` or the file
  bad_compression,
  malformed_proto,
  wrong_dtype,   // the feature holds another kind of values
  wrong_count,   // the feature holds another number of values
  wrong_length,  // a bytes value of another length
  missing_feature,
  bad_image,
  io_error,
  bad_pipeline,    // the pipeline, an option or a flag makes no sense, or does not fit the data
  stalled,         // a wait that only the caller could end
  device_error,    // a GPU that is not there, has no such memory, or has failed
  internal_error,  // feedline has a bug: something that it guarantees to itself does not hold
};

FEEDLINE_PUBLIC std::string_view name(Category category) noexcept;

/// Where it happened. What does not apply is empty or -1.
struct Place {
  std::string file;
  int64_t offset = -1;  // bytes from the start of the file; of the inflated stream in a compressed file
  int64_t record = -1;  // good records before it in the file
  std::string feature;

  static Place of_file(std::string file) { return {std::move(file), -1, -1, {}}; }
  bool operator==(const Place&) const = default;
};

/// `what()` is one line: "FILE: offset N: record N: feature 'NAME': MESSAGE [CATEGORY]", less what does not apply.
/// The message says what was found, what was wanted and, where that helps, what to do.
class FEEDLINE_PUBLIC Error : public std::runtime_error {
 public:
  Error(Category category, std::string message, Place place = {});

  Category category() const noexcept { return category_; }
  const Place& place() const noexcept { return place_; }
  const std::string& message() const noexcept { return message_; }

  /// The same error seen from further out: fills in only what this place leaves open.
  Error at(const Place& outer) const;

 private:
  Category category_;
  std::string message_;
  Place place_;
};

}  // namespace feedline
