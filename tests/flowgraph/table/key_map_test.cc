// Names of rows: what a file of names says, and what is found by them.
#include "flowgraph/table/key_map.h"

#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <random>
#include <unordered_map>

#include "base/utf8.h"
#include "feedline/error.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::flow;
using test::TempDir;

namespace {

KeyMap::Key key(std::string_view text) { return std::as_bytes(std::span(text)); }

KeyMap map_of(const TempDir& dir, const std::string& text, uint64_t rows) {
  return KeyMap(io::InputFile(dir.write("names.txt", text)), rows);
}

int64_t find(const KeyMap& map, std::string_view name) {
  const KeyMap::Key wanted = key(name);
  int64_t row = -2;
  map.find({&wanted, 1}, {&row, 1});
  return row;
}

std::string refusal(const TempDir& dir, const std::string& text, uint64_t rows) {
  try {
    map_of(dir, text, rows);
  } catch (const Error& error) {
    CHECK(error.category() == Category::bad_pipeline);
    CHECK(error.place().file == dir.file("names.txt"));
    return error.message();
  }
  return "no error";
}

}  // namespace

TEST_CASE("the name of row i is line i + 1, whatever ends the lines") {
  const TempDir dir;
  for (const std::string end : {"\n", "\r\n"})
    for (const bool ends : {true, false}) {
      const KeyMap map = map_of(dir, "b" + end + "a" + end + "long name \xc3\xa9" + (ends ? end : ""), 3);
      CHECK(find(map, "b") == 0);
      CHECK(find(map, "a") == 1);
      CHECK(find(map, "long name \xc3\xa9") == 2);
      for (const char* other : {"", "c", "a ", "long name", "b\n", "a\r"}) CHECK(find(map, other) == -1);
    }
  CHECK(find(map_of(dir, "a\n\nb\n", 3), "") == 1);
  CHECK(find(map_of(dir, "\n", 1), "") == 0);
  CHECK(find(map_of(dir, "", 0), "") == -1);
}

TEST_CASE("lines are counted as they are read, wherever the file ends") {
  const TempDir dir;
  const auto lines = [&](const std::string& text) { return KeyMap::count_lines(io::InputFile(dir.write("c", text))); };
  CHECK(lines("") == 0);
  CHECK(lines("\n") == 1);
  CHECK(lines("a") == 1);
  CHECK(lines("a\n") == 1);
  CHECK(lines("a\n\nb") == 3);
  CHECK(lines("a\r\nb\r\n") == 2);
  const std::string long_line(uint64_t{3} << 19, 'x');  // longer than what is read at a time
  CHECK(lines(long_line) == 1);
  CHECK(lines(long_line + '\n' + long_line + '\n') == 2);
  CHECK(lines(long_line + '\n' + long_line) == 2);
  CHECK(lines(std::string(1 << 20, '\n')) == 1 << 20);
  CHECK(lines(std::string(1 << 20, '\n') + 'x') == (1 << 20) + 1);
  const io::InputFile removed(dir.write("r", "a\nb\n"));
  dir.write("r", "");
  CHECK_THROWS_WITH(KeyMap::count_lines(removed), Catch::Contains("shorter"));
  CHECK_THROWS_WITH(KeyMap(removed, 2), Catch::Contains("shorter"));
}

TEST_CASE("as many lines as rows, and no name twice") {
  const TempDir dir;
  const std::string advice = "; write the name of each row on its own line";
  CHECK(refusal(dir, "a\nb\n", 3) == "the file has 2 lines, but the table has 3 rows" + advice);
  CHECK(refusal(dir, "a\nb\nc", 2) == "the file has 3 lines, but the table has 2 rows" + advice);
  CHECK(refusal(dir, "", 1) == "the file has 0 lines, but the table has 1 row" + advice);
  CHECK(refusal(dir, "a\nb\nc\nb", 4) == "the name 'b' is on line 2 and on line 4; write each name only once");
  CHECK(refusal(dir, "\nx\n\n", 3) == "the name '' is on line 1 and on line 3; write each name only once");
  CHECK(refusal(dir, "a\r\na\n", 2) == "the name 'a' is on line 1 and on line 2; write each name only once");
  CHECK_THROWS_WITH(map_of(dir, "a", uint64_t{1} << 40), Catch::Contains("look the rows up by number"));
}

TEST_CASE("a file that is written to while it is open is an error") {
  const TempDir dir;
  const std::string path = dir.write("names.txt", "a\nb\n");
  const auto before = std::filesystem::last_write_time(path);
  const io::InputFile file(path);
  dir.write("names.txt", "a\nc\n");
  std::filesystem::last_write_time(path, before + std::chrono::seconds(1));
  CHECK_THROWS_WITH(KeyMap(file, 2), Catch::Contains("names.txt: has changed since it was opened"));
}

TEST_CASE("a file that begins with a byte order mark is refused") {
  const TempDir dir;
  const std::string why =
      "the file begins with a byte order mark, which would belong to the first name; save it as UTF-8 without this "
      "mark";
  const std::string mark(byte_order_mark);
  CHECK(refusal(dir, mark + "a\nb\n", 2) == why);
  CHECK(refusal(dir, mark, 1) == why);
  CHECK(find(map_of(dir, "a\n" + mark + "\n\xEF\xBB", 3), mark) == 1);
}

TEST_CASE("many names, found many at a time") {
  const TempDir dir;
  std::mt19937_64 random(5);
  std::vector<std::string> names;
  std::unordered_map<std::string, int64_t> wanted;
  std::string text;
  while (names.size() < 20000) {
    std::string name = std::to_string(random() % 1000000);
    if (!wanted.emplace(name, static_cast<int64_t>(names.size())).second) continue;
    text += name + '\n';
    names.push_back(std::move(name));
  }
  const KeyMap map = map_of(dir, text, names.size());
  CHECK(map.digest() == map_of(dir, text, names.size()).digest());
  std::swap(text[0], text[1]);
  CHECK(map.digest() != map_of(dir, text, names.size()).digest());
  for (int round = 0; round < 50; round++) {
    std::vector<std::string> asked;
    for (int i = 0; i < 256; i++) asked.push_back(std::to_string(random() % 1000000));
    for (size_t i = 0; i < 256; i += 2) asked[i] = names[random() % names.size()];
    std::vector<KeyMap::Key> keys;
    for (const std::string& name : asked) keys.push_back(key(name));
    std::array<int64_t, 256> rows;
    map.find(keys, rows);
    for (size_t i = 0; i < 256; i++) {
      const auto found = wanted.find(asked[i]);
      REQUIRE(rows[i] == (found == wanted.end() ? -1 : found->second));
    }
  }
}

TEST_CASE("what a map takes is told before it is made") {
  CHECK(KeyMap::memory_bytes(0, 0) == 8 + 8);
  CHECK(KeyMap::memory_bytes(100, 4) == 100 + 5 * 8 + 16 * 8);
}

TEST_CASE("keys are quoted for people") {
  CHECK(quoted(key("img_1.jpg")) == "'img_1.jpg'");
  CHECK(quoted(key("caf\xc3\xa9")) == "'caf\xc3\xa9'");
  CHECK(quoted(key("\xff\n'")) == "'\\xff\\x0a\\x27'");
  CHECK(quoted(key(std::string(300, 'x'))) == "'" + std::string(200, 'x') + "'... (300 bytes)");
}

TEST_CASE("a long name is cut between two characters") {
  std::string name = "x", begin = "'x";
  for (int i = 0; i < 100; i++) name += "\xc3\xa9";
  for (int i = 0; i < 99; i++) begin += "\xc3\xa9";
  CHECK(quoted(key(name)) == begin + "'... (201 bytes)");
}
