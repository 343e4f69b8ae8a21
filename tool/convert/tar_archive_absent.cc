#include "tool/convert/convert.h"
#include "tool/convert/tar_archive.h"

namespace feedline::tool {

bool read_archive(const io::InputFile& file, uint64_t, const ArchiveCalls&) {
  refuse_input(
      file.path(),
      "archives cannot be read, because this feedline was built without libarchive, as all wheels are; build feedline "
      "from source with libarchive (Debian: libarchive-dev)");
}

}  // namespace feedline::tool
