// Takes the place of uring_backend.cc in builds without liburing.
#include <system_error>

#include "io/read/backends.h"

namespace feedline::io {

std::unique_ptr<ReadBackend> make_uring_backend(std::shared_ptr<FileTable>, const BackendOptions&, ReadDone) {
  throw std::system_error(ENOSYS, std::generic_category(), "feedline is built without liburing");
}

}  // namespace feedline::io
