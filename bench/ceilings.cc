#include "ceilings.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace feedline::bench {
namespace {

volatile uint64_t sink;

int open_or_die(const char* file) {
  const int fd = open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    std::perror(file);
    std::exit(1);
  }
  return fd;
}

uint64_t read_varint(const uint8_t*& p) {
  uint64_t value = *p & 0x7f;
  for (int shift = 7; *p++ & 0x80; shift += 7) value |= static_cast<uint64_t>(*p & 0x7f) << shift;
  return value;
}

}  // namespace

Frames load(const char* file, size_t bytes) {
  Frames data;
  const int fd = open_or_die(file);
  data.file.resize(bytes + 64);
  const ssize_t got = pread(fd, data.file.data(), bytes, 0);
  close(fd);
  for (uint64_t at = 0; static_cast<ssize_t>(at) + 16 < got;) {
    uint64_t length;
    std::memcpy(&length, &data.file[at], 8);
    if (static_cast<ssize_t>(at + 16 + length) > got) break;
    data.frames.push_back({at + 12, static_cast<uint32_t>(length)});
    at += 16 + length;
  }
  return data;
}

void read(const char* file, size_t block) {
  static std::vector<std::byte> buffer;
  buffer.resize(block);
  const int fd = open_or_die(file);
  for (off_t at = 0;;) {
    const ssize_t got = pread(fd, buffer.data(), block, at);
    if (got <= 0) break;
    at += got;
  }
  close(fd);
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint64_t crc_of(const std::byte* p, size_t n) {
  const auto load8 = [](const std::byte* at) {
    uint64_t v;
    std::memcpy(&v, at, 8);
    return v;
  };
  uint64_t a = ~0u, b = 0, c = 0;
  const size_t third = n >= 1024 ? n / 24 * 8 : 0;  // three streams, not joined: joining costs a little more
  for (size_t i = 0; i < third; i += 8) {
    a = __builtin_ia32_crc32di(a, load8(p + i));
    b = __builtin_ia32_crc32di(b, load8(p + third + i));
    c = __builtin_ia32_crc32di(c, load8(p + 2 * third + i));
  }
  size_t i = 3 * third;
  for (; i + 8 <= n; i += 8) a = __builtin_ia32_crc32di(a, load8(p + i));
  for (; i < n; i++) a = __builtin_ia32_crc32qi(static_cast<uint32_t>(a), static_cast<uint8_t>(p[i]));
  return a ^ b ^ c;
}
#endif

uint64_t crc(const Frames& data) {
  uint64_t sum = 0;
  for (const Frames::Frame& frame : data.frames)
    sum += crc_of(&data.file[frame.offset - 12], 8) ^ crc_of(&data.file[frame.offset], frame.size);
  sink = sum;
  return data.frames.size();
}

std::vector<Place> random_places(const char* file, uint64_t stride, size_t count) {
  std::vector<Place> records;  // of each, what lies behind its entry; the lengths come with the entry behind
  const Frames all = load(file, std::filesystem::file_size(file));
  uint64_t entry = 0, next = stride;
  size_t first = 0;
  for (const Frames::Frame& frame : all.frames) {
    const uint64_t at = frame.offset - 12;
    if (at >= next) {
      for (; first < records.size(); first++) records[first].length = static_cast<uint32_t>(at - entry);
      entry = at;
      next = (at / stride + 1) * stride;
    }
    records.push_back({entry, 0, records.size() == first ? 1 : records.back().records + 1});
  }
  records.resize(first);  // without those of the last entry
  std::mt19937_64 random(1);
  std::vector<Place> places(count);
  for (Place& place : places) place = records[random() % records.size()];
  return places;
}

void read_at_random(const char* file, const std::vector<Place>& places) {
  static std::vector<std::byte> buffer(1 << 20);
  const int fd = open_or_die(file);
  uint64_t sum = 0;
  for (const Place& place : places) {
    if (pread(fd, buffer.data(), place.length, static_cast<off_t>(place.offset)) != place.length) std::abort();
    const std::byte* at = buffer.data();
    for (uint32_t i = 0; i < place.records; i++) {
      uint64_t length;
      std::memcpy(&length, at, 8);
      sum += crc_of(at, 8) ^ crc_of(at + 12, length);
      at += 16 + length;
    }
  }
  sink = sum;
  close(fd);
}

uint64_t walk(const Frames& data, std::vector<const std::byte*>& d, std::vector<int64_t>& s) {
  d.resize(data.frames.size());
  s.resize(data.frames.size());
  size_t row = 0;
  for (const Frames::Frame& frame : data.frames) {
    const auto* p = reinterpret_cast<const uint8_t*>(&data.file[frame.offset]);
    if (*p++ != 0x0a) std::abort();  // Example.features
    const uint64_t features = read_varint(p);
    for (const uint8_t* end = p + features; p < end;) {
      if (*p++ != 0x0a) std::abort();  // an entry
      const uint64_t length = read_varint(p);
      const uint8_t* next = p + length;
      if (*p++ != 0x0a) std::abort();  // its key
      const uint64_t key_length = read_varint(p);
      const uint8_t key = *p;
      p += key_length;
      if (*p++ != 0x12) std::abort();  // its value
      read_varint(p);
      const uint8_t kind = *p++;
      read_varint(p);
      if (key_length == 1 && key == 'd' && kind == 0x0a) {
        if (*p++ != 0x0a || read_varint(p) != 194) std::abort();
        d[row] = reinterpret_cast<const std::byte*>(p);
      } else if (key_length == 1 && key == 's' && kind == 0x1a) {
        if (*p++ == 0x0a) read_varint(p);  // packed, or not
        s[row] = static_cast<int64_t>(read_varint(p));
      }
      p = next;
    }
    row++;
  }
  return row;
}

void gather(const std::vector<const std::byte*>& d, const std::vector<int64_t>& s, size_t batch, std::byte* ring) {
  const size_t rows = d.size();
  for (size_t first = 0, step = 0; first < rows; first += batch, step++) {
    std::byte* out = ring + step % 3 * batch * 202;
    auto* scores = reinterpret_cast<int64_t*>(out + batch * 194);
    const size_t count = std::min(batch, rows - first);
    for (size_t i = 0; i < count; i++) std::memcpy(out + i * 194, d[first + i], 194);
    std::memcpy(scores, &s[first], count * 8);
  }
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bw"))) static void unpack_avx512(const std::byte* bits, float* out) {
  const __m512 one = _mm512_set1_ps(1);
  for (int i = 0; i < 96; i++) {
    uint16_t word;
    std::memcpy(&word, bits + 2 * i, 2);  // the order of bits in a word does not matter to the time
    _mm512_storeu_ps(out + 16 * i, _mm512_maskz_mov_ps(word, one));
  }
}
#endif

void unpack(const std::vector<const std::byte*>& d, size_t batch, std::byte* ring) {
  for (size_t row = 0; row < d.size(); row++) {
    auto* out = reinterpret_cast<float*>(ring) + row % (3 * batch) * 1536;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw")) {
      unpack_avx512(d[row], out);
      continue;
    }
#endif
    for (int i = 0; i < 1536; i++) out[i] = static_cast<float>(static_cast<int>(d[row][i / 8]) >> (7 - i % 8) & 1);
  }
}

}  // namespace feedline::bench
