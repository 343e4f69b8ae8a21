#include "io/records/record_scanner.h"

#include <array>
#include <vector>

#include "io/frames.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::io;
using namespace feedline::test;

namespace {

constexpr uint64_t limit = 1 << 20;

template <Crc32cPath path>
struct By {
  static constexpr Crc32cPath value = path;
};

}  // namespace

TEMPLATE_TEST_CASE("the scanner", "", By<Crc32cPath::table>, By<Crc32cPath::hardware>, By<Crc32cPath::three_way>,
                   By<Crc32cPath::folding>) {
  using Stop = RecordScanner::Stop;
  constexpr Crc32cPath path = TestType::value;
  if (!supported(path)) {
    WARN("this CPU lacks the path");
    return;
  }
  std::array<RecordView, 8> out;
  size_t count = 0;

  SECTION("hands out every record, so many at a time as fit") {
    std::mt19937 random(1);
    std::vector<std::string> payloads;
    std::string file;
    for (int i = 0; i < 100; i++) {
      payloads.push_back(random_text(i % 7 == 0 ? 0 : random() % 900, random));
      file += frame(payloads.back());
    }
    RecordScanner scanner(bytes_of(file), limit);
    size_t seen = 0;
    for (Stop stop = Stop::full; stop == Stop::full;) {
      const size_t before = scanner.position();
      stop = scanner.next(path, out, count);
      REQUIRE(stop == (seen + count == 100 ? (count < out.size() ? Stop::end : Stop::full) : Stop::full));
      size_t bytes = 0;
      for (size_t i = 0; i < count; i++) {
        CHECK(text_of({out[i].data, out[i].size}) == payloads[seen]);
        CHECK(out[i].stored_crc == mask_crc(crc32c(bytes_of(payloads[seen++]))));
        bytes += out[i].size + frame_bytes;
      }
      CHECK(scanner.position() == before + bytes);
    }
    CHECK(seen == 100);
    CHECK(scanner.position() == file.size());
  }

  SECTION("nothing is a whole file") {
    RecordScanner scanner({}, limit);
    CHECK(scanner.next(path, out, count) == Stop::end);
    CHECK(count == 0);
  }

  SECTION("every cut of a record is incomplete, and the records before it are there") {
    const std::string first = frame("first"), second = frame("second record");
    for (size_t cut = 1; cut < second.size(); cut++) {
      const std::string file = first + second.substr(0, cut);
      RecordScanner scanner(bytes_of(file), limit);
      REQUIRE(scanner.next(path, out, count) == Stop::incomplete);
      CHECK(count == 1);
      CHECK(scanner.position() == first.size());
      CHECK(scanner.wanted() == (cut < header_bytes ? 0 : second.size()));
    }
  }

  SECTION("every flipped bit is found") {
    // Each payload has at least 8 bytes, so that code paths that check several records at once do so.
    const std::string first = frame("the first"), second = frame("the second record, of 39 bytes in all");
    for (size_t bit = 0; bit < 8 * second.size(); bit++) {
      std::string damaged = second;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      const std::string file = first + damaged + first;
      RecordScanner scanner(bytes_of(file), limit);
      REQUIRE(scanner.next(path, out, count) == Stop::error);
      CHECK(count == 1);
      CHECK(scanner.position() == first.size());
      CHECK(scanner.damage() == (bit < 8 * header_bytes ? Category::bad_length_crc : Category::bad_data_crc));
      scanner.seek(first.size() + second.size());
      CHECK(scanner.next(path, out, count) == Stop::end);
      CHECK(count == 1);
    }
  }

  SECTION("a length is bounded before anything else") {
    for (const uint64_t length : {limit + 1, uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{1} << 63, ~uint64_t{0},
                                  ~uint64_t{0} - 3, ~uint64_t{0} - 15, ~uint64_t{0} - 16}) {
      const std::string file = frame_header(length) + "some bytes after it";
      RecordScanner scanner(bytes_of(file), limit);
      REQUIRE(scanner.next(path, out, count) == Stop::error);
      CHECK(scanner.damage() == Category::record_too_large);
      CHECK(scanner.position() == 0);
    }
    const std::string largest = frame_header(limit);
    RecordScanner scanner(bytes_of(largest), limit);
    CHECK(scanner.next(path, out, count) == Stop::incomplete);
    CHECK(scanner.wanted() == limit + frame_bytes);
  }
}
