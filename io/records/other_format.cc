#include "io/records/other_format.h"

#include <algorithm>
#include <cstdint>

#include "base/load.h"
#include "base/utf8.h"

namespace feedline::io {
namespace {

using namespace std::string_view_literals;

struct Format {
  size_t at;  // offset of `begins` in the file
  std::string_view begins;
  std::string_view what;
};

constexpr Format formats[] = {
    {0, "\x28\xb5\x2f\xfd"sv, "a file that zstd has compressed; decompress it with `zstd -d`"},
    {0, "\x04\x22\x4d\x18"sv, "a file that lz4 has compressed; decompress it with `lz4 -d`"},
    {0, "\xff\x06\0\0sNaPpY"sv, "a file that snappy has compressed; decompress it"},
    {0, "BZh"sv, "a file that bzip2 has compressed; decompress it with `bunzip2`"},
    {0, "\xfd\x37zXZ\0"sv, "a file that xz has compressed; decompress it with `unxz`"},
    {257, "ustar"sv, "a tar archive; `feedline convert webdataset` converts archives of WebDataset"},
    {0, "PAR1"sv, "a Parquet file; `python -m feedline convert parquet` converts it"},
    {0, "ARROW1"sv, "an Arrow file; write its table as Parquet, which `python -m feedline convert parquet` converts"},
    {0, "\x89HDF\r\n\x1a\n"sv,
     "an HDF5 file; save its arrays with numpy.save, and convert them with `feedline convert npy`"},
    {0, "\x83\xaf\x70\xd1\x0d\x88\x4a\x3f"sv,
     "an ArrayRecord file; read it with the package array_record, and write its records with feedline.write()"},
    {0, "\x93NUMPY"sv, "an array of NumPy; `feedline convert npy` converts it"},
    {0, "PK\x03\x04"sv, "a zip archive (.zip, .npz); unpack it, and convert .npy files with `feedline convert npy`"},
    {0, "\xff\xd8\xff"sv, "a picture; `feedline convert images` converts folders of them"},
    {0, "\x89PNG\r\n"sv, "a picture; `feedline convert images` converts folders of them"},
    {0, "version https://git-lfs"sv, "a pointer of Git LFS, not the file itself; run `git lfs pull`"},
};
constexpr std::string_view arrow_stream =
    "a stream of Arrow; write its table as Parquet, which `python -m feedline convert parquet` converts";
constexpr std::string_view mds =
    "a shard of MosaicML Streaming (MDS); read it with the package streaming, and write its samples with "
    "feedline.write()";
constexpr std::string_view text = "text; `feedline convert csv` converts CSV tables";

/// Returns whether the bytes begin like an Arrow stream: with a message, which has a mark and then the size of the
/// schema.
bool is_arrow_stream(std::span<const std::byte> bytes) noexcept {
  constexpr uint32_t mark = UINT32_MAX, most = 1 << 20, alignment = 8;
  if (bytes.size() < 8 || load<uint32_t>(bytes.data()) != mark) return false;
  const auto size = load<uint32_t>(bytes.data() + 4);
  return size > 0 && size < most && size % alignment == 0;
}

/// Returns whether the bytes begin like a shard of MDS: with the number of samples, the offsets of all samples and of
/// the end, and then JSON.
bool is_mds(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < 8) return false;
  const uint64_t json = 8 + uint64_t{4} * load<uint32_t>(bytes.data());
  return json < bytes.size() && bytes[json] == std::byte{'{'} && load<uint32_t>(bytes.data() + 4) > json;
}

/// Returns whether this is text in UTF-8, whose last character may be cut off.
bool is_text(std::string_view bytes) noexcept {
  for (int cut = 0; cut < 3 && !is_utf8(bytes); cut++) bytes.remove_suffix(bytes.empty() ? 0 : 1);
  return !bytes.empty() && is_utf8(bytes) && std::all_of(bytes.begin(), bytes.end(), [](char byte) {
    const auto c = static_cast<unsigned char>(byte);
    return (c >= ' ' && c != 0x7f) || (c >= '\t' && c <= '\r');
  });
}

}  // namespace

std::string_view other_format(std::span<const std::byte> first_bytes) noexcept {
  const std::string_view bytes(reinterpret_cast<const char*>(first_bytes.data()), first_bytes.size());
  for (const Format& format : formats)
    if (bytes.size() >= format.at && bytes.substr(format.at).starts_with(format.begins)) return format.what;
  if (is_arrow_stream(first_bytes)) return arrow_stream;
  if (is_mds(first_bytes)) return mds;
  if (is_text(bytes.substr(0, 512))) return text;
  return {};
}

}  // namespace feedline::io
