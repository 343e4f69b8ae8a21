#include "base/byte_size.h"
#include "base/machine.h"
#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "feedline/tensor.h"
#include "support/catch.h"

using namespace feedline;

TEST_CASE("byte sizes are read as people write them") {
  CHECK(parse_byte_size("4096") == 4096);
  CHECK(parse_byte_size("256KiB") == 256 << 10);
  CHECK(parse_byte_size("1.5 GiB") == uint64_t{3} << 29);
  CHECK(parse_byte_size("100MB") == 100'000'000);
  CHECK(parse_byte_size("2tib") == uint64_t{2} << 40);
  for (const char* wrong : {"", "MiB", "-1", "1.5B", "3 apples", "1e99GB", "0x10", "1 2"})
    CHECK_THROWS_AS(parse_byte_size(wrong), Error);
}

TEST_CASE("byte sizes are printed short") {
  CHECK(format_byte_size(0) == "0 B");
  CHECK(format_byte_size(1023) == "1023 B");
  CHECK(format_byte_size(256 << 10) == "256 KiB");
  CHECK(format_byte_size(uint64_t{3} << 29) == "1.5 GiB");
}

TEST_CASE("an error is one line with its place") {
  const Error error(Category::bad_data_crc, "checksum 1 instead of 2", {"a.tfrecord", 96, 3, ""});
  CHECK(std::string(error.what()) == "a.tfrecord: offset 96: record 3: checksum 1 instead of 2 [bad_data_crc]");
  const Error outer = Error(Category::wrong_dtype, "m", {"", -1, 7, "f"}).at({"b", 5, 8, "g"});
  CHECK(outer.place() == Place{"b", 5, 7, "f"});
  CHECK(name(Category::stalled) == "stalled");
}

TEST_CASE("shapes") {
  CHECK(Shape{}.elements() == 1);
  CHECK(Shape({8, 8, 24}).elements() == 1536);
  CHECK(Shape({8, 8}).with_rows(5) == Shape({5, 8, 8}));
  CHECK(to_string(Shape({5, 8})) == "[5, 8]");
}

TEST_CASE("a scoped SIMD level holds the machine's down") {
  const SimdLevel best = simd_level();
  {
    const ScopedSimdLevel portable(SimdLevel::portable);
    CHECK(simd_level() == SimdLevel::portable);
  }
  CHECK(simd_level() == best);
}

TEST_CASE("the machine has a CPU and memory for us") {
  CHECK(usable_cpus() >= 1);
  CHECK(usable_memory() > 1 << 20);
}

namespace {
struct ProbeOp {
  static constexpr const char* name = "probe";
  static constexpr int error = 5;
};
}  // namespace

TEST_CASE("a hook fails the n-th call, once") {
  CHECK(injected<ProbeOp>() == 0);
  const auto all = SyscallHook::all();
  const auto hook = std::find_if(all.begin(), all.end(), [](auto* h) { return std::string(h->name()) == "probe"; });
  REQUIRE(hook != all.end());
  (*hook)->fail_nth_call(2);
  CHECK(injected<ProbeOp>() == 0);
  CHECK((*hook)->pending());
  CHECK(injected<ProbeOp>() == 5);
  CHECK_FALSE((*hook)->pending());
  CHECK(injected<ProbeOp>() == 0);
}
