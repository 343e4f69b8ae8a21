// The two backends from which make_read_backend() chooses. Tests make them directly.
#pragma once

#include <memory>
#include <string>

#include "io/read/file_table.h"
#include "io/read/read_backend.h"

namespace feedline::io {

/// Makes the backend that reads with io_uring: one thread that owns a ring. The members `backend` and `direct` of
/// `options` are ignored, because they have been decided before. Throws std::system_error, which says what was tried,
/// if the kernel does not allow io_uring or the library was built without it.
std::unique_ptr<ReadBackend> make_uring_backend(std::shared_ptr<FileTable> files, const BackendOptions& options,
                                                ReadDone done);

/// Makes the backend that reads with pread: a few threads. If `reason` is not empty, it says in the description why
/// this is not io_uring. `backend` and `direct` are ignored here, too. Throws std::system_error if not a single thread
/// can be started.
std::unique_ptr<ReadBackend> make_pread_backend(std::shared_ptr<FileTable> files, const BackendOptions& options,
                                                ReadDone done, std::string reason = {});

/// Returns the text for descriptions: "O_DIRECT", "O_DIRECT where the file system has it", or "page cache".
const char* describe(Toggle direct) noexcept;

}  // namespace feedline::io
