#include "tool/convert/convert.h"
#include "tool/convert/tar_archive.h"

namespace feedline::cli {

void read_archive(const std::string& archive, uint64_t, const std::function<bool(const std::string&)>&,
                  const std::function<void(const std::string&, std::string)>&, const std::function<void(uint64_t)>&) {
  refuse_input(archive,
               "archives cannot be read, because this feedline was built without libarchive (Debian: libarchive-dev)");
}

}  // namespace feedline::cli
