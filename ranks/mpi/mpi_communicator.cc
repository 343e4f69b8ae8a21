#include "feedline/mpi_communicator.h"

#include <fmt/format.h>
#define OMPI_SKIP_MPICXX  // leaves out Open MPI's C++ bindings
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "base/leak.h"
#include "base/mutex.h"
#include "ranks/process/linked_communicator.h"

namespace feedline {
namespace {

using ranks::Note;

constexpr size_t piece_bytes = size_t{1} << 30;  // the maximum in one MPI call, because its counts are ints

void check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw Error(Category::io_error,
              fmt::format("{}: {}", call, std::string_view(text.data(), static_cast<size_t>(length))));
}

MPI_Comm duplicate(const MpiOptions& options) {
  int initialized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized) MPI_Query_thread(&level);
  if (level != MPI_THREAD_MULTIPLE)
    throw Error(Category::bad_pipeline,
                "mpi_communicator: MPI is not initialised with MPI_THREAD_MULTIPLE; first call MPI_Init_thread() with "
                "MPI_THREAD_MULTIPLE, and check that the MPI library provides this level");
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(options.communicator ? MPI_Comm_f2c(*options.communicator) : MPI_COMM_WORLD, &copy),
        "MPI_Comm_dup");
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return copy;
}

// Links over MPI: one duplicate of the MPI communicator carries the data, a second duplicate carries the notes, which
// are control messages. The duplicates are never freed, because MPI_Comm_free would have to wait for all ranks.
class MpiLinks final : public ranks::Links {
 public:
  explicit MpiLinks(const MpiOptions& options) : data_(duplicate(options)), notes_(duplicate(options)) {
    MPI_Comm_rank(data_, &rank_);
    MPI_Comm_size(data_, &size_);
  }

  ~MpiLinks() override {
    if (!mail_->telling.empty() || mail_->hearing != MPI_REQUEST_NULL) leak(mail_);
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

  void begin(std::span<const Part> sends, std::span<const Part> receives) override {
    for (const Part& part : receives)
      in_pieces(part.bytes, [&](std::byte* piece, int size) {
        check(MPI_Irecv(piece, size, MPI_BYTE, part.rank, 0, data_, &requests_.emplace_back()), "MPI_Irecv");
      });
    for (const Part& part : sends)
      in_pieces(part.bytes, [&](std::byte* piece, int size) {
        check(MPI_Isend(piece, size, MPI_BYTE, part.rank, 0, data_, &requests_.emplace_back()), "MPI_Isend");
      });
  }
  void begin_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (mine.size() > piece_bytes) return Links::begin_all_gather(mine, all);
    std::byte* const place = all.data() + static_cast<size_t>(rank_) * mine.size();
    if (!mine.empty() && mine.data() != place) std::memcpy(place, mine.data(), mine.size());
    check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, all.data(), static_cast<int>(mine.size()), MPI_BYTE, data_,
                         &requests_.emplace_back()),
          "MPI_Iallgather");
  }
  void begin_broadcast(std::span<std::byte> data, int root) override {
    in_pieces(data, [&](std::byte* piece, int size) {
      check(MPI_Ibcast(piece, size, MPI_BYTE, root, data_, &requests_.emplace_back()), "MPI_Ibcast");
    });
  }
  bool drive() override {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (done) requests_.clear(), waited_ = 0;
    return done;
  }
  bool keeps_buffers() const noexcept override { return true; }

  void tell(int rank, const Note& note) override {
    Told& told = mail_->telling.emplace_back(Told{note});
    check(MPI_Isend(&told.note, sizeof told.note, MPI_BYTE, rank, 0, notes_, &told.request), "MPI_Isend");
  }
  bool told() override {
    for (int sent = 1; !mail_->telling.empty(); mail_->telling.pop_front()) {
      check(MPI_Test(&mail_->telling.front().request, &sent, MPI_STATUS_IGNORE), "MPI_Test");
      if (!sent) return false;
    }
    return true;
  }
  std::optional<Heard> hear() override {
    if (mail_->hearing == MPI_REQUEST_NULL)
      check(MPI_Irecv(&mail_->heard, sizeof mail_->heard, MPI_BYTE, MPI_ANY_SOURCE, 0, notes_, &mail_->hearing),
            "MPI_Irecv");
    MPI_Status status;
    int heard = 0;
    check(MPI_Test(&mail_->hearing, &heard, &status), "MPI_Test");
    if (!heard) return std::nullopt;
    return Heard{status.MPI_SOURCE, mail_->heard};
  }

  // MPI has no call that blocks until either a message arrives or wake() is called. So wait() spins at first, because
  // most operations end soon, and later sleeps for 50 us at a time, because another rank may pause for long.
  void wait(std::chrono::milliseconds most, bool under_way) override {
    constexpr uint32_t spins = 1000;
    if (under_way && ++waited_ < spins) return;
    Lock lock(mutex_);
    wake_.wait_for(lock, under_way ? std::chrono::microseconds(50) : std::chrono::microseconds(most),
                   [&]() FEEDLINE_REQUIRES(mutex_) { return woken_; });
    woken_ = false;
  }
  void wake() noexcept override {
    {
      const Lock lock(mutex_);
      woken_ = true;
    }
    wake_.notify_one();
  }

  void leave(std::chrono::milliseconds most) override {
    const auto until = std::chrono::steady_clock::now() + most;
    while (!told() && std::chrono::steady_clock::now() < until) wait(most, true);
    if (mail_->hearing == MPI_REQUEST_NULL) return;
    MPI_Cancel(&mail_->hearing);
    MPI_Wait(&mail_->hearing, MPI_STATUS_IGNORE);
  }

 private:
  template <typename F>
  static void in_pieces(std::span<std::byte> bytes, F post) {
    for (size_t at = 0; at < bytes.size(); at += piece_bytes)
      post(bytes.data() + at, static_cast<int>(std::min(piece_bytes, bytes.size() - at)));
  }

  struct Told {
    Note note;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  const MPI_Comm data_, notes_;
  int rank_ = 0, size_ = 1;
  std::vector<MPI_Request> requests_;
  /// The notes (control messages) that MPI sends and receives asynchronously. The destructor leaks them if MPI has not
  /// finished.
  struct Mail {
    std::deque<Told> telling;  // notes that are being sent, the oldest first
    Note heard;
    MPI_Request hearing = MPI_REQUEST_NULL;
  };
  const std::shared_ptr<Mail> mail_ = std::make_shared<Mail>();
  uint32_t waited_ = 0;  // how often wait() has been called since the current operation began
  Mutex mutex_;
  Condition wake_;
  bool woken_ FEEDLINE_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<Communicator> mpi_communicator(const MpiOptions& options) {
  return ranks::linked_communicator(std::make_shared<MpiLinks>(options), options.timeout);
}

}  // namespace feedline
