// The two ways to read that make_read_backend chooses from; tests ask for them one by one.
#pragma once

#include <memory>
#include <string>

#include "io/read/file_table.h"
#include "io/read/read_backend.h"

namespace feedline::io {

/// A thread that owns an io_uring. Of the options, `backend` and `direct` are settled already and not looked at.
/// Throws std::system_error, with what was tried, where the kernel (or the build) has no io_uring for us.
std::unique_ptr<ReadBackend> make_uring_backend(std::shared_ptr<FileTable> files, const BackendOptions& options,
                                                ReadDone done);

/// A few threads that call pread; `reason`, if any, is why it is not io_uring, for the description. Throws
/// std::system_error when not one thread can be had.
std::unique_ptr<ReadBackend> make_pread_backend(std::shared_ptr<FileTable> files, const BackendOptions& options,
                                                ReadDone done, std::string reason = {});

/// For descriptions: "O_DIRECT", "O_DIRECT where the file system has it", "page cache".
const char* describe(Toggle direct) noexcept;

}  // namespace feedline::io
