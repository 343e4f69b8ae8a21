// Tables: their headers, their rows, what is refused, and what happens to files that change or cannot be read.
#include "flowgraph/table/table.h"

#include <array>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "support/catch.h"
#include "support/npy.h"
#include "support/skip.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::flow;
using test::in_memory;
using test::npy;
using test::TempDir;

namespace {

constexpr uint64_t no_limit = uint64_t{1} << 40;

std::string refusal(const TempDir& dir, const std::string& content) {
  try {
    Table({dir.write("refused.npy", content), "", false});
  } catch (const Error& error) {
    CHECK(error.category() == Category::bad_pipeline);
    CHECK(error.place().file == dir.file("refused.npy"));
    return error.message();
  }
  return "no error";
}

std::string row_of(const Table& table, uint64_t row) {
  std::vector<std::byte> scratch(table.scratch_bytes() + Table::scratch_alignment);
  void* begin = scratch.data();
  size_t space = scratch.size();
  std::align(Table::scratch_alignment, table.scratch_bytes(), begin, space);
  const auto wanted = static_cast<int64_t>(row);
  const std::byte* at = nullptr;
  table.read_ahead(row);
  table.read({&wanted, 1}, {static_cast<std::byte*>(begin), table.scratch_bytes()}, {&at, 1});
  return {reinterpret_cast<const char*>(at), table.row_bytes()};
}

}  // namespace

TEST_CASE("rows of every type and shape, read or resident") {
  const TempDir dir;
  const struct {
    const char *descr, *shape;
    DType dtype;
    Shape row;
    size_t bytes;
  } cases[] = {{"<f4", "(3, 2)", DType::float32, {2}, 8}, {"<f2", "(3, 2, 1, 2)", DType::float16, {2, 1, 2}, 8},
               {"|u1", "(3,)", DType::uint8, {}, 1},      {"|b1", "(3, 5)", DType::boolean, {5}, 5},
               {"<f8", "(3, 1)", DType::float64, {1}, 8}, {"<i8", "(3, 2)", DType::int64, {2}, 16},
               {"<i4", "(3,)", DType::int32, {}, 4},      {"<u2", "(3, 3)", DType::uint16, {3}, 6},
               {"=i2", "(3, 2L,)", DType::int16, {2}, 4}, {"|i1", "(3, 2)", DType::int8, {2}, 2},
               {"<u4", "(3, 1)", DType::uint32, {1}, 4},  {">u1", "(3, 2)", DType::uint8, {2}, 2}};
  for (const auto& c : cases)
    for (const int version : {1, 2, 3})
      for (const bool resident : {false, true}) {
        INFO(c.descr << " " << c.shape << ", version " << version);
        std::string elements;
        for (size_t i = 0; i < 3 * c.bytes; i++) elements += static_cast<char>(i * 7 + 1);
        Table table({dir.write("t.npy", npy(c.descr, c.shape, elements, "False", version)), "", resident});
        CHECK(table.spec().dtype == c.dtype);
        CHECK(table.spec().row_shape == c.row);
        CHECK(table.rows() == 3);
        REQUIRE(table.row_bytes() == c.bytes);
        table.open(no_limit);
        table.open(0);  // does nothing
        CHECK(table.memory_bytes() == (resident ? 3 * c.bytes : 0));
        for (uint64_t row = 0; row < 3; row++) CHECK(row_of(table, row) == elements.substr(row * c.bytes, c.bytes));
      }
}

TEST_CASE("what is no table is refused, with what to do") {
  const TempDir dir;
  const std::string eight(8, 'x');
  CHECK(refusal(dir, npy(">f4", "(2,)", eight)) == "its elements are big-endian ('>f4'); save array.astype('<f4')");
  CHECK(refusal(dir, npy("<c8", "(1,)", eight)) ==
        "its elements have the type '<c8'; save the array as float16 to float64, int8 to int64, uint8 to uint32, or "
        "bool");
  CHECK(refusal(dir, npy("<f4", "(1, 2)", eight, "True")) ==
        "is in Fortran order, column by column; save numpy.ascontiguousarray(array) instead");
  CHECK(refusal(dir, npy("<f4", "(0, 2)", "")) ==
        "the array has no rows, so nothing can be looked up; save an array that has rows");
  CHECK(refusal(dir, npy("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1, 2)", eight)) ==
        "its rows have 9 axes, but a tensor has at most 8; save an array with fewer axes");
  CHECK(refusal(dir, npy("<f4", "(3,)", eight)) ==
        "has 8 bytes of elements, but its header says 3 rows of 4 bytes each");
  CHECK(refusal(dir, npy("<f4", "(1,)", eight)) ==
        "has 8 bytes of elements, but its header says 1 rows of 4 bytes each");
  CHECK_THAT(refusal(dir, npy("<f4", "(1, 2147483648)", eight)), Catch::Contains("a row has more than 2 GiB"));
  CHECK(refusal(dir, "PK") == "is not an .npy file");
  CHECK_THROWS_WITH(Table({dir.file("none.npy"), "", false}), Catch::Contains("No such file"));
  CHECK_THROWS_WITH(Table({dir.path(), "", false}), Catch::Contains("not a regular file"));

  // However a header is changed, there is an answer or an error.
  const std::string good = npy("<f4", "(2,)", eight);
  for (size_t at = 0; at < 128; at++)
    for (const char c : {'\0', '9', '\'', '(', '\xff'}) {
      std::string changed = good;
      changed[at] = c;
      try {
        Table table({dir.write("changed.npy", changed), "", true});
        table.open(no_limit);
        CHECK(table.rows() * table.row_bytes() == 8);
      } catch (const Error&) {
      }
    }
}

TEST_CASE("a table with names says what it takes, and is refused if that is too much") {
  const TempDir dir;
  const std::string path = dir.write("t.npy", npy("<f4", "(3, 2)", in_memory<float>({1, 2, 3, 4, 5, 6})));
  const std::string names = dir.write("names.txt", "a\nb\nc\n");
  const uint64_t of_names = KeyMap::memory_bytes(6, 3);
  Table table({path, names, true});
  CHECK_THROWS_WITH(Table({path, names, true}).open(24 + of_names - 1),
                    Catch::Contains("leave out lookup.resident, or raise memory.limit"));
  CHECK_THROWS_WITH(Table({path, names, false}).open(of_names - 1), Catch::Contains("or look rows up by number"));
  CHECK_THROWS(table.open(of_names));
  CHECK_FALSE(table.is_open());
  table.open(24 + of_names);
  CHECK(table.memory_bytes() == 24 + of_names);
  CHECK(table.text() == "t.npy: 3 rows of FLOAT32 [2], 24 B, resident, by name");
  Table other({path, dir.write("others.txt", "a\nb\nd\n"), false});
  other.open(no_limit);
  CHECK(other.text() == "t.npy: 3 rows of FLOAT32 [2], 24 B, read through the page cache, by name");
  CHECK(other.digest() != table.digest());
}

TEST_CASE("a vocabulary has only names, as many as its file has lines") {
  const TempDir dir;
  const std::string names = dir.write("names.txt", "a\nb\r\nc");
  Table vocabulary({"", names});
  CHECK(vocabulary.spec().is_vocabulary());
  CHECK(vocabulary.spec().name() == "names.txt");
  const uint64_t bytes = KeyMap::memory_bytes(6, 3);
  CHECK_THROWS_WITH(vocabulary.open(bytes - 1), Catch::Contains("names.txt: the names take 102 B of memory, but "
                                                                "memory.limit is 101 B; raise memory.limit"));
  CHECK_FALSE(vocabulary.is_open());
  vocabulary.open(bytes);
  CHECK(vocabulary.is_open());
  CHECK(vocabulary.rows() == 3);
  CHECK(vocabulary.spec().rows == 3);
  CHECK(vocabulary.memory_bytes() == bytes);
  CHECK(vocabulary.text() == "names.txt: 3 names");
  const KeyMap::Key wanted = vocabulary.keys().name(1);
  CHECK(std::string(reinterpret_cast<const char*>(wanted.data()), wanted.size()) == "b");

  Table same({"", dir.write("same.txt", "a\nb\nc\n")}), other({"", dir.write("other.txt", "a\nc\nb\n")});
  same.open(no_limit);
  other.open(no_limit);
  CHECK(same.digest() == vocabulary.digest());
  CHECK(other.digest() != vocabulary.digest());

  const auto refused = [&](const std::string& content) {
    Table table({"", dir.write("refused.txt", content)});
    try {
      table.open(no_limit);
    } catch (const Error& error) {
      CHECK(error.category() == Category::bad_pipeline);
      CHECK(error.place().file == dir.file("refused.txt"));
      return error.message();
    }
    return std::string("no error");
  };
  CHECK(refused("") == "the file has 0 lines; a vocabulary has 1 to 2147483648 names, each on its own line");
  CHECK(refused("a\nb\na\n") == "the name 'a' is on line 1 and on line 3; write each name only once");
  const std::string advice = " is empty; remove it, or write a name there";
  CHECK(refused("\n") == "line 1" + advice);
  CHECK(refused("a\nb\n\n") == "line 3" + advice);
  CHECK(refused("a\r\n\r\nb") == "line 2" + advice);
  CHECK(refused(" \n") == "no error");
  CHECK_THROWS_WITH(Table({"", dir.file("none.txt")}).open(no_limit),
                    Catch::Contains("none.txt: vocabulary.keys_file: cannot be opened: No such file"));
}

TEST_CASE("a vocabulary whose text is larger than the memory is refused before it is read") {
  const TempDir dir;
  const std::string names = dir.write("names.txt", "a\n");
  std::filesystem::resize_file(names, uint64_t{1} << 40);  // with a hole; to read it would take minutes
  CHECK_THROWS_WITH(Table({"", names}).open(uint64_t{1} << 30),
                    Catch::Contains("names.txt: the names take 1 TiB of memory, but memory.limit is 1 GiB"));
}

TEST_CASE("a table whose file is replaced by one of another shape is refused") {
  const TempDir dir;
  const std::string path = dir.write("t.npy", npy("<f4", "(3, 2)", in_memory<float>({1, 2, 3, 4, 5, 6})));
  const TableSpec known = Table({path, "", false}).spec();
  CHECK(Table(known).spec() == known);
  dir.write("t.npy", npy("<f4", "(2, 3)", in_memory<float>({1, 2, 3, 4, 5, 6})));
  CHECK_THROWS_WITH(Table(known),
                    Catch::Contains("t.npy: has changed while the feed was made: it had 3 rows of FLOAT32 "
                                    "[2], and has 2 rows of FLOAT32 [3]"));
}

TEST_CASE("a table on devices: a row of zeros comes before the rows, on the host or only on GPUs") {
  const TempDir dir;
  const std::string path = dir.write("t.npy", npy("<f4", "(3, 2)", in_memory<float>({1, 2, 3, 4, 5, 6})));
  Table table({path, "", false, true});
  CHECK_THROWS_WITH(Table({path, "", false, true}).open(31), Catch::Contains("leave out lookup.on_device, or raise"));
  table.open(32);
  CHECK(table.memory_bytes() == 32);
  CHECK(table.spec().device_bytes() == 32);
  CHECK(table.text() == "t.npy: 3 rows of FLOAT32 [2], 24 B, resident, by number");
  CHECK_FALSE(table.reads_ahead());
  const auto arrived = [&](int64_t number) {
    std::vector<float> row(2);
    std::memcpy(row.data(), table.arrival_row(number), 8);
    return row;
  };
  CHECK(arrived(0) == std::vector<float>{0, 0});
  CHECK(arrived(Table::arrival_number(0)) == std::vector<float>{1, 2});
  CHECK(arrived(Table::arrival_number(2)) == std::vector<float>{5, 6});
  CHECK(row_of(table, 2) == in_memory<float>({5, 6}));

  Table away({path, "", false, true});
  away.open(0, {}, true);
  CHECK(away.memory_bytes() == 0);
  CHECK(away.text() == "t.npy: 3 rows of FLOAT32 [2], 24 B, resident on each GPU, by number");
  CHECK_FALSE(away.reads_ahead());
}

TEST_CASE("a file that changes, or that is cut short, is an error and never a signal") {
  const TempDir dir;
  const std::string path = dir.write("t.npy", npy("<f4", "(3000, 2)", std::string(24000, 'x')));
  Table table({path, "", false});
  table.open(no_limit);
  CHECK(row_of(table, 2999) == std::string(8, 'x'));
  std::filesystem::resize_file(path, 20000);
  CHECK_THROWS_WITH(row_of(table, 2999), Catch::Contains("has become shorter"));
  CHECK_THROWS_WITH(row_of(table, 0), Catch::Contains("has changed since it was opened"));
  CHECK_THROWS_WITH(Table({path, "", false}), Catch::Contains("19872 bytes of elements"));

  const std::string replaced = dir.write("r.npy", npy("<f4", "(1,)", "abcd"));
  Table kept({replaced, "", false});
  kept.open(no_limit);
  std::filesystem::rename(dir.write("new.npy", npy("<f4", "(1,)", "efgh")), replaced);
  CHECK(row_of(kept, 0) == "abcd");  // a renamed file is another one
}

TEST_CASE("names that are numbers: in the one way in which a number is written") {
  const TempDir dir;
  const auto open = [&](const std::string& names) {
    Table table({.path = "", .keys_path = dir.write("n.txt", names), .number_names = true});
    table.open(no_limit);
    return table.rows();
  };
  CHECK(open("0\n-9223372036854775808\r\n9223372036854775807\n-1\n10") == 5);
  for (const std::string wrong : {"", " 1", "1 ", "+1", "01", "-0", "-", "--1", "1.0", "1e3", "0x1", "a",
                                  "9223372036854775808", "-9223372036854775809", "00"}) {
    INFO(wrong);
    CHECK_THROWS_WITH(open("7\n" + wrong + "\n8\n"),
                      Catch::Contains("n.txt: line 2 is '" + wrong +
                                      "', but the feature is INT64; write a number of 64 bits there, in decimal digits "
                                      "without spaces, a plus sign or leading zeros, or declare the feature as BYTES"));
  }
  CHECK_THROWS_WITH(open("7\n8\n7\n"), Catch::Contains("the name '7' is on line 1 and on line 3"));
}

TEST_CASE("each system call that fails is an Error that names the file") {
  const TempDir dir;
  const std::string path = dir.write("t.npy", npy("<f4", "(3, 2)", std::string(24, 'x')));
  const std::string names = dir.write("names.txt", "a\nb\nc\n");
  const auto use = [&](const TableSpec& spec) {
    Table table(spec);
    table.open(no_limit);
    for (uint64_t row = 0; row < 3 && !spec.is_vocabulary(); row++)
      if (row_of(table, row) != std::string(8, 'x')) throw std::logic_error("other bytes");
  };
  int failed = 0;
  for (SyscallHook* hook : SyscallHook::all())
    for (const TableSpec& spec : {TableSpec{path, names, false}, TableSpec{path, names, true}, TableSpec{"", names}})
      for (int64_t n = 1;; n++) {
        hook->fail_nth_call(n);
        try {
          use(spec);
        } catch (const Error& error) {
          INFO(hook->name());
          CHECK(error.category() == Category::io_error);
          if (std::string_view(hook->name()) != "mmap")
            CHECK((error.place().file == path || error.place().file == names));
          failed++;
        }
        const bool made_fewer = hook->pending();
        hook->fail_nth_call(0);
        if (made_fewer) break;
      }
  CHECK(failed > 12);
}

TEST_CASE("many rows at once: the same through the page cache, past it, and resident") {
  const TempDir dir;
  constexpr size_t row_bytes = 6000;  // begins anywhere in a block
  std::string elements;
  for (size_t i = 0; i < 40 * row_bytes; i++) elements += static_cast<char>(i / row_bytes + i % 251);
  const std::string path = dir.write("t.npy", npy("|u1", "(40, 6000)", elements));
  const std::vector<int64_t> rows = {39, 39, 39, 0, 7, -1, -1, 7, 7, 8, 38, 0, 39};
  for (const auto& [resident, io] : {std::pair(true, IoOptions()),
                                     {false, IoOptions()},
                                     {false, IoOptions{.direct = Toggle::off}},
                                     {false, IoOptions{.backend = BackendKind::automatic, .direct = Toggle::on}},
                                     {false, IoOptions{.backend = BackendKind::pread, .direct = Toggle::on}}}) {
    Table table({path, "", resident});
    table.open(no_limit, io);
    INFO(table.text());
    const bool past = io.direct == Toggle::on;
    CHECK(table.reads_ahead() == (!resident && !past));
    CHECK((table.text().find("O_DIRECT") != std::string::npos) == past);
    std::vector<std::byte> memory(rows.size() * table.scratch_bytes() + Table::scratch_alignment);
    void* begin = memory.data();
    size_t space = memory.size();
    std::align(Table::scratch_alignment, rows.size() * table.scratch_bytes(), begin, space);
    std::vector<const std::byte*> at(rows.size());
    try {
      table.read(rows, {static_cast<std::byte*>(begin), rows.size() * table.scratch_bytes()}, at);
    } catch (const Error& error) {
      if (!past || error.message().find("refuses O_DIRECT") == std::string::npos) throw;
      test::skip("the file system of temporary files refuses O_DIRECT");
      continue;
    }
    for (size_t i = 0; i < rows.size(); i++)
      if (rows[i] >= 0)
        CHECK(std::string(reinterpret_cast<const char*>(at[i]), row_bytes) ==
              elements.substr(static_cast<size_t>(rows[i]) * row_bytes, row_bytes));
    if (!resident) CHECK((at[0] == at[1] && at[1] == at[2] && at[7] == at[8]));
    if (!past) continue;
    std::filesystem::resize_file(path, 100000);
    CHECK_THROWS_WITH(row_of(table, 39), Catch::Contains("t.npy: the file has become shorter"));
    dir.write("t.npy", npy("|u1", "(40, 6000)", elements));
    CHECK_THROWS_WITH(row_of(table, 39), Catch::Contains("t.npy: the file has changed"));
  }
}
