#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/byte_size.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/spans.h"
#include "base/syscall_hooks.h"
#include "base/thread.h"
#include "feedline/error.h"
#include "feedline/tensor.h"
#include "support/catch.h"
#include "support/log_lines.h"
#include "support/process.h"

using namespace feedline;

namespace {

/// Returns what a shell command prints.
std::string output_of(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe);
  std::string output;
  for (int c; (c = std::fgetc(pipe)) != EOF;) output += static_cast<char>(c);
  CHECK(pclose(pipe) == 0);
  return output;
}

int first_cpu(const cpu_set_t& set) {
  int cpu = 0;
  while (!CPU_ISSET(cpu, &set)) cpu++;
  return cpu;
}

}  // namespace

TEST_CASE("byte sizes are read as people write them") {
  CHECK(parse_byte_size("4096") == 4096);
  CHECK(parse_byte_size("256KiB") == 256 << 10);
  CHECK(parse_byte_size("1.5 GiB") == uint64_t{3} << 29);
  CHECK(parse_byte_size("100MB") == 100'000'000);
  CHECK(parse_byte_size("2tib") == uint64_t{2} << 40);
  for (const char* wrong : {"", "MiB", "-1", "1.5B", "3 apples", "1e99GB", "0x10", "1 2"})
    CHECK_THROWS_AS(parse_byte_size(wrong), Error);
}

TEST_CASE("a warning to be logged once is") {
  const test::LogLines log;
  for (int i = 0; i < 2; i++) log_warning_once("the disk is slow");
  log_warning_once("the disk is full");
  CHECK(log.lines() == std::vector<std::string>{"the disk is slow", "the disk is full"});
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

TEST_CASE("a tensor is read as what its elements are, and as nothing else") {
  alignas(8) std::array<std::byte, 64> memory{};
  struct Half {
    uint16_t bits;
  };
  const auto reads = [&]<typename T>(DType dtype, T) {
    const TensorView view{memory.data(), dtype, {2, 3}};
    try {
      return view.as<T>().size() == 6 && view.as<const T>().data() == static_cast<void*>(memory.data());
    } catch (const Error& error) {
      CHECK(error.category() == Category::bad_pipeline);
      return false;
    }
  };
  // The columns are bool, uint8_t, std::byte, char, int8_t, uint16_t, int16_t, Half, uint32_t, int32_t, uint64_t,
  // int64_t, float, double.
  const std::pair<DType, std::string> readable[] = {
      {DType::boolean, "11110000000000"},  {DType::uint8, "01110000000000"},   {DType::int8, "01111000000000"},
      {DType::uint16, "00000100000000"},   {DType::int16, "00000010000000"},   {DType::uint32, "00000000100000"},
      {DType::int32, "00000000010000"},    {DType::int64, "00000000000100"},   {DType::float16, "00000111000000"},
      {DType::bfloat16, "00000111000000"}, {DType::float32, "00000000000010"}, {DType::float64, "00000000000001"},
      {DType::bytes, "00000000000000"},    {DType::unset, "00000000000000"},
  };
  for (const auto& entry : readable) {
    INFO(name(entry.first));
    std::string found;
    const auto add = [&](auto... types) { ((found += reads(entry.first, types) ? '1' : '0'), ...); };
    add(bool{}, uint8_t{}, std::byte{}, char{}, int8_t{}, uint16_t{}, int16_t{}, Half{}, uint32_t{}, int32_t{},
        uint64_t{}, int64_t{}, float{}, double{});
    CHECK(found == entry.second);
  }
  CHECK_THROWS_WITH((TensorView{memory.data(), DType::float32, {2}}.as<double>()),
                    Catch::Contains("FLOAT32 (4 bytes each)") && Catch::Contains("this T (8 bytes)"));
}

TEST_CASE("a scoped SIMD level limits the machine's level") {
  const SimdLevel best = simd_level();
  {
    const ScopedSimdLevel portable(SimdLevel::portable);
    CHECK(simd_level() == SimdLevel::portable);
  }
  CHECK(simd_level() == best);
}

TEST_CASE("the level of this process", "[.level]") { std::printf("level %s\n", name(simd_level())); }

TEST_CASE("FEEDLINE_SIMD limits the level") {
  const auto level_with = [](const std::string& wanted) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe");
    return output_of("FEEDLINE_SIMD='" + wanted + "' '" + program + "' '[.level]' 2>&1");
  };
  const std::string best = std::string("level ") + name(simd_level());
  CHECK_THAT(level_with("portable"), Catch::Contains("level portable"));
  CHECK_THAT(level_with("avx2"), Catch::Contains(simd_level() == SimdLevel::portable ? best : "level avx2"));
  CHECK_THAT(level_with("avx512"), Catch::Contains(best));
  CHECK_THAT(level_with("AVX2"),
             Catch::Contains(best) && Catch::Contains("warning: FEEDLINE_SIMD is 'AVX2', which is not a SIMD level"));
}

TEST_CASE("the machine reports at least one CPU and some memory") {
  CHECK(usable_cpus() >= 1);
  CHECK(usable_memory() > 1 << 20);
  CHECK(last_level_cache() >= 64 << 10);
  CHECK(last_level_cache() < uint64_t{16} << 30);
}

TEST_CASE("ranks of this machine share its CPUs, unless each was given its own") {
  const std::vector<const char*> names = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                          "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"};
  for (const char* name : names) unsetenv(name);
  const unsigned usable = usable_cpus();
  CHECK(cpus_of_this_rank() == usable);
  cpu_set_t set;
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  const bool bound = CPU_COUNT(&set) < sysconf(_SC_NPROCESSORS_ONLN);
  for (const char* name : names) {
    INFO(name);
    for (const unsigned ranks : {1u, 2u, 3u, usable, usable + 1, 4'000'000'000u}) {
      setenv(name, std::to_string(ranks).c_str(), 1);
      CHECK(cpus_of_this_rank() == (bound ? usable : std::max(1u, usable / ranks)));
    }
    for (const char* no_number : {"", "0", "-2", "2(x3)", "2,2", "2 ", "many", "99999999999"}) {
      setenv(name, no_number, 1);
      INFO(no_number);
      CHECK(cpus_of_this_rank() == usable);
    }
    unsetenv(name);
  }

  setenv("LOCAL_WORLD_SIZE", std::to_string(usable).c_str(), 1);
  setenv("SLURM_NTASKS_PER_NODE", "1", 1);  // torchrun under srun: the launcher closest to the process counts
  CHECK(cpus_of_this_rank() == (bound ? usable : 1));
  unsigned of_bound = 0;
  CPU_CLR(static_cast<size_t>(first_cpu(set)), &set);
  if (CPU_COUNT(&set) > 0) {
    std::thread([&] {  // as if a launcher had bound it to all CPUs but one
      REQUIRE(sched_setaffinity(0, sizeof set, &set) == 0);
      of_bound = cpus_of_this_rank();
    })
        .join();
    CHECK(of_bound == std::min(usable, static_cast<unsigned>(CPU_COUNT(&set))));
  }
  for (const char* name : names) unsetenv(name);
}

TEST_CASE("what runs on given CPUs stays there, and the caller where it was") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  const int cpu = first_cpu(before);
  cpu_set_t body, started, after;
  run_on_cpus("test", {cpu}, [&] {
    sched_getaffinity(0, sizeof body, &body);
    start_thread("test", [&] { sched_getaffinity(0, sizeof started, &started); }).join();
  });
  for (const cpu_set_t& set : {body, started}) {
    CHECK(CPU_COUNT(&set) == 1);
    CHECK(CPU_ISSET(cpu, &set));
  }
  REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));

  CHECK_THROWS_AS(run_on_cpus("test", {cpu}, [] { throw std::bad_alloc(); }), std::bad_alloc);
  for (const char* name : {"sched_setaffinity", "start thread"}) {
    bool ran = false;
    test::find_hook(name)->fail_nth_call(1);
    CHECK_THROWS_WITH(run_on_cpus("test", {cpu}, [&] { ran = true; }), Catch::Contains("[io_error]"));
    CHECK_FALSE(ran);
  }
}

namespace {
using ProbeOp = HookedCall<"probe", 5>;
}  // namespace

namespace {

using SpanClock = std::chrono::steady_clock;

const ThreadSpans* spans_of(const std::vector<ThreadSpans>& threads, const std::string& name) {
  const auto found = std::ranges::find(threads, name, &ThreadSpans::thread);
  return found == threads.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("threads record spans while a recording goes on, and of each recording its own") {
  const SpanClock::time_point zero, one(std::chrono::nanoseconds(1));
  record_span("before", zero, one);
  std::atomic<int> phase{0};
  const auto reach = [&](int wanted) {
    for (int now = phase; now < wanted; now = phase) phase.wait(now);
  };
  const auto go_on = [&](int to) {
    phase = to;
    phase.notify_all();
  };
  std::thread staying = start_thread("staying", [&] {
    record_span("first", zero, one, 7);
    go_on(1);
    reach(2);
    record_span("between", zero, one);
    go_on(3);
    reach(4);
    record_span("second", zero, one);
    go_on(5);
  });
  // The thread may have run before the recording began, so another one records for certain.
  {
    SpanRecording recording;
    CHECK_THROWS_AS(SpanRecording(), Error);
    start_thread("ending", [&] {
      for (size_t i = 0; i < SpanRecording::room + 5; i++) record_span("many", zero, one, static_cast<int64_t>(i));
    }).join();
    reach(1);
    const std::vector<ThreadSpans> threads = recording.take();
    CHECK_FALSE(SpanRecording::goes_on());
    const ThreadSpans* const ended = spans_of(threads, "ending");
    REQUIRE(ended);
    CHECK(ended->id != gettid());
    REQUIRE(ended->spans.size() == SpanRecording::room);
    CHECK(ended->lost == 5);
    CHECK(ended->spans[9].name == std::string("many"));
    CHECK(ended->spans[9].number == 9);
    CHECK(ended->spans[9].end_ns == 1);
    go_on(2);
    reach(3);
  }
  SpanRecording again;
  go_on(4);
  staying.join();
  const std::vector<ThreadSpans> threads = again.take();
  CHECK(threads.size() == 1);
  const ThreadSpans* const stayed = spans_of(threads, "staying");
  REQUIRE(stayed);
  REQUIRE(stayed->spans.size() == 1);
  CHECK(stayed->spans[0].name == std::string("second"));
}

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
