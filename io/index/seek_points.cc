#include "io/index/seek_points.h"

#include <isa-l/igzip_lib.h>

#include "base/invariant.h"

namespace feedline::io {
namespace {

unsigned char* chars(const std::byte* p) noexcept {
  return const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(p));  // ISA-L does not write to its input
}

}  // namespace

size_t SeekPointList::add(const SeekPoint& point, std::span<const std::byte> window) {
  const size_t begin = windows_.size();
  if (!window.empty()) {
    windows_.resize(begin + most_window_bytes);
    isal_zstream stream;
    isal_deflate_stateless_init(&stream);
    stream.end_of_stream = 1;
    stream.next_in = chars(window.data());
    stream.avail_in = static_cast<uint32_t>(window.size());
    stream.next_out = chars(windows_.data() + begin);
    stream.avail_out = most_window_bytes;
    const int result = isal_deflate_stateless(&stream);
    check_invariant(result == COMP_OK && stream.avail_in == 0, "ISA-L cannot deflate {} bytes: {}", window.size(),
                    result);
    windows_.resize(begin + most_window_bytes - stream.avail_out);
  }
  entries_.push_back({point, windows_.size()});
  return windows_.size() - begin;
}

bool inflate_window(std::span<const std::byte> deflated, size_t size, std::span<std::byte, deflate_window> into) {
  if (deflated.empty()) return size == 0;
  inflate_state state;
  isal_inflate_init(&state);
  state.next_in = chars(deflated.data());
  state.avail_in = static_cast<uint32_t>(deflated.size());
  state.next_out = chars(into.data());
  state.avail_out = deflate_window;
  return isal_inflate_stateless(&state) == ISAL_DECOMP_OK && state.avail_out == deflate_window - size;
}

}  // namespace feedline::io
