// A file for writing that appears under its name either whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace feedline::io {

/// Renames the file `from` to `to`. Replaces a file that is already called `to`. Returns the errno of the failure, or
/// 0.
int rename_file(const std::string& from, const std::string& to) noexcept;
/// Syncs a folder, so that the names of its files outlast a power cut. Returns the errno of the failure, or 0.
int sync_folder(const std::string& folder) noexcept;

/// Returns whether this is the name of the temporary file of an OutputFile, which is not complete:
/// NAME.PID-N.feedline-part.
bool is_unfinished_name(std::string_view path) noexcept;
/// Removes the temporary files of OutputFiles that killed processes have left in the folder. Removes only files for
/// which `ours` returns true; `name` is the name that the complete file was to have. A file that a process still writes
/// stays, if the lock of that process can be seen from here. All files stay if the file system has no locks. A file
/// that the system refuses to remove stays, too.
void remove_unfinished(const std::string& folder, const std::function<bool(std::string_view name)>& ours);
/// Removes, in the same way, only the temporary files that an OutputFile(path) has made.
void remove_unfinished(const std::string& path);

/// A file that is written under a temporary name in the same folder, and renamed when it is complete. Not thread-safe.
///
/// Every member throws Error io_error, with the file as its place, if the system refuses. After such a failure, and
/// after destruction without publish() or publish_unsynced(), nothing of the new file is left. The one exception: if
/// only the sync of the folder fails in publish(), the complete file stays at `path`. A process that is killed leaves
/// PATH.PID-N.feedline-part, which remove_unfinished() removes.
class OutputFile {
 public:
  /// Throws Error io_error also if `path` is there and names no regular file, such as a device or a folder.
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const noexcept { return path_; }

  /// Throws Error io_error if publish() or publish_unsynced() was called, or if a member has failed before.
  void check_open();
  /// Appends `bytes` to what earlier calls of write() have written. write_at() does not change where write() appends.
  void write(std::span<const std::byte> bytes);
  /// Writes `bytes` at `offset`, which may lie behind the end of the file. Bytes of the file that are never written are
  /// zeros.
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  /// Fills `out` with the bytes that earlier calls have written at `offset`.
  void read_at(uint64_t offset, std::span<std::byte> out);
  /// Syncs the content, renames the file to path() (replacing a file that has this name), and syncs the folder. May be
  /// called once.
  void publish();
  /// Renames the file to path() without fsync. A power cut may leave a part of the file there. This is for files
  /// that can be made again and whose content shows whether it is complete.
  void publish_unsynced();

 private:
  [[noreturn]] void fail(const char* what, int error);
  void rename_to_path();
  void discard() noexcept;

  const std::string path_;
  std::string temporary_;  // the temporary name; empty if no such file exists
  Descriptor descriptor_;
  uint64_t written_ = 0;  // bytes that write() has appended
};

}  // namespace feedline::io
