#include "base/spans.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/mutex.h"
#include "feedline/error.h"

namespace feedline {
namespace {

// The spans of one thread. Only that thread writes them. Any thread may read `recording` and `count` at any time. The
// spans below `count` do not change until the owning thread sees that a new recording has begun.
struct Buffer {
  const int64_t id = gettid();
  std::string thread;
  std::atomic<uint64_t> recording{0};  // the number of the recording that the spans belong to
  std::atomic<uint64_t> count{0};      // the number of spans, including those lost for lack of room
  std::atomic<bool> ended{false};      // the thread has ended
  std::array<Span, SpanRecording::room> spans;
};

struct Registry {
  Mutex mutex;
  std::vector<std::unique_ptr<Buffer>> buffers FEEDLINE_GUARDED_BY(mutex);
  bool taken FEEDLINE_GUARDED_BY(mutex) = false;  // whether a SpanRecording exists
  std::atomic<uint64_t> recording{0};             // the number of the latest recording
};

// Never destroyed, because threads may record while the process ends.
Registry& registry() {
  static Registry& one = *new Registry;
  return one;
}

Buffer* make_buffer() {
  auto made = std::make_unique<Buffer>();
  std::array<char, 16> name{};
  if (pthread_getname_np(pthread_self(), name.data(), name.size()) == 0) made->thread = name.data();
  Registry& all = registry();
  const Lock lock(all.mutex);
  return all.buffers.emplace_back(std::move(made)).get();
}

struct Owner {
  ~Owner() {
    if (buffer) buffer->ended = true;
  }
  Buffer* buffer = nullptr;
};
thread_local Owner owner;

int64_t nanoseconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

SpanRecording::SpanRecording() {
  Registry& all = registry();
  const Lock lock(all.mutex);
  if (all.taken)
    throw Error(Category::bad_pipeline,
                "a trace is already being recorded, and only one can be recorded at a time; try again after its end");
  all.taken = true;
  std::erase_if(all.buffers, [](const std::unique_ptr<Buffer>& buffer) { return buffer->ended.load(); });
  all.recording++;
  goes_on_ = true;
}

SpanRecording::~SpanRecording() {
  goes_on_ = false;
  Registry& all = registry();
  const Lock lock(all.mutex);
  all.taken = false;
}

std::vector<ThreadSpans> SpanRecording::take() {
  goes_on_ = false;
  std::vector<ThreadSpans> threads;
  Registry& all = registry();
  const Lock lock(all.mutex);
  for (const std::unique_ptr<Buffer>& buffer : all.buffers) {
    if (buffer->recording.load(std::memory_order_acquire) != all.recording) continue;
    const uint64_t count = buffer->count.load(std::memory_order_acquire), kept = std::min<uint64_t>(count, room);
    threads.push_back(
        {buffer->thread, buffer->id, {buffer->spans.begin(), buffer->spans.begin() + kept}, count - kept});
  }
  return threads;
}

void record_span(const char* name, std::chrono::steady_clock::time_point begin,
                 std::chrono::steady_clock::time_point end, int64_t number) noexcept {
  if (!SpanRecording::goes_on()) return;
  try {
    if (!owner.buffer) owner.buffer = make_buffer();
  } catch (...) {
    return;
  }
  Buffer& buffer = *owner.buffer;
  const uint64_t recording = registry().recording.load(std::memory_order_relaxed);
  if (buffer.recording.load(std::memory_order_relaxed) != recording) {
    buffer.count.store(0, std::memory_order_relaxed);
    buffer.recording.store(recording, std::memory_order_release);
  }
  const uint64_t count = buffer.count.load(std::memory_order_relaxed);
  if (count < SpanRecording::room) buffer.spans[count] = {name, nanoseconds(begin), nanoseconds(end), number};
  buffer.count.store(count + 1, std::memory_order_release);
}

}  // namespace feedline
