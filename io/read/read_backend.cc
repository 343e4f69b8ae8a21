#include "io/read/read_backend.h"

#include <cerrno>
#include <system_error>

namespace feedline::io {

std::string read_error_message(int error) {
  switch (error) {
    case ENODATA:
      return "the file ended early: it is shorter than when it was first looked at";
    case ESTALE:
      return "the file has changed since it was first looked at (size or modification time)";
    case EOPNOTSUPP:
      return "the file system refuses O_DIRECT; read through the page cache (direct: automatic or off)";
    case ECANCELED:
      return "the read was cancelled, because the backend was stopped";
    default:
      return std::generic_category().message(error);
  }
}

}  // namespace feedline::io
