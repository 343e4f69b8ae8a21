#include "gpu/device/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <type_traits>

#include "base/syscall_hooks.h"
#include "feedline/batch.h"
#include "feedline/error.h"
#include "gpu/device/queue.h"
#include "support/catch.h"

using namespace feedline;

namespace {

size_t resident_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes.size() + page - 1) / page);
  REQUIRE(mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), pages.data()) == 0);
  return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; }));
}

}  // namespace

TEST_CASE("memory of the host is zero, page-aligned, and touched by its first write") {
  for (size_t size : {size_t{1}, size_t{5000}, size_t{5} << 20}) {
    gpu::Memory memory(size);
    REQUIRE(memory.bytes().size() == size);
    CHECK(reinterpret_cast<uintptr_t>(memory.bytes().data()) % static_cast<size_t>(sysconf(_SC_PAGESIZE)) == 0);
    CHECK(resident_pages(memory.bytes()) == 0);
    memory.bytes().back() = std::byte{1};
    CHECK(resident_pages(memory.bytes()) > 0);
    CHECK(std::all_of(memory.bytes().begin(), memory.bytes().end() - 1, [](std::byte b) { return b == std::byte{0}; }));
  }
  CHECK(gpu::Memory(0).bytes().empty());
}

TEST_CASE("memory moves, and goes back to the system") {
  gpu::Memory a(10000);
  std::byte* at = a.bytes().data();
  gpu::Memory b = std::move(a);
  CHECK(a.bytes().empty());
  CHECK(b.bytes().data() == at);
  b = gpu::Memory();
  CHECK(b.bytes().empty());
  unsigned char page;
  CHECK(mincore(at, 1, &page) == -1);  // ENOMEM: nothing is mapped at this address any more
}

TEST_CASE("no memory is an error with a size and a hint") {
  const auto hooks = SyscallHook::all();
  const auto hook = std::find_if(hooks.begin(), hooks.end(), [](auto* h) { return std::string(h->name()) == "mmap"; });
  REQUIRE(hook != hooks.end());
  (*hook)->fail_nth_call(1);
  try {
    gpu::Memory(3 << 20);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.category() == Category::io_error);
    CHECK(error.message() ==
          "the system cannot provide 3 MiB of memory (Cannot allocate memory); lower memory.limit, or free memory");
  }
  CHECK_THROWS_AS(gpu::Memory(size_t{1} << 62), Error);  // the system refuses it
}

TEST_CASE("a queue of the host gives nothing where nothing is asked for, also beside a GPU") {
  for (const DeviceId user : {host(), cuda(0)}) CHECK(gpu::host_queue(user)->allocate(0) == nullptr);
}

template <typename From>
constexpr bool makes_a_stream = std::is_constructible_v<Stream, From> || std::is_convertible_v<From, Stream>;

TEST_CASE("a stream is a named one: nothing else makes it") {
  static_assert(!std::is_default_constructible_v<Stream>);
  static_assert(!makes_a_stream<int> && !makes_a_stream<std::nullptr_t> && !makes_a_stream<void*>);
  static_assert(std::is_trivially_copyable_v<Stream>);
  const Stream stream = Stream::host;
  CHECK(stream == Stream::host);
  CHECK(stream.kind() == DeviceId::Kind::host);
}

TEST_CASE("on the host a stream makes nobody wait: ready at once, released at once") {
  const auto content = std::make_shared<const BatchContent>(BatchContent{.rows = 3, .tensors = {}});
  Batch batch(content);
  batch->ready_on(Stream::host);
  CHECK(batch->rows() == 3);
  CHECK(content.use_count() == 2);
  batch->release_on(Stream::host);
  CHECK_FALSE(batch);
  CHECK(content.use_count() == 1);
}

TEST_CASE("a batch finds its tensors by name and lives until it is released, anywhere") {
  struct Owner {
    bool* gone;
    BatchContent content;
    ~Owner() { *gone = true; }
  };
  bool gone = false;
  float values[6] = {1, 2, 3, 4, 5, 6};
  auto owner = std::make_shared<Owner>(Owner{&gone, {}});
  gone = false;  // the temporary's destructor has set it
  owner->content = {4, 7,  1, 2,
                    2, 99, 0, {{"x", {values, DType::float32, {2, 3}}, true}, {"y", {values, DType::float32, {2}}}}};
  Batch batch(std::shared_ptr<const BatchContent>(owner, &owner->content));
  owner.reset();

  CHECK(batch->epoch() == 4);
  CHECK(batch->step() == 7);
  CHECK(batch->replica() == 1);
  CHECK(batch->rows() == 2);
  CHECK(batch->valid_count() == 2);
  CHECK(batch->audit() == 99);
  CHECK(batch->at("x").as<float>()[5] == 6);
  CHECK(batch->at("y").shape == Shape{2});
  try {
    batch->at("z");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.category() == Category::bad_pipeline);
    CHECK(error.message() == "the batch has no tensor 'z'; its tensors are x, y");
  }

  const Batch copy = batch.copy();
  CHECK((copy.epoch() == 4 && copy.step() == 7 && copy.replica() == 1 && copy.rows() == 2 && copy.audit() == 99));
  CHECK(copy.at("x").shape == Shape{2, 3});
  CHECK(copy.at("y").as<float>()[1] == 2);
  for (const NamedTensor& tensor : copy.tensors()) {
    CHECK(reinterpret_cast<uintptr_t>(tensor.tensor.data) % 256 == 0);
    CHECK_FALSE(tensor.lent);
  }
  const Batch one = batch.copy(std::span(&batch.tensors()[1], 1));
  CHECK(one.tensors().size() == 1);
  CHECK(one.at("y").as<float>()[1] == 2);
  values[1] = 0;  // the copies have bytes of their own
  CHECK(copy.at("x").as<float>()[1] == 2);

  Batch moved = std::move(batch);
  CHECK_FALSE(batch);
  CHECK(moved);
  CHECK_FALSE(gone);
  std::thread([&] { moved.release_on(Stream::host); }).join();
  CHECK(gone);
  CHECK_FALSE(moved);
}
