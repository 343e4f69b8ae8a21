#include "io/whole_file.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <optional>

#include "base/syscall_hooks.h"
#include "io/file.h"

namespace feedline::io {
namespace {

struct MapOp {
  static constexpr const char* name = "mmap";
  static constexpr int error = ENOMEM;
};

constexpr size_t most_read = 4096;  // a mapping takes a page, and longer

// A process has 65,530 mappings (vm.max_map_count) for everything, and fails all over where there are no more.
constexpr int most_mappings = 16384;
std::atomic<int> mappings{0};

}  // namespace

std::shared_ptr<const WholeFile> WholeFile::open(const std::string& path) {
  const std::optional<InputFile> file = InputFile::find(path);
  return file ? std::make_shared<const WholeFile>(*file) : nullptr;
}

WholeFile::WholeFile(const InputFile& file) {
  const auto size = static_cast<size_t>(file.size());
  if (size > most_read) {
    if (mappings++ < most_mappings && !injected<MapOp>()) {
      void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file.descriptor(), 0);
      if (memory != MAP_FAILED) {
        bytes_ = {static_cast<const std::byte*>(memory), size};
        return;
      }
    }
    mappings--;
  }
  read_ = std::make_unique_for_overwrite<std::byte[]>(size);
  file.read_at(0, {read_.get(), size});
  bytes_ = {read_.get(), size};
}

WholeFile::~WholeFile() {
  if (!mapped()) return;
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  mappings--;
}

}  // namespace feedline::io
