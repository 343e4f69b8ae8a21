#include "feedline/mpi_communicator.h"

#include <fmt/format.h>
#define OMPI_SKIP_MPICXX  // its C++ bindings
#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/thread.h"
#include "gpu/collective_call.h"
#include "gpu/reduction.h"

namespace feedline {
namespace {

using gpu::CollectiveCall;
using Clock = std::chrono::steady_clock;
using Part = Communicator::Part;
using Post = std::function<void(std::vector<MPI_Request>&)>;

constexpr size_t piece_bytes = size_t{1} << 30;  // a count of MPI is an int

void check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw Error(Category::io_error,
              fmt::format("{}: {}", call, std::string_view(text.data(), static_cast<size_t>(length))));
}

// What ranks tell one another beside the calls. Longer texts are cut.
struct Note {
  enum Kind : uint32_t { alive, left, failed };

  Note() = default;
  Note(Kind k, uint64_t finished) : kind(k), calls(finished) {}
  Note(const Error& why, uint64_t finished)
      : kind(failed),
        category(why.category()),
        calls(finished),
        offset(why.place().offset),
        record(why.place().record) {
    why.place().file.copy(file.data(), file.size() - 1);
    why.place().feature.copy(feature.data(), feature.size() - 1);
    why.message().copy(message.data(), message.size() - 1);
  }
  Error error() const { return Error(category, message.data(), {file.data(), offset, record, feature.data()}); }

  Kind kind = alive;
  Category category = Category::io_error;
  uint64_t calls = 0;  // that its sender has finished
  int64_t offset = -1, record = -1;
  std::array<char, 256> file{}, feature{};
  std::array<char, 512> message{};
};

// What MPI reads and writes in its own time. After a failure, which nothing can be called back from, it is left to it.
struct Kept {
  CollectiveCall call;
  std::vector<CollectiveCall> calls;
  std::vector<gpu::PartsDigest> sent, to_come;
  std::vector<std::byte> others;  // ranks' slices
  Note heard, told;
  const Note alive;
};

MPI_Comm duplicate(const MpiOptions& options) {
  int initialized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized) MPI_Query_thread(&level);
  if (level != MPI_THREAD_MULTIPLE)
    throw Error(Category::bad_pipeline,
                "mpi_communicator: call MPI_Init_thread() with MPI_THREAD_MULTIPLE first, and see that it is given");
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(options.communicator ? MPI_Comm_f2c(*options.communicator) : MPI_COMM_WORLD, &copy),
        "MPI_Comm_dup");
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return copy;
}

// The thread that makes all calls of MPI but the first: it drives what is under way, tells the next rank that this one
// lives, and watches over the one before it.
class Progress {
 public:
  explicit Progress(const MpiOptions& options)
      : data_(duplicate(options)), notes_(duplicate(options)), timeout_(options.timeout) {
    MPI_Comm_rank(data_, &rank_);
    MPI_Comm_size(data_, &size_);
    left_.resize(static_cast<size_t>(size_));
    thread_ = start_thread("feedline-mpi", [this] { loop(); });
  }
  ~Progress() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
    if (failure_) static_cast<void>(kept_.release());
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  MPI_Comm data() const noexcept { return data_; }
  Kept& kept() noexcept { return *kept_; }
  uint64_t calls() const noexcept { return calls_; }  // that are finished
  void finish_call() noexcept { calls_++; }

  /// Posts requests in the thread, and returns when they are done.
  void run(const Post& post) {
    std::unique_lock lock(mutex_);
    if (failure_) throw *failure_;
    post_ = &post;
    wake_.notify_one();
    done_.wait(lock, [&] { return !post_ || (failure_ && !posting_); });
    if (post_) throw *failure_;
  }

  /// Ends the group, unless it has ended; the reason that it ends for.
  Error fail(const Error& why) { return end(why, true); }

  std::optional<Error> failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  Error end(const Error& why, bool tell);
  void loop();
  bool drive();
  void post();
  void listen();
  void take(int from, const Note& note);
  void watch();
  void beat();
  void tell_all(const Note& note);
  void leave();
  int neighbour(int direction) const;

  const MPI_Comm data_, notes_;
  const std::chrono::milliseconds timeout_;
  int rank_ = 0, size_ = 1;
  std::atomic<uint64_t> calls_{0};

  mutable std::mutex mutex_;  // guards the next six
  std::condition_variable wake_, done_;
  const Post* post_ = nullptr;  // what is under way
  bool posting_ = false;        // the thread is in it
  std::optional<Error> failure_;
  bool to_tell_ = false, ending_ = false;

  // The thread's own.
  bool posted_ = false;
  std::vector<MPI_Request> requests_;  // of post_
  std::unique_ptr<Kept> kept_ = std::make_unique<Kept>();
  MPI_Request hearing_ = MPI_REQUEST_NULL, beating_ = MPI_REQUEST_NULL;
  std::vector<MPI_Request> telling_;
  std::vector<std::optional<uint64_t>> left_;  // calls that a rank had finished when it left
  int watched_ = -1;
  Clock::time_point last_beat_, last_heard_, last_listened_;
  std::thread thread_;
};

Error Progress::end(const Error& why, bool tell) {
  const std::lock_guard lock(mutex_);
  if (!failure_) {
    failure_ = why;
    to_tell_ = tell;
  }
  done_.notify_all();
  wake_.notify_one();
  return *failure_;
}

void Progress::loop() {
  constexpr uint32_t spins = 1000;  // before it sleeps: most calls end soon, but a rank that is waited for may pause
  using std::chrono::milliseconds;
  const auto idle = std::clamp<milliseconds>(timeout_ / 20, milliseconds(1), milliseconds(100));
  uint32_t waited = 0;
  for (bool ending = false; !ending;) {
    bool to_tell = false;
    {
      std::unique_lock lock(mutex_);
      const auto has_work = [&] { return (post_ && !failure_) || to_tell_ || ending_; };
      wake_.wait_for(lock, idle, has_work);
      to_tell = std::exchange(to_tell_, false);
      ending = ending_;
    }
    try {
      if (to_tell) tell_all(Note(*failure_, calls_));
      listen();
      watch();
      beat();
      waited = drive() ? 0 : waited + 1;
      if (waited > spins) std::this_thread::sleep_for(std::chrono::microseconds(50));
    } catch (const Error& error) {
      fail(gpu::failure_of_rank(rank_, calls_, error));
    }
  }
  try {
    leave();
  } catch (const Error&) {
    // Nobody is left to be told.
  }
}

// Whether nothing is under way.
bool Progress::drive() {
  {
    const std::lock_guard lock(mutex_);
    if (!post_ || failure_) return true;
    posting_ = !posted_;
  }
  if (posting_) post();
  for (int rank = 0; rank < size_; rank++) {
    const std::optional<uint64_t>& finished = left_[static_cast<size_t>(rank)];
    if (!finished || *finished > calls_) continue;
    fail(gpu::failure_of_rank(rank, calls_, gpu::has_left()));
    return true;
  }
  int done = 0;
  check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
  if (!done) return false;
  posted_ = false;
  requests_.clear();
  {
    const std::lock_guard lock(mutex_);
    post_ = nullptr;
  }
  done_.notify_all();
  return true;
}

void Progress::post() {
  posted_ = true;
  std::exception_ptr failed;
  try {
    (*post_)(requests_);
  } catch (const Error&) {
    failed = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    posting_ = false;
  }
  done_.notify_all();
  if (failed) std::rethrow_exception(failed);
}

void Progress::listen() {
  for (int heard = 1; heard;) {
    if (hearing_ == MPI_REQUEST_NULL)
      check(MPI_Irecv(&kept_->heard, sizeof kept_->heard, MPI_BYTE, MPI_ANY_SOURCE, 0, notes_, &hearing_), "MPI_Irecv");
    MPI_Status status;
    check(MPI_Test(&hearing_, &heard, &status), "MPI_Test");
    if (heard) take(status.MPI_SOURCE, kept_->heard);
  }
}

void Progress::take(int from, const Note& note) {
  if (from == watched_) last_heard_ = Clock::now();
  if (note.kind == Note::left) left_[static_cast<size_t>(from)] = note.calls;
  if (note.kind == Note::failed) end(note.error(), false);
}

void Progress::watch() {
  const auto now = Clock::now();
  // Time in which this process was stopped itself says nothing about others.
  const bool was_away = now - last_listened_ > timeout_ / 4;
  last_listened_ = now;
  const int before = neighbour(-1);
  if (was_away || std::exchange(watched_, before) != before) last_heard_ = now;
  if (before != rank_ && now - last_heard_ > timeout_)
    fail(gpu::failure_of_rank(
        before, calls_,
        Error(Category::io_error, fmt::format("silent for {} s: it has died, was stopped, or cannot be reached",
                                              std::chrono::duration<double>(timeout_).count()))));
}

void Progress::beat() {
  const auto now = Clock::now();
  if (now - last_beat_ < timeout_ / 10 || neighbour(1) == rank_) return;
  int sent = 1;
  if (beating_ != MPI_REQUEST_NULL) check(MPI_Test(&beating_, &sent, MPI_STATUS_IGNORE), "MPI_Test");
  if (!sent) return;
  check(MPI_Isend(&kept_->alive, sizeof kept_->alive, MPI_BYTE, neighbour(1), 0, notes_, &beating_), "MPI_Isend");
  last_beat_ = now;
}

void Progress::tell_all(const Note& note) {
  kept_->told = note;
  for (int rank = 0; rank < size_; rank++)
    if (rank != rank_)
      check(MPI_Isend(&kept_->told, sizeof kept_->told, MPI_BYTE, rank, 0, notes_, &telling_.emplace_back()),
            "MPI_Isend");
}

// The next rank that has not left, in a ring; this one, if there is no other.
int Progress::neighbour(int direction) const {
  int rank = rank_;
  do rank = (rank + direction + size_) % size_;
  while (rank != rank_ && left_[static_cast<size_t>(rank)]);
  return rank;
}

// What was told has a second at most to go out. MPI_Comm_free would have to wait for all ranks.
void Progress::leave() {
  if (!failure_) tell_all(Note(Note::left, calls_));
  for (const auto until = Clock::now() + std::min<std::chrono::milliseconds>(timeout_, std::chrono::seconds(1));;) {
    int sent = 0;
    check(MPI_Testall(static_cast<int>(telling_.size()), telling_.data(), &sent, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (sent || Clock::now() > until) break;
  }
  if (hearing_ == MPI_REQUEST_NULL) return;
  MPI_Cancel(&hearing_);
  MPI_Wait(&hearing_, MPI_STATUS_IGNORE);
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(const MpiOptions& options) : progress_(options) {}

  int rank() const noexcept override { return progress_.rank(); }
  int size() const noexcept override { return progress_.size(); }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream) override {
    const auto place = [&](int rank) { return all.subspan(static_cast<size_t>(rank) * mine.size(), mine.size()); };
    run(gpu::all_gather_call(mine.size(), all.size(), size()), [&] {
      if (!mine.empty() && place(rank()).data() != mine.data())
        std::memcpy(place(rank()).data(), mine.data(), mine.size());
      swap([&](int) { return std::span<const std::byte>(place(rank())); }, place);
    });
  }

  void broadcast(std::span<std::byte> data, int root, Stream) override {
    run(gpu::broadcast_call(data.size(), root, size()), [&] {
      progress_.run([&](std::vector<MPI_Request>& requests) {
        in_pieces(data, [&](std::span<std::byte> piece) {
          check(MPI_Ibcast(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, root, progress_.data(),
                           &requests.emplace_back()),
                "MPI_Ibcast");
        });
      });
    });
  }

  // Each rank reduces a slice, and is given the others' slices.
  void all_reduce(TensorView data, Reduction reduction, Stream) override {
    const std::span bytes(static_cast<std::byte*>(data.data), data.size_bytes());
    const auto elements = static_cast<size_t>(data.shape.elements()), size = size_of(data.dtype);
    const auto begin_of = [&](int rank) {
      return elements * static_cast<size_t>(rank) / static_cast<size_t>(this->size()) * size;
    };
    const auto slice = [&](int rank) { return bytes.subspan(begin_of(rank), begin_of(rank + 1) - begin_of(rank)); };
    run(gpu::all_reduce_call(data, reduction), [&] {
      reduce_slices(slice, data.dtype, reduction, slice(rank()));
      swap([&](int) { return std::span<const std::byte>(slice(rank())); }, slice);
    });
  }

  void reduce_scatter(TensorView data, TensorView mine, Reduction reduction, Stream) override {
    const std::span bytes(static_cast<std::byte*>(data.data), data.size_bytes());
    run(gpu::reduce_scatter_call(data, mine, reduction, size()), [&] {
      const size_t size = mine.size_bytes();
      reduce_slices([&](int rank) { return bytes.subspan(static_cast<size_t>(rank) * size, size); }, data.dtype,
                    reduction, {static_cast<std::byte*>(mine.data), size});
    });
  }

  void send_receive(std::span<const Part> sends, std::span<const Part> receives, Stream) override {
    run(gpu::send_receive_call(sends, receives, size()), [&] {
      check_parts(sends, receives);
      progress_.run([&](std::vector<MPI_Request>& requests) {
        for (const Part& part : receives) receive(part.bytes, part.rank, requests);
        for (const Part& part : sends) send(part.bytes, part.rank, requests);
      });
    });
  }

  void barrier() override {
    run({}, [] {});
  }

  void abort(const Error& why) noexcept override {
    progress_.fail(gpu::failure_of_rank(rank(), progress_.calls(), why));
  }
  std::optional<Error> failure() const override { return progress_.failure(); }

 private:
  template <typename Body>
  void run(const CollectiveCall& call, Body body) {
    Kept& kept = progress_.kept();
    kept.call = call;
    kept.calls.resize(static_cast<size_t>(size()));
    progress_.run([&](std::vector<MPI_Request>& requests) {
      check(MPI_Iallgather(&kept.call, sizeof call, MPI_BYTE, kept.calls.data(), sizeof call, MPI_BYTE,
                           progress_.data(), &requests.emplace_back()),
            "MPI_Iallgather");
    });
    if (const auto error = gpu::disagreement(kept.calls, progress_.calls())) throw progress_.fail(*error);
    body();
    progress_.finish_call();
  }

  // To each other rank what `mine` gives for it, from each what `theirs` has room for.
  template <typename Mine, typename Theirs>
  void swap(Mine mine, Theirs theirs) {
    progress_.run([&](std::vector<MPI_Request>& requests) {
      for (int other = 0; other < size(); other++) {
        if (other == rank()) continue;
        receive(theirs(other), other, requests);
        send(mine(other), other, requests);
      }
    });
  }

  // slice(r): what rank r reduces. `to` may be slice(rank()).
  template <typename Slice>
  void reduce_slices(Slice slice, DType dtype, Reduction reduction, std::span<std::byte> to) {
    const size_t bytes = to.size();
    std::vector<std::byte>& others = progress_.kept().others;
    others.resize(bytes * static_cast<size_t>(size()));
    const auto place = [&](int rank) { return std::span(others).subspan(static_cast<size_t>(rank) * bytes, bytes); };
    swap([&](int other) { return std::span<const std::byte>(slice(other)); }, place);
    std::vector<const std::byte*> from;
    for (int other = 0; other < size(); other++)
      from.push_back(other == rank() ? slice(other).data() : place(other).data());
    gpu::reduce(from, dtype, reduction, bytes / size_of(dtype), to.data());
  }

  // MPI would wait for ever for a part that nobody sends.
  void check_parts(std::span<const Part> sends, std::span<const Part> receives) {
    Kept& kept = progress_.kept();
    const auto ranks = static_cast<size_t>(size());
    kept.sent.assign(ranks, {});
    kept.to_come.assign(ranks, {});
    std::vector<gpu::PartsDigest> wanted(ranks);
    for (const Part& part : sends) kept.sent[static_cast<size_t>(part.rank)].add(part.bytes.size());
    for (const Part& part : receives) wanted[static_cast<size_t>(part.rank)].add(part.bytes.size());
    progress_.run([&](std::vector<MPI_Request>& requests) {
      constexpr int size = sizeof(gpu::PartsDigest);
      check(MPI_Ialltoall(kept.sent.data(), size, MPI_BYTE, kept.to_come.data(), size, MPI_BYTE, progress_.data(),
                          &requests.emplace_back()),
            "MPI_Ialltoall");
    });
    for (size_t other = 0; other < ranks; other++)
      if (kept.to_come[other] != wanted[other])
        throw progress_.fail(gpu::unmatched_parts(static_cast<int>(other), rank(), progress_.calls()));
  }

  template <typename Byte, typename F>
  static void in_pieces(std::span<Byte> bytes, F post) {
    for (size_t at = 0; at < bytes.size(); at += piece_bytes)
      post(bytes.subspan(at, std::min(piece_bytes, bytes.size() - at)));
  }
  void send(std::span<const std::byte> bytes, int to, std::vector<MPI_Request>& requests) {
    in_pieces(bytes, [&](std::span<const std::byte> piece) {
      check(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to, 0, progress_.data(),
                      &requests.emplace_back()),
            "MPI_Isend");
    });
  }
  void receive(std::span<std::byte> bytes, int from, std::vector<MPI_Request>& requests) {
    in_pieces(bytes, [&](std::span<std::byte> piece) {
      check(MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, from, 0, progress_.data(),
                      &requests.emplace_back()),
            "MPI_Irecv");
    });
  }

  Progress progress_;
};

}  // namespace

std::unique_ptr<Communicator> mpi_communicator(const MpiOptions& options) {
  return std::make_unique<MpiCommunicator>(options);
}

}  // namespace feedline
