#include "io/records/inflate.h"

#include <set>
#include <utility>
#include <vector>

#include "io/deflate.h"
#include "io/frames.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::io;
using namespace feedline::test;

namespace {

struct Outcome {
  std::string text;
  std::string error;  // empty: the stream ended without an error
};

Outcome run_all(Inflater& inflater, std::string_view input, size_t in_step, size_t out_step) {
  Outcome outcome;
  std::span<const std::byte> rest = bytes_of(input), in;
  std::vector<std::byte> buffer(out_step);
  for (;;) {
    if (in.empty()) {
      in = rest.first(std::min(in_step, rest.size()));
      rest = rest.subspan(in.size());
    }
    std::span<std::byte> out = buffer;
    const auto status = inflater.run(in, out, rest.empty());
    outcome.text += text_of(std::span(buffer).first(buffer.size() - out.size()));
    if (status == Inflater::Status::more) {
      REQUIRE((in.empty() || out.empty()));
      continue;
    }
    if (status == Inflater::Status::error) {
      outcome.error = inflater.message();
      CHECK_FALSE(outcome.error.empty());
      // A further call must give the same error.
      out = buffer;
      CHECK(inflater.run(in, out, true) == Inflater::Status::error);
    }
    return outcome;
  }
}

Outcome inflate_all(std::string_view input, Compression format, size_t in_step = 1000, size_t out_step = 1000) {
  Inflater inflater(format);
  return run_all(inflater, input, in_step, out_step);
}

// A seek point with its window.
struct SeekPlace {
  SeekPoint point;
  std::string window;
};

// Inflates all of `file`, and returns the places that were found on the way.
std::vector<SeekPlace> places_in(std::string_view file, Compression format, uint64_t spacing, size_t in_step = 1000,
                                 size_t out_step = 65536) {
  Inflater inflater(format);
  std::vector<SeekPlace> places;
  inflater.find_seek_points(spacing, [&](const SeekPoint& point, std::span<const std::byte> window) {
    places.push_back({point, std::string(text_of(window))});
    return size_t{0};
  });
  run_all(inflater, file, in_step, out_step);
  return places;
}

Outcome inflate_from(const SeekPlace& place, std::string_view file, Compression format, size_t in_step = 1000,
                     size_t out_step = 65536) {
  Inflater inflater(format, place.point, bytes_of(place.window));
  return run_all(inflater, file.substr(std::min<size_t>(file.size(), place.point.bit / 8)), in_step, out_step);
}

// Checks places of a file that inflates to `text`: that they lie `spacing` apart, that they have the right windows, and
// that the rest of the file can be inflated from each of them.
void check_places(const std::vector<SeekPlace>& places, std::string_view text, std::string_view file,
                  Compression format, uint64_t spacing) {
  uint64_t least = spacing;
  for (const SeekPlace& place : places) {
    const SeekPoint& point = place.point;
    INFO(point.offset << " " << point.bit << " " << point.member_size);
    CHECK(point.offset >= least);
    least = point.offset + spacing;
    REQUIRE(point.bit < 8 * file.size());
    REQUIRE(point.offset <= text.size());
    REQUIRE(point.member_size <= point.offset);
    const size_t window = std::min<uint64_t>(deflate_window, point.member_size);
    CHECK((place.window == text.substr(point.offset - window, window)));
    const Outcome rest = inflate_from(place, file, format);
    CHECK(rest.error.empty());
    CHECK((rest.text == text.substr(point.offset)));
  }
}

std::string some_text(size_t size) {
  std::mt19937 random(1);
  std::string text;
  while (text.size() < size) text += "word" + std::to_string(random() % 1000) + random_text(3, random);
  return text;
}

}  // namespace

TEST_CASE("streams of every kind, cut anywhere") {
  const std::string text = some_text(20'000);
  for (const int level : {0, 1, 6, 9})
    for (const Compression format : {Compression::gzip, Compression::zlib}) {
      const std::string stream = deflated(text, format == Compression::gzip ? 31 : 15, level);
      for (const size_t in_step : {size_t{1}, size_t{7}, size_t{4096}, stream.size()})
        for (const size_t out_step : {size_t{1}, size_t{13}, size_t{65536}}) {
          const Outcome outcome = inflate_all(stream, format, in_step, out_step);
          CHECK(outcome.error.empty());
          CHECK((outcome.text == text));
        }
    }
}

TEST_CASE("members follow one another, also empty ones") {
  const std::string a = some_text(3000), b = some_text(70'000);
  const std::string file = gzipped("") + gzipped(a) + gzipped("") + gzipped("") + gzipped(b) + gzipped("");
  for (const size_t in_step : {size_t{1}, size_t{100}, file.size()}) {
    const Outcome outcome = inflate_all(file, Compression::gzip, in_step);
    CHECK(outcome.error.empty());
    CHECK((outcome.text == a + b));
  }
}

TEST_CASE("a header may have every field") {
  std::string plain = gzipped("text");
  const auto with = [&](char flags, const std::string& fields) {
    std::string file = plain.substr(0, 3) + flags + plain.substr(4, 6) + fields;
    if (flags & 2)
      file += little_endian(
          static_cast<uint16_t>(crc32(0, reinterpret_cast<const Bytef*>(file.data()), static_cast<uInt>(file.size()))));
    return file + plain.substr(10);
  };
  const std::string extra = little_endian(uint16_t{5}) + "extra", name("name\0", 5), comment("comment\0", 8);
  for (const size_t in_step : {size_t{1}, size_t{1000}}) {
    for (const std::string& file :
         {with(0, ""), with(1, ""), with(2, ""), with(4, extra), with(8, name), with(16, comment),
          with(30, extra + name + comment), with(4, std::string(2, '\0')), with(26, name + comment)}) {
      const Outcome outcome = inflate_all(file, Compression::gzip, in_step);
      CHECK(outcome.error.empty());
      CHECK(outcome.text == "text");
    }
    std::string wrong = with(30, extra + name + comment);  // its checksum is of what nobody uses
    wrong[14] ^= 1;
    CHECK(inflate_all(wrong, Compression::gzip, in_step).error.empty());
    CHECK(inflate_all(wrong, Compression::gzip, in_step).text == "text");
    CHECK(inflate_all(with(32, ""), Compression::gzip, in_step).error.find("reserved") != std::string::npos);
  }
}

TEST_CASE("every cut is found, and what came before it is put out") {
  const std::string text = some_text(2000);
  for (const Compression format : {Compression::gzip, Compression::zlib}) {
    const std::string stream = format == Compression::gzip ? gzipped(text) : zlibbed(text);
    for (size_t cut = 1; cut < stream.size(); cut++) {
      const Outcome outcome = inflate_all(stream.substr(0, cut), format);
      REQUIRE(outcome.error.find("cut short") != std::string::npos);
      REQUIRE((text.compare(0, outcome.text.size(), outcome.text) == 0));
    }
    CHECK(inflate_all(stream.substr(0, stream.size() - 1), format).text.size() == text.size());
  }
  const std::string two = gzipped(text) + gzipped(text);
  CHECK(inflate_all(two.substr(0, gzipped(text).size() + 5), Compression::gzip).error.find("cut short") !=
        std::string::npos);
}

TEST_CASE("nothing is a whole stream of nothing") {
  for (const Compression format : {Compression::gzip, Compression::zlib}) {
    const Outcome outcome = inflate_all("", format);
    CHECK(outcome.error.empty());
    CHECK(outcome.text.empty());
  }
}

TEST_CASE("the checksums of the trailer are verified, and bytes after it are refused") {
  const std::string text = some_text(2000), gzip = gzipped(text), zlib = zlibbed(text);
  const auto changed = [](std::string stream, size_t from_end) {
    stream[stream.size() - from_end] ^= 1;
    return stream;
  };
  CHECK(inflate_all(changed(gzip, 8), Compression::gzip).error.find("CRC32") != std::string::npos);
  CHECK(inflate_all(changed(gzip, 4), Compression::gzip).error.find("bytes, but its trailer says") !=
        std::string::npos);
  CHECK(inflate_all(changed(gzip, 1), Compression::gzip).error.find("bytes, but its trailer says") !=
        std::string::npos);
  CHECK(inflate_all(changed(zlib, 4), Compression::zlib).error.find("Adler32") != std::string::npos);
  const std::string zeros(1000, '\0');
  for (const std::string& extra : {std::string("x"), zeros + "x", std::string("\x1f"), std::string("\x1f\x8b")}) {
    INFO(extra.size());
    CHECK_FALSE(inflate_all(gzip + extra, Compression::gzip).error.empty());
    CHECK((inflate_all(gzip + extra, Compression::gzip).text == text));
    CHECK(inflate_all(zlib + extra, Compression::zlib).error.find("after the end") != std::string::npos);
  }
  // Zeros up to a block of a disk or a tape belong to no member; another one may follow them.
  for (const size_t step : {size_t{1}, size_t{1000}})
    for (const size_t padding : {1, 7, 8, 9, 1000}) {
      INFO(padding);
      CHECK(inflate_all(gzip + zeros.substr(0, padding), Compression::gzip, step).error.empty());
      const Outcome two = inflate_all(gzip + zeros.substr(0, padding) + gzip, Compression::gzip, step);
      CHECK(two.error.empty());
      CHECK((two.text == text + text));
    }
  CHECK_FALSE(inflate_all(zeros + gzip, Compression::gzip).error.empty());
  CHECK(inflate_all(zlib + zeros, Compression::zlib).error.find("after the end") != std::string::npos);
  CHECK(inflate_all(zlib + zlib, Compression::zlib).error.find("after the end") != std::string::npos);
}

TEST_CASE("other formats, and a preset dictionary") {
  const std::string text = some_text(2000);
  CHECK(inflate_all(zlibbed(text), Compression::gzip).error.find("not a gzip file") != std::string::npos);
  CHECK(inflate_all(gzipped(text), Compression::zlib).error.find("not a zlib") != std::string::npos);
  CHECK(inflate_all(deflated(text, -15), Compression::zlib).error.find("not a zlib") != std::string::npos);
  CHECK(inflate_all(deflated(text, 15, 6, "word1word2"), Compression::zlib).error.find("dictionary") !=
        std::string::npos);
}

TEST_CASE("a mixture of a thousand to one") {
  const std::string text(20'000'000, 'x');
  const std::string stream = gzipped(text);
  CHECK(stream.size() < text.size() / 900);
  const Outcome outcome = inflate_all(stream, Compression::gzip, 100, 10'000);
  CHECK(outcome.error.empty());
  CHECK((outcome.text == text));
}

TEST_CASE("stored blocks are told from codes") {
  std::mt19937 random(1);
  const auto stored = [](const std::string& stream) {
    Inflater inflater(Compression::gzip);
    std::vector<std::byte> buffer(100'000);
    std::span<std::byte> out = buffer;
    auto in = bytes_of(stream);
    CHECK(inflater.run(in, out, true) == Inflater::Status::end);
    return inflater.stored();
  };
  CHECK(stored(deflated(some_text(5000), 31, 0)));
  CHECK_FALSE(stored(deflated(some_text(5000), 31, 6)));
}

TEST_CASE("the rest of a stream is inflated from each seek point") {
  const std::string text = some_text(300'000);
  constexpr uint64_t spacing = 40'000;
  const auto check = [&](Compression format, int level, int strategy) {
    INFO(level << " " << strategy);
    const std::string file = deflated(text, format == Compression::gzip ? 31 : 15, level, {}, strategy);
    const std::vector<SeekPlace> places = places_in(file, format, spacing);
    CHECK(places.size() >= 2);
    check_places(places, text, file, format, spacing);
  };
  for (const Compression format : {Compression::gzip, Compression::zlib}) {
    for (int level = 0; level <= 9; level++) check(format, level, Z_DEFAULT_STRATEGY);
    for (const int strategy : {Z_FILTERED, Z_HUFFMAN_ONLY, Z_RLE}) check(format, 6, strategy);
  }
}

TEST_CASE("seek points are found and used whatever the pieces of the stream are") {
  const std::string text = some_text(120'000);
  constexpr uint64_t spacing = 20'000;
  constexpr auto gzip = Compression::gzip;
  for (const int level : {0, 6}) {
    const std::string file = deflated(text, 31, level);
    for (const size_t in_step : {size_t{1}, size_t{7}, size_t{63}, size_t{1000}, file.size()}) {
      INFO(level << " " << in_step);
      const std::vector<SeekPlace> places = places_in(file, gzip, spacing, in_step);
      // The first call inflates 64 KiB if it is given as much, and the second of two stored blocks begins in them.
      CHECK((places.size() >= 1 || (level == 0 && in_step == file.size())));
      check_places(places, text, file, gzip, spacing);
    }
    const std::vector<SeekPlace> places = places_in(file, gzip, spacing);
    REQUIRE(places.size() >= 1);
    for (const auto& [in_step, out_step] :
         {std::pair(1, 65536), std::pair(1, 1), std::pair(1000, 1), std::pair(63, 500)}) {
      INFO(level << " " << in_step << " " << out_step);
      const auto in = static_cast<size_t>(in_step), out = static_cast<size_t>(out_step);
      // With little room the inflater may be inside a block before it has given out what comes before the block, so
      // fewer places are found.
      check_places(places_in(file, gzip, spacing, in, out), text, file, gzip, spacing);
      const Outcome rest = inflate_from(places.front(), file, gzip, in, out);
      CHECK(rest.error.empty());
      CHECK((rest.text == text.substr(places.front().point.offset)));
    }
  }
}

TEST_CASE("seek points lie in every member, and the members after them follow") {
  std::string text, file;
  std::mt19937 random(5);
  size_t member = 0;
  for (const size_t size : {0, 70'000, 3, 0, 0, 40'000, 150'000, 1, 90'000, 0}) {
    const std::string part = some_text(size + random() % 10);
    text += part;
    file += deflated(part, 31, static_cast<int>(member++ * 3 % 10));
    if (member % 3 == 0) file += std::string(member, '\0');
  }
  std::set<uint64_t> members;  // where the members begin in which there are places
  for (const uint64_t spacing : {100, 10'000, 100'000}) {
    const std::vector<SeekPlace> places = places_in(file, Compression::gzip, spacing);
    check_places(places, text, file, Compression::gzip, spacing);
    for (const SeekPlace& place : places) members.insert(place.point.offset - place.point.member_size);
  }
  CHECK(members.size() >= 3);
}

TEST_CASE("seek points lie where a long stream allows it") {
  const std::string text = some_text(3'000'000);
  // A block has up to 64 KiB here, and a call inflates up to 256 KiB before the next point is looked for.
  constexpr uint64_t spacing = 200'000, slack = 400'000;
  for (const int level : {0, 1, 6}) {
    INFO(level);
    const std::string file = deflated(text, 31, level);
    uint64_t before = 0;
    for (const SeekPlace& place : places_in(file, Compression::gzip, spacing, 256 << 10, 256 << 10))
      CHECK(place.point.offset - std::exchange(before, place.point.offset) < spacing + slack);
    CHECK(text.size() - before < spacing + slack);
  }
  // Blocks with fixed codes have headers of three bits, in which an input hardly ever ends.
  const std::string some = text.substr(0, 600'000), fixed = deflated(some, 31, 6, {}, Z_FIXED);
  const std::vector<SeekPlace> places = places_in(fixed, Compression::gzip, spacing);
  CHECK(places.size() <= 1);
  check_places(places, some, fixed, Compression::gzip, spacing);
}

TEST_CASE("a stream that was cut short has no seek point at its end") {
  const std::string text = some_text(1200);
  for (const int how : {Z_SYNC_FLUSH, Z_FULL_FLUSH}) {
    const std::string file = deflated_in_parts(text, 31, 200, 6, how);
    size_t found = 0;
    for (size_t cut = 0; cut <= file.size(); cut++)
      for (const size_t in_step : {size_t{1}, file.size()})
        for (const SeekPlace& place :
             places_in(std::string_view(file).substr(0, cut), Compression::gzip, 150, in_step)) {
          INFO(cut << " " << place.point.bit);
          REQUIRE(place.point.bit < 8 * cut);
          found++;
        }
    CHECK(found > 0);
    check_places(places_in(file, Compression::gzip, 150, 1), text, file, Compression::gzip, 150);
  }
}

TEST_CASE("a wrong seek point gives an error, and never wrong bytes as right ones") {
  const std::string text = some_text(200'000);
  std::mt19937 random(3);
  for (const Compression format : {Compression::gzip, Compression::zlib})
    for (const int level : {0, 1, 6}) {
      const std::string file = deflated(text, format == Compression::gzip ? 31 : 15, level);
      const std::vector<SeekPlace> places = places_in(file, format, 30'000);
      REQUIRE(places.size() >= 1);
      size_t errors = 0;
      const auto try_place = [&](const SeekPlace& wrong) {
        const Outcome outcome = inflate_from(wrong, file, format);
        if (outcome.error.empty()) CHECK((outcome.text == text.substr(wrong.point.offset)));
        errors += !outcome.error.empty();
      };
      for (const SeekPlace& place : places) {
        for (const size_t left : {0, 1, 1000})
          try_place({place.point, place.window.substr(place.window.size() - std::min(left, place.window.size()))});
        for (int i = 0; i < 20; i++) {
          SeekPlace wrong = place;
          for (int flips = 0; flips < 200; flips++) wrong.window[random() % wrong.window.size()] ^= 1;
          try_place(wrong);
          wrong = place;
          wrong.point.bit = random() % (8 * file.size());
          try_place(wrong);
          wrong = place;
          wrong.point.bit += 1 + random() % 16;
          try_place(wrong);
        }
        SeekPlace wrong = place;
        wrong.point.check ^= 4;
        CHECK(inflate_from(wrong, file, format).error.find(format == Compression::gzip ? "CRC32" : "Adler32") !=
              std::string::npos);
        if (format == Compression::zlib) continue;
        wrong = place;
        wrong.point.member_size++;
        CHECK(inflate_from(wrong, file, format).error.find("bytes, but its trailer says") != std::string::npos);
      }
      CHECK(errors > 10 * places.size());
    }
}

TEST_CASE("the content says what it is") {
  const auto of = [](std::string_view text) {
    return detect_compression(bytes_of(text).first(std::min<size_t>(text.size(), 18)));
  };
  for (const size_t size : {0, 1, 100, 100'000}) {
    const std::string text = some_text(size);
    for (const int level : {0, 1, 6, 9}) {
      CHECK(of(deflated(text, 31, level)) == Compression::gzip);
      CHECK(of(deflated(text, 15, level)) == Compression::zlib);
    }
    CHECK(of(frame(text)) == Compression::none);
  }
  // Lengths that look like the first bytes of the compressed formats.
  CHECK(of(frame_header(0x9c78) + std::string(10, 'x')) == Compression::none);
  CHECK(of(frame_header(0x088b1f) + std::string(10, 'x')) == Compression::none);
  std::string damaged = frame_header(0x9c78) + std::string(10, 'x');
  damaged[9] ^= 1;
  CHECK(of(damaged) == Compression::none);
  for (const char* text : {"", "x", "\x1f", "\x1f\x8b", "plain text that is no data", "\x89PNG\r\n\x1a\n"})
    CHECK(of(text) == Compression::none);
}
