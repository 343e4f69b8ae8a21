#include "io/records/inflate.h"

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

Outcome inflate_all(std::string_view input, Compression format, size_t in_step = 1000, size_t out_step = 1000) {
  Inflater inflater(format);
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
