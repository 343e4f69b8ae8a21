#include "tool/convert/convert.h"
#include "tool/convert/tar_archive.h"

namespace feedline::tool {

bool read_archive(const io::InputFile& file, uint64_t, const ArchiveCalls&) {
  refuse_input(
      file.path(),
      "archives cannot be read, because this feedline was built without libarchive (Debian: libarchive-dev), as "
      "wheels are; use the tool of a build that has it");
}

}  // namespace feedline::tool
