#pragma GCC diagnostic ignored "-Wuninitialized"  // the warnings come from g++ 12's own headers (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include "ceilings.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/machine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace feedline::bench {
namespace {

constexpr size_t read_bytes = 512 << 10;  // bytes in a read of a feed in file order: flowgraph/order/order.cc

volatile uint64_t sink;
const uint64_t cache = last_level_cache();  // in bytes. Called once, because it reads files

int open_or_die(const std::string& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    std::perror(file.c_str());
    std::exit(1);
  }
  return fd;
}

uint64_t varint(const uint8_t*& p) {
  uint64_t byte = *p++, value = byte & 0x7f;
  for (int shift = 7; byte >= 0x80; shift += 7) {
    byte = *p++;
    value |= (byte & 0x7f) << shift;
  }
  return value;
}

void must(bool good) {
  if (!good) std::abort();
}

// Writes the rows one after another into the ring. Calls kernel(address of the row's values, where to write the row).
uint64_t rows_into_ring(Worker& worker, size_t rows, size_t row_bytes, auto&& kernel) {
  for (const std::byte* from : worker.found.values)
    kernel(from, worker.ring.data() + worker.next_row(rows) * row_bytes);
  return worker.found.values.size();
}

}  // namespace

Records load(const std::string& file, size_t bytes) {
  Records records;
  const int fd = open_or_die(file);
  records.file.resize(bytes + 64);
  const ssize_t got = pread(fd, records.file.data(), bytes, 0);
  close(fd);
  for (uint64_t at = 0; static_cast<ssize_t>(at) + 16 < got;) {
    uint64_t length;
    std::memcpy(&length, &records.file[at], 8);
    if (static_cast<ssize_t>(at + 16 + length) > got) break;
    records.views.push_back({&records.file[at + 12], static_cast<uint32_t>(length), 0});
    at += 16 + length;
  }
  return records;
}

Worker::Worker(const std::string& path, uint64_t count, size_t part, size_t parts, std::span<std::byte> memory)
    : file(path),
      bytes(std::filesystem::file_size(path)),
      records(count),
      begin(bytes * part / parts / read_bytes * read_bytes),
      block(read_bytes),
      hot(load(path, read_bytes + bytes / count)),
      found(hot.views.size()),
      ring(memory) {
  walk(hot.views, found);
}

uint64_t copy_memory(Worker& worker) {
  const uint64_t half = worker.ring.size() / 2, records = half * worker.records / worker.bytes;
  std::memcpy(worker.ring.data(), worker.ring.data() + half, records * worker.bytes / worker.records);
  return records;
}

uint64_t read(Worker& worker) {
  const int fd = open_or_die(worker.file);
  for (uint64_t at = worker.begin, left = worker.bytes; left > 0;) {
    const ssize_t got = pread(fd, worker.block.data(), std::min<uint64_t>(read_bytes, left), static_cast<off_t>(at));
    must(got > 0);
    left -= static_cast<uint64_t>(got);
    at = (at + static_cast<uint64_t>(got)) % worker.bytes;
  }
  close(fd);
  return worker.records;
}

#if defined(__x86_64__)
// Aligned, because the place to which the linker moves this loop changes its rate by a third.
__attribute__((target("sse4.2"), aligned(64))) static uint64_t crc_of(const std::byte* p, size_t n) {
  const auto load8 = [](const std::byte* at) {
    uint64_t v;
    std::memcpy(&v, at, 8);
    return v;
  };
  uint64_t a = ~0u, b = 0, c = 0;
  const size_t third = n >= 1024 ? n / 24 * 8 : 0;  // three chains; combining their CRCs would cost a little more
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

uint64_t crc(const Worker& worker) {
  uint64_t sum = 0;
  for (const io::RecordView& record : worker.hot.views)
    sum += crc_of(record.data - 12, 8) ^ crc_of(record.data, record.size);
  sink = sum;
  return worker.hot.views.size();
}

uint64_t walk(std::span<const io::RecordView> records, Columns& out) {
  constexpr int bytes = 0x0a, floats = 0x12, int64s = 0x1a;  // the tags of a Feature's lists
  for (size_t row = 0; row < records.size(); row++) {
    const auto* p = reinterpret_cast<const uint8_t*>(records[row].data);
    const uint8_t* const end = p + records[row].size;
    must(*p++ == 0x0a && varint(p) == static_cast<uint64_t>(end - p));  // Example.features
    while (p < end) {
      must(*p++ == 0x0a);  // an entry
      const uint64_t size = varint(p);
      const uint8_t* const after = p + size;
      must(*p++ == 0x0a);  // its key
      const uint64_t key_size = varint(p);
      const uint8_t key = *p;
      p += key_size;
      must(*p++ == 0x12);  // its value
      varint(p);
      const int kind = *p++;
      varint(p);
      const bool run = *p++ == 0x0a;  // bytes, or packed numbers
      if (run) varint(p);
      if ((kind == bytes && (key == 'd' || key == 'i')) || (kind == floats && key == 'x')) {
        out.values[row] = reinterpret_cast<const std::byte*>(p);
      } else if (kind == int64s && (key == 's' || key == 'l' || key == 'y')) {
        out.number[row] = static_cast<int64_t>(varint(p));
      } else if (kind == int64s && key == 'i') {
        for (size_t i = 0; i < 26; i++) out.ids[26 * row + i] = static_cast<int64_t>(varint(p));
      }
      p = after;
    }
  }
  return records.size();
}

template <size_t bytes, size_t ids>
uint64_t gather(Worker& worker, size_t batch) {
  const size_t rows = 3 * batch, count = worker.hot.views.size();
  std::byte* const values = worker.ring.data();
  auto* const numbers = reinterpret_cast<int64_t*>(values + rows * bytes);
  for (size_t i = 0; i < count; i++) {
    const size_t row = worker.next_row(rows);
    std::memcpy(values + row * bytes, worker.found.values[i], bytes);
    std::memcpy(numbers + rows + row * ids, &worker.found.ids[i * ids], ids * 8);
    numbers[row] = worker.found.number[i];
  }
  return count;
}
template uint64_t gather<194, 0>(Worker&, size_t);
template uint64_t gather<256, 26>(Worker&, size_t);

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bw"))) static void unpack_bits_avx512(const std::byte* bits, float* out) {
  const __m512 one = _mm512_set1_ps(1);
  for (int i = 0; i < 96; i++) {
    uint16_t word;
    std::memcpy(&word, bits + 2 * i, 2);  // the order of bits within a word does not affect the time
    _mm512_storeu_ps(out + 16 * i, _mm512_maskz_mov_ps(word, one));
  }
}

__attribute__((target("avx512f"))) static void unpack_bytes_avx512(const std::byte* from, size_t bytes, float* out,
                                                                   bool past_cache) {
  const __m512 scale = _mm512_set1_ps(1 / 255.0f), bias = _mm512_set1_ps(-0.5f);
  for (size_t i = 0; i < bytes; i += 16) {
    const __m128i stored = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    const __m512 value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(stored)), scale, bias);
    past_cache ? _mm512_stream_ps(out + i, value) : _mm512_store_ps(out + i, value);
  }
}

__attribute__((target("avx512f"))) static void copy_avx512(const std::byte* from, size_t bytes, std::byte* to,
                                                           bool past_cache) {
  for (size_t i = 0; i < bytes; i += 64) {
    const __m512i line = _mm512_loadu_si512(from + i);
    past_cache ? _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), line) : _mm512_store_si512(to + i, line);
  }
}
#endif

uint64_t unpack_bits(Worker& worker, size_t batch) {
  return rows_into_ring(worker, 3 * batch, 6144, [](const std::byte* bits, std::byte* to) {
    auto* const out = reinterpret_cast<float*>(to);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw")) return unpack_bits_avx512(bits, out);
#endif
    for (int i = 0; i < 1536; i++) out[i] = static_cast<float>(static_cast<int>(bits[i / 8]) >> (7 - i % 8) & 1);
  });
}

uint64_t unpack_bytes(Worker& worker, size_t batch, size_t bytes) {
  const bool past_cache = 3 * batch * bytes * 4 > 2 * cache;
  return rows_into_ring(worker, 3 * batch, bytes * 4, [&](const std::byte* from, std::byte* to) {
    auto* const out = reinterpret_cast<float*>(to);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return unpack_bytes_avx512(from, bytes, out, past_cache);
#endif
    for (size_t i = 0; i < bytes; i++) out[i] = static_cast<float>(from[i]) * (1 / 255.0f) - 0.5f;
  });
}

uint64_t copy(Worker& worker, size_t batch, size_t bytes) {
  const bool past_cache = 3 * batch * bytes > cache;
  return rows_into_ring(worker, 3 * batch, bytes, [&](const std::byte* from, std::byte* to) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return copy_avx512(from, bytes, to, past_cache);
#endif
    std::memcpy(to, from, bytes);
  });
}

std::vector<Place> random_places(const std::string& file, uint64_t stride, size_t count) {
  std::vector<Place> records;  // for each record; the length is known at the next entry
  const Records all = load(file, std::filesystem::file_size(file));
  uint64_t entry = 0, next = stride;
  size_t first = 0;
  for (const io::RecordView& record : all.views) {
    const auto at = static_cast<uint64_t>(record.data - all.file.data()) - 12;
    if (at >= next) {
      for (; first < records.size(); first++) records[first].length = static_cast<uint32_t>(at - entry);
      entry = at;
      next = (at / stride + 1) * stride;
    }
    records.push_back({entry, 0, records.size() == first ? 1 : records.back().records + 1});
  }
  records.resize(first);  // leaves out the records after the last entry
  std::mt19937_64 random(1);
  std::vector<Place> places(count);
  for (Place& place : places) place = records[random() % records.size()];
  return places;
}

uint64_t read_at_random(Worker& worker, const std::vector<Place>& places) {
  const int fd = open_or_die(worker.file);
  uint64_t sum = 0;
  for (const Place& place : places) {
    must(pread(fd, worker.block.data(), place.length, static_cast<off_t>(place.offset)) == place.length);
    const std::byte* at = worker.block.data();
    for (uint32_t i = 0; i < place.records; i++) {
      uint64_t length;
      std::memcpy(&length, at, 8);
      sum += crc_of(at, 8) ^ crc_of(at + 12, length);
      at += 16 + length;
    }
  }
  sink = sum;
  close(fd);
  return places.size();
}

}  // namespace feedline::bench
