// .npy files: their content, and that no failing call leaves a partial file.
#include "tool/feeding/npy_writer.h"

#include <filesystem>
#include <numeric>

#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "golden/manifest.h"
#include "support/catch.h"
#include "support/process.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::test;
using tool::NpyWriter;

namespace {

namespace fs = std::filesystem;

std::vector<int32_t> numbers(size_t count) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

}  // namespace

TEST_CASE("arrays of every dtype and shape come back") {
  const TempDir dir;
  const std::map<DType, std::string> names = {
      {DType::boolean, "|b1"}, {DType::uint8, "|u1"},   {DType::int8, "|i1"},    {DType::uint16, "<u2"},
      {DType::int16, "<i2"},   {DType::uint32, "<u4"},  {DType::int32, "<i4"},   {DType::int64, "<i8"},
      {DType::float16, "<f2"}, {DType::float32, "<f4"}, {DType::float64, "<f8"}, {DType::bfloat16, "<u2"}};
  for (const auto& [dtype, name] : names) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 1, 5}, Shape{0}, Shape{1, 1, 1, 1, 1, 1, 1, 2}}) {
      const std::string path = dir.file("x.npy");
      NpyWriter writer(path, dtype, shape);
      std::vector<std::byte> bytes(static_cast<size_t>(shape.with_rows(7).elements()) * size_of(dtype));
      for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<std::byte>(i);
      const size_t three = bytes.size() / 7 * 3;
      writer.append(3, std::span(bytes).first(three));
      writer.append(4, std::span(bytes).subspan(three));
      CHECK(!fs::exists(path));
      writer.close();
      const NpyArray array = load_npy(path);
      CHECK(array.dtype == name);
      const Shape whole = shape.with_rows(7);
      CHECK(array.shape == std::vector<int64_t>(whole.begin(), whole.end()));
      CHECK(array.bytes == bytes);
      fs::remove(path);
    }
  }
}

TEST_CASE("more than the buffer holds, at once and in pieces; read back") {
  const TempDir dir;
  const auto values = numbers(1 << 20);
  const auto bytes = std::as_bytes(std::span(values));
  NpyWriter writer(dir.file("x.npy"), DType::int32, {});
  writer.append(10, bytes.first(40));
  writer.append(static_cast<int64_t>(values.size()) - 20, bytes.subspan(40, bytes.size() - 80));
  writer.append(10, bytes.last(40));
  std::vector<int32_t> again(1000);
  writer.read_back(400, std::as_writable_bytes(std::span(again)));
  CHECK(again.front() == 100);
  CHECK(again.back() == 1099);
  writer.close();
  const NpyArray array = load_npy(dir.file("x.npy"));
  CHECK(std::equal(values.begin(), values.end(), array.as<int32_t>().begin()));
  CHECK(array.shape == std::vector<int64_t>{1 << 20});
}

TEST_CASE("every failing call is an error that names the file, and leaves nothing") {
  const TempDir dir;
  const auto values = numbers(1 << 20);
  const size_t files_before = open_descriptors();
  int failures = 0;
  for (SyscallHook* hook : SyscallHook::all()) {
    for (int64_t n = 1;; n++) {
      hook->fail_nth_call(n);
      bool failed = false;
      try {
        NpyWriter writer(dir.file("x.npy"), DType::int32, {});
        for (size_t i = 0; i < 4; i++)
          writer.append(1 << 18, std::as_bytes(std::span(values)).subspan(i << 20, 1 << 20));
        std::vector<std::byte> again(64);
        writer.read_back(0, again);
        writer.close();
      } catch (const Error& error) {
        failed = true;
        CHECK(error.category() == Category::io_error);
        CHECK(error.place().file == dir.file("x.npy"));
        for (const auto& left : fs::directory_iterator(dir.path())) {
          CHECK(left.path() == dir.file("x.npy"));  // whole; only its folder could not be synced
          CHECK(load_npy(left.path()).shape == std::vector<int64_t>{1 << 20});
        }
      }
      const bool fired = !hook->pending();
      hook->fail_nth_call(0);
      const std::string name = hook->name();
      CHECK(failed == (fired && !name.ends_with("short") && !name.ends_with("interrupted")));
      if (!failed) CHECK(load_npy(dir.file("x.npy")).bytes.size() == 4 << 20);
      CHECK(open_descriptors() == files_before);
      fs::remove(dir.file("x.npy"));
      if (!fired) break;
      failures++;
    }
  }
  std::printf("npy writer: %d failing calls\n", failures);
  CHECK(failures >= 12);
}
