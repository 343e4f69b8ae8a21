// The two backends from which make_read_backend() chooses. Tests make them directly.
#pragma once

#include <memory>
#include <string>

#include "io/read/file_table.h"
#include "io/read/read_backend.h"

namespace feedline::io {

/// Makes the backend that reads with io_uring: one thread that owns a ring. Ignores the members `backend` and `direct`
/// of `options`, because make_read_backend() has decided about them. Throws std::system_error, which says what was
/// tried, if the kernel does not allow io_uring or the library was built without it.
std::unique_ptr<ReadBackend> make_uring_backend(std::shared_ptr<FileTable> files, const BackendOptions& options,
                                                ReadDone done);

/// Makes the backend that reads with pread on a few threads. `reason` says why the backend is not io_uring, and becomes
/// a part of description(); it may be empty. Ignores the members `backend` and `direct` of `options`, too. Throws
/// std::system_error if not even one thread can be started.
std::unique_ptr<ReadBackend> make_pread_backend(std::shared_ptr<FileTable> files, const BackendOptions& options,
                                                ReadDone done, std::string reason = {});

/// Returns how files are read, for description(): "O_DIRECT", "O_DIRECT where the file system has it", or "page cache".
const char* describe(Toggle direct) noexcept;

}  // namespace feedline::io
