// The windows of seek points, as an index keeps them.
#include "io/index/seek_points.h"

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "io/deflate.h"
#include "io/frames.h"
#include "io/index/index.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::io;
using namespace feedline::test;

namespace {

std::string words(size_t size, std::mt19937& random) {
  std::string text;
  while (text.size() < size) text += "word " + std::to_string(random() % 300);
  return text.substr(0, size);
}

std::array<std::byte, deflate_window> room;

bool is_window(std::span<const std::byte> deflated, size_t size) { return inflate_window(deflated, size, room); }

}  // namespace

TEST_CASE("the windows of a list of seek points come back") {
  std::mt19937 random(1);
  std::vector<std::string> windows = {"",
                                      "x",
                                      words(100, random),
                                      words(deflate_window, random),
                                      random_text(deflate_window, random),
                                      std::string(deflate_window, '\0'),
                                      ""};
  for (int i = 0; i < 20; i++)
    windows.push_back(i % 2 == 0 ? words(random() % deflate_window, random) : random_text(random() % 5000, random));
  SeekPointList list;
  uint64_t offset = 0;
  for (const std::string& window : windows)
    list.add({.offset = ++offset, .bit = offset * 8, .member_size = window.size(), .check = 7}, bytes_of(window));
  FileIndex index;
  index.seek_points = list.take_entries();
  index.windows = list.take_windows();
  REQUIRE(index.seek_points.size() == windows.size());
  CHECK(index.seek_points.back().window_end == index.windows.size());
  CHECK(index.seek_points.memory_bytes() == windows.size() * sizeof(SeekEntry));
  CHECK(index.windows.memory_bytes() == index.windows.size());
  for (size_t number = 1; number <= windows.size(); number++) {
    INFO(number);
    const std::string& window = windows[number - 1];
    CHECK(index.seek_points[number - 1].point.offset == number);
    CHECK(window_size(index.seek_points[number - 1].point) == window.size());
    CHECK(index.window_of(number).size() <= most_window_bytes);
    REQUIRE(is_window(index.window_of(number), window.size()));
    CHECK((text_of(std::span(room).first(window.size())) == window));
    for (const size_t wrong : {window.size() + 1, window.size() + 1000, deflate_window + 1})
      CHECK_FALSE(is_window(index.window_of(number), wrong));
    if (!window.empty())
      for (const size_t wrong : {size_t{0}, window.size() - 1, window.size() / 2})
        CHECK((wrong == window.size() || !is_window(index.window_of(number), wrong)));
  }
  CHECK(list.take_entries().empty());
  CHECK(list.take_windows().empty());
}

TEST_CASE("the point before an offset is found") {
  FileIndex index;
  CHECK(index.seek_point_before(0) == 0);
  CHECK(index.seek_point_before(UINT64_MAX) == 0);
  std::vector<SeekEntry> entries;
  for (const uint64_t offset : {100, 200, 200, 300}) entries.push_back({{.offset = offset}, 0});
  index.seek_points = entries;
  for (const auto& [offset, number] : std::vector<std::pair<uint64_t, size_t>>{
           {0, 0}, {99, 0}, {100, 1}, {199, 1}, {200, 3}, {299, 3}, {300, 4}, {UINT64_MAX, 4}})
    CHECK(index.seek_point_before(offset) == number);
}

TEST_CASE("points are a group of strides apart, and at least a MiB") {
  CHECK(seek_spacing(1) == 1 << 20);
  CHECK(seek_spacing(default_stride) == 1 << 20);
  CHECK(seek_spacing(2 * default_stride) == 2 << 20);
  CHECK(seek_spacing(uint64_t{1} << 40) == uint64_t{1} << 46);
}

TEST_CASE("what is no window of its size is refused, and nothing outside of the room is written") {
  std::mt19937 random(2);
  const std::string window = words(20'000, random), deflated_window = deflated(window, -15);
  REQUIRE(is_window(bytes_of(deflated_window), window.size()));
  for (size_t size = 0; size < deflated_window.size(); size += 1 + size / 50)
    CHECK_FALSE(is_window(bytes_of(deflated_window).first(size), window.size()));
  for (int i = 0; i < 2000; i++) {  // may be believed: a feed then inflates to an error, or to wrong records
    std::string wrong = deflated_window;
    wrong[random() % wrong.size()] ^= static_cast<char>(1 << random() % 8);
    is_window(bytes_of(wrong), window.size());
  }
  for (int i = 0; i < 2000; i++) CHECK_FALSE(is_window(bytes_of(random_text(random() % 300, random)), deflate_window));
  for (const int level : {0, 6}) {  // more than a window
    const std::string large = deflated(std::string(deflate_window + 1, 'x'), -15, level);
    for (const size_t size : {deflate_window, deflate_window + 1}) CHECK_FALSE(is_window(bytes_of(large), size));
  }
}
