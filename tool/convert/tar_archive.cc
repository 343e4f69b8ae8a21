#include "tool/convert/tar_archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "io/file.h"
#include "tool/convert/convert.h"

namespace feedline::tool {
namespace {

constexpr size_t block_bytes = 256 << 10;

struct Free {
  void operator()(archive* a) const { archive_read_free(a); }
};

/// The file that libarchive reads through a callback. io::InputFile reads it, so that a failing read is feedline's own
/// Error.
struct Source {
  Source(const io::InputFile& input, const ArchiveCalls& to) : file(input), calls(to), block(block_bytes) {}

  const io::InputFile& file;
  const ArchiveCalls& calls;
  std::vector<std::byte> block;
  uint64_t position = 0;
  std::exception_ptr thrown;  // what read() has thrown, kept here because it must not unwind libarchive's frames

  static la_ssize_t read(archive*, void* self, const void** buffer) {
    Source& source = *static_cast<Source*>(self);
    const size_t size = std::min<uint64_t>(block_bytes, source.file.size() - source.position);
    try {
      source.file.read_at(source.position, std::span(source.block).first(size));
      source.calls.progress(size);
    } catch (...) {
      source.thrown = std::current_exception();
      return -1;
    }
    source.position += size;
    *buffer = source.block.data();
    return static_cast<la_ssize_t>(size);
  }
};

std::string text_of(const char* name) { return name ? name : ""; }

}  // namespace

bool read_archive(const io::InputFile& file, uint64_t most_bytes, const ArchiveCalls& calls) {
  Source source(file, calls);
  const std::unique_ptr<archive, Free> tar(archive_read_new());
  if (!tar) throw std::bad_alloc();
  std::string last;  // the last member whose header was read
  // Throws if libarchive failed. After a warning it can continue.
  const auto check = [&](la_ssize_t result) {
    if (result >= 0 || result == ARCHIVE_WARN) return;
    if (source.thrown) std::rethrow_exception(source.thrown);
    const char* why = archive_error_string(tar.get());
    refuse_input(file.path(), fmt::format("{}: {}",
                                          last.empty() ? "is not a tar archive, or is damaged"
                                                       : fmt::format("is damaged at or after its member {}", last),
                                          why ? why : "libarchive does not say why"));
  };
  check(archive_read_support_filter_gzip(tar.get()));
  check(archive_read_support_format_tar(tar.get()));
  // Without this option, archives that follow the end of the first one would be passed over.
  check(archive_read_set_format_option(tar.get(), "tar", "read_concatenated_archives", "1"));
  check(archive_read_open(tar.get(), &source, nullptr, Source::read, nullptr));

  std::vector<char> block(block_bytes);
  const auto read_content = [&](const std::string& name) {
    std::string content;
    for (la_ssize_t size; (size = archive_read_data(tar.get(), block.data(), block.size())) != 0;) {
      check(size < 0 ? ARCHIVE_FATAL : ARCHIVE_OK);
      content.append(block.data(), static_cast<size_t>(size));
      if (content.size() > most_bytes)
        refuse_input(file.path(), fmt::format("{} in the archive has more than {} bytes, the largest accepted size",
                                              name, most_bytes));
    }
    return content;
  };
  for (archive_entry* entry = nullptr;;) {
    const la_int64_t end_of_member = archive_filter_bytes(tar.get(), 0);
    const int result = archive_read_next_header(tar.get(), &entry);
    if (result == ARCHIVE_EOF) {
      file.check_unchanged();
      return archive_filter_bytes(tar.get(), 0) > end_of_member;
    }
    check(result);
    const std::string name = text_of(archive_entry_pathname(entry)), target = text_of(archive_entry_hardlink(entry)),
                      symlink = text_of(archive_entry_symlink(entry));
    last = name;
    const auto type = archive_entry_filetype(entry);
    const bool take = type == AE_IFREG && calls.wanted(name);
    if (take) {
      calls.on_file(name, read_content(name));
      continue;
    }
    check(archive_read_data_skip(tar.get()));  // a sparse file may expand to exabytes of zeros
    if (type == AE_IFLNK)
      calls.on_other(name, "a symbolic link to " + symlink);
    else if (type != AE_IFREG && !target.empty())  // a link with content, as in pax archives, is a file
      calls.on_hard_link(name, target);
    else if (type != AE_IFREG && type != AE_IFDIR)
      calls.on_other(name, "not a regular file");
  }
}

}  // namespace feedline::tool
