// Damages files.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "feedline/records.h"

namespace feedline::test {

inline void succeeds(bool done) {
  if (!done) throw std::runtime_error("a file cannot be damaged");
}

/// Returns the offset of the header of record `number`.
inline uint64_t offset_of(const std::string& file, int64_t number) {
  RecordReader reader(file);
  Record record;
  for (int64_t i = 0; i <= number; i++) succeeds(reader.next(record) == ReadResult::record);
  return record.offset;
}

/// Flips bits of a file in place while other code may look at it. The file looks untouched at every moment.
class HiddenDamage {
 public:
  explicit HiddenDamage(const std::string& file) {
    const int fd = open(file.c_str(), O_RDWR);
    struct stat before {};
    succeeds(fstat(fd, &before) == 0);
    size_ = static_cast<size_t>(before.st_size);
    bytes_ = static_cast<volatile char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    succeeds(bytes_ != MAP_FAILED);
    // The first write to a page of a mapping changes the file's time, later ones do not. So the first write to each
    // page comes here, before the time is set back.
    for (size_t i = 0; i < size_; i += 4096) bytes_[i] = bytes_[i];
    const timespec times[] = {before.st_atim, before.st_mtim};
    succeeds(futimens(fd, times) == 0);
    close(fd);
  }
  ~HiddenDamage() { munmap(const_cast<char*>(bytes_), size_); }
  HiddenDamage(const HiddenDamage&) = delete;
  HiddenDamage& operator=(const HiddenDamage&) = delete;

  void flip(uint64_t offset) { bytes_[offset] = static_cast<char>(bytes_[offset] ^ 4); }

 private:
  volatile char* bytes_;
  size_t size_;
};

/// Flips a bit of a file in place and sets the file's time back, so that it looks untouched afterwards.
inline void flip(const std::string& file, uint64_t offset) {
  const int fd = open(file.c_str(), O_RDWR);
  struct stat before {};
  succeeds(fstat(fd, &before) == 0);
  char byte = 0;
  succeeds(pread(fd, &byte, 1, static_cast<off_t>(offset)) == 1);
  byte = static_cast<char>(byte ^ 4);
  succeeds(pwrite(fd, &byte, 1, static_cast<off_t>(offset)) == 1);
  const timespec times[] = {before.st_atim, before.st_mtim};
  succeeds(futimens(fd, times) == 0);
  close(fd);
}

}  // namespace feedline::test
