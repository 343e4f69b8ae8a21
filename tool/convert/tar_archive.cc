#include "tool/convert/tar_archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "io/file.h"
#include "tool/convert/convert.h"

namespace feedline::cli {
namespace {

constexpr size_t block_bytes = 256 << 10;

struct Free {
  void operator()(archive* a) const { archive_read_free(a); }
};

/// The file that libarchive reads through a callback. io::InputFile reads it, so that a failing read is feedline's own
/// Error.
struct Source {
  explicit Source(const std::string& path) : file(path), block(block_bytes) {}

  io::InputFile file;
  std::vector<std::byte> block;
  uint64_t position = 0;
  std::exception_ptr thrown;  // by a read. It is kept here, because it must not unwind libarchive's frames

  static la_ssize_t read(archive*, void* self, const void** buffer) {
    Source& source = *static_cast<Source*>(self);
    const size_t size = std::min<uint64_t>(block_bytes, source.file.size() - source.position);
    try {
      source.file.read_at(source.position, std::span(source.block).first(size));
    } catch (...) {
      source.thrown = std::current_exception();
      return -1;
    }
    source.position += size;
    *buffer = source.block.data();
    return static_cast<la_ssize_t>(size);
  }
};

}  // namespace

void read_archive(const std::string& path, uint64_t most_bytes, const std::function<bool(const std::string&)>& wanted,
                  const std::function<void(const std::string&, std::string)>& on_file,
                  const std::function<void(uint64_t)>& progress) {
  Source source(path);
  const std::unique_ptr<archive, Free> tar(archive_read_new());
  if (!tar) throw std::bad_alloc();
  // Throws if libarchive failed. After a warning it can continue.
  const auto check = [&](la_ssize_t result) {
    if (result >= ARCHIVE_WARN) return;
    if (source.thrown) std::rethrow_exception(source.thrown);
    const char* why = archive_error_string(tar.get());
    refuse_input(path,
                 fmt::format("is not a tar archive, or is damaged: {}", why ? why : "libarchive does not say why"));
  };
  check(archive_read_support_filter_gzip(tar.get()));
  check(archive_read_support_format_tar(tar.get()));
  check(archive_read_open(tar.get(), &source, nullptr, Source::read, nullptr));

  uint64_t told = 0;
  std::vector<char> block(block_bytes);
  for (archive_entry* entry = nullptr;;) {
    const int result = archive_read_next_header(tar.get(), &entry);
    if (result == ARCHIVE_EOF) return;
    check(result);
    const char* full = archive_entry_pathname(entry);
    const std::string name = full ? full : "";
    const bool take = archive_entry_filetype(entry) == AE_IFREG && wanted(name);
    std::string content;
    for (la_ssize_t size; (size = archive_read_data(tar.get(), block.data(), block.size())) != 0;) {
      check(size);
      progress(source.position - std::exchange(told, source.position));
      if (!take) continue;
      content.append(block.data(), static_cast<size_t>(size));
      if (content.size() > most_bytes)
        refuse_input(
            path, fmt::format("{} in the archive has more than {} bytes, the most that is accepted", name, most_bytes));
    }
    if (take) on_file(name, std::move(content));
  }
}

}  // namespace feedline::cli
