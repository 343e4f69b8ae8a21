#include "io/read/read_backend.h"

#include <cerrno>
#include <system_error>

namespace feedline::io {

std::string read_error_message(int error) {
  switch (error) {
    case ENODATA:
      return "the file has become shorter since feedline first looked at it; start again";
    case ESTALE:
      return "the file has changed since feedline first looked at it (size or modification time); start again";
    case EOPNOTSUPP:
      return "the file system refuses O_DIRECT; read through the page cache (direct: automatic or off)";
    case ECANCELED:
      return "the read was cancelled, because the feed was already being stopped";
    default:
      return std::generic_category().message(error);
  }
}

}  // namespace feedline::io
