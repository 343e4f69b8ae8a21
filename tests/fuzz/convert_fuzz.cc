// The readers of `feedline convert`: .npy files, CSV and the binary version of CIFAR-10. The first byte
// chooses the reader.
// covers: tool/convert/cifar10.cc tool/convert/npy_reader.cc tool/convert/csv_reader.cc
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/error.h"
#include "io/file.h"
#include "require.h"
#include "tool/convert/cifar10.h"
#include "tool/convert/csv_reader.h"
#include "tool/convert/npy_reader.h"

namespace {

using namespace feedline::tool;
using feedline::test::require;

/// A file in memory with this content.
class File {
 public:
  explicit File(std::string_view content) : fd_(memfd_create("input", MFD_CLOEXEC)) {
    if (fd_ < 0 || write(fd_, content.data(), content.size()) != static_cast<ssize_t>(content.size())) std::abort();
  }
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

/// Reads pictures of these labels. The first byte says how many bytes are missing at the end.
void binary(std::string_view labels) {
  if (labels.empty()) return;
  const auto missing = static_cast<uint8_t>(labels[0]);
  labels.remove_prefix(1);
  std::string content, images;
  for (size_t i = 0; i < labels.size(); i++) {
    const std::string image(cifar10_image_bytes, static_cast<char>(i * 7));
    content += labels[i] + image;
    images += image;
  }
  content.resize(content.size() - std::min<size_t>(content.size(), missing));
  const auto wrong = std::ranges::find_if(labels, [](char label) { return static_cast<uint8_t>(label) > 9; });
  const bool is_whole = !content.empty() && missing == 0;
  try {
    const Cifar10Batch batch = read_cifar10_batch(content);
    require(is_whole && wrong == labels.end(), "a file that is no batch is read");
    require(batch.images == images && std::string(batch.labels.begin(), batch.labels.end()) == labels,
            "other pictures");
  } catch (const std::runtime_error& error) {
    require(!is_whole || wrong != labels.end(), "a batch is refused");
    const std::string why =
        is_whole ? "picture " + std::to_string(wrong - labels.begin()) + " has label " +
                       std::to_string(static_cast<uint8_t>(*wrong)) + ","
                 : "the file has " + std::to_string(content.size()) + " bytes, but needs a multiple of 3073 bytes";
    require(std::string_view(error.what()).starts_with(why), "a batch is refused for another reason");
  }
}

void npy(std::string_view bytes) {
  const File file(bytes);
  try {
    NpyReader reader(file.path());
    uint64_t taken = 0;
    for (uint64_t row = 0; row < reader.rows(); row++) taken += reader.next().size();
    if (taken > bytes.size() || taken != reader.rows() * reader.row_bytes()) std::abort();
  } catch (const feedline::Error&) {
  }
}

using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(std::string_view text) {
  const File file(text);
  const feedline::io::InputFile input(file.path());
  CsvReader reader(input);
  Rows rows;
  std::vector<CsvReader::Cell> cells;
  while (reader.next(cells)) {
    if (cells.empty()) std::abort();
    rows.emplace_back();
    for (const auto& cell : cells) rows.back().emplace_back(cell.text);
  }
  return rows;
}

/// Reads rows. If they can be read, they must be read again as the same rows after they were written with every cell in
/// quotes.
void csv(std::string_view text) {
  Rows rows;
  try {
    rows = rows_of(text);
  } catch (const feedline::Error&) {
    return;
  }
  std::string again;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); i++) {
      again += i ? ",\"" : "\"";
      for (const char c : row[i]) again += c == '"' ? "\"\"" : std::string(1, c);
      again += '"';
    }
    again += '\n';
  }
  if (rows_of(again) != rows) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'b')
    binary(bytes.substr(0, 16));
  else if (data[0] % 3 == 1)
    npy(bytes);
  else
    csv(bytes);
  return 0;
}
