#include "support/faulty_backend.h"

#include <set>

#include "backend_rig.h"
#include "support/catch.h"

using namespace feedline::io;
using namespace feedline::io::test;
using feedline::test::Faults;
using feedline::test::TempDir;

namespace {

struct Course {
  std::vector<size_t> order;
  std::set<size_t> failed;
  bool exact = true;
  bool operator==(const Course&) const = default;
};

// Submits 40 reads at once. Returns the order in which they completed and which of them failed.
Course run(const std::vector<FileId>& files, const Faults& faults) {
  constexpr size_t count = 40;
  const Slots memory(count, 16 << 10);
  Course course;
  Outcomes outcomes(count);
  std::vector<Range> ranges;
  std::vector<Read> reads;
  std::mt19937_64 random(6);
  for (size_t i = 0; i < count; i++) {
    ranges.push_back(random_range(random, files, 10'000));
    reads.push_back(read_of(ranges[i], memory[i], i));
  }
  const auto done = [&](void* tag, int error) {
    const auto number = reinterpret_cast<size_t>(tag);
    course.order.push_back(number);
    if (error) course.failed.insert(number);
    if (is_exact(ranges[number], memory[number]) != (error == 0)) course.exact = false;
    outcomes.note(number, error);
  };
  const auto backend = make_faulty_backend(files, {}, done, faults);
  backend->submit(reads);
  outcomes.wait_for(count);
  backend->stop();
  for (size_t i = 0; i < count; i++) REQUIRE(outcomes.times(i) == 1);
  return course;
}

}  // namespace

TEST_CASE("a faulty backend reads in order and exactly unless told otherwise") {
  const TempDir dir;
  const Course course = run(write_files(dir, {50'000, 9000}), {});
  CHECK(std::is_sorted(course.order.begin(), course.order.end()));
  CHECK(course.failed.empty());
  CHECK(course.exact);
}

TEST_CASE("its faults are those of the seed") {
  const TempDir dir;
  const auto files = write_files(dir, {50'000, 9000});
  Faults faults;
  faults.overtaken_by = 10;
  faults.one_in = 8;
  faults.failing = 3;
  faults.delay = std::chrono::microseconds(50);
  const Course first = run(files, faults);
  CHECK(first.exact);
  CHECK_FALSE(std::is_sorted(first.order.begin(), first.order.end()));
  CHECK(first.failed.count(2) == 1);
  CHECK(first.failed.size() > 1);
  for (size_t i = 0; i < first.order.size(); i++) CHECK(first.order[i] <= i + 10);
  CHECK(run(files, faults) == first);
  faults.seed = 2;
  CHECK_FALSE(run(files, faults) == first);
}

TEST_CASE("a faulty backend stops like any other") {
  const TempDir dir;
  const auto files = write_files(dir, {50'000});
  const Slots memory(8, 16 << 10);
  for (int round = 0; round < 100; round++) {
    Outcomes outcomes(9);
    Faults faults;
    faults.delay = std::chrono::microseconds(100);
    const auto backend = make_faulty_backend(files, {}, outcomes.done(), faults);
    std::vector<Read> reads;
    for (size_t i = 0; i < 8; i++) reads.push_back(read_of({0, i, 10'000}, memory[i], i));
    backend->submit(reads);
    outcomes.wait_for(static_cast<size_t>(round % 9));
    backend->stop();
    REQUIRE(outcomes.complete() == 8);
    reads[0].tag = tag_of(8);
    backend->submit({&reads[0], 1});
    REQUIRE(outcomes.error(8) == ECANCELED);
  }
}
