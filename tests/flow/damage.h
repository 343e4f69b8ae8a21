// Damage to files.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "feedline/records.h"
#include "support/catch.h"

namespace feedline::test {

/// Of a record's header.
inline uint64_t offset_of(const std::string& file, int64_t number) {
  RecordReader reader(file);
  Record record;
  for (int64_t i = 0; i <= number; i++) REQUIRE(reader.next(record) == ReadResult::record);
  return record.offset;
}

/// Flips a bit of a file, in place, and makes it look untouched.
inline void flip(const std::string& file, uint64_t offset) {
  const int fd = open(file.c_str(), O_RDWR);
  struct stat before {};
  REQUIRE(fstat(fd, &before) == 0);
  char byte = 0;
  REQUIRE(pread(fd, &byte, 1, static_cast<off_t>(offset)) == 1);
  byte = static_cast<char>(byte ^ 4);
  REQUIRE(pwrite(fd, &byte, 1, static_cast<off_t>(offset)) == 1);
  const timespec times[] = {before.st_atim, before.st_mtim};
  REQUIRE(futimens(fd, times) == 0);
  close(fd);
}

}  // namespace feedline::test
