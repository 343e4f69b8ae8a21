#include "feedline/exchange.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "feedline/error.h"

namespace feedline {
namespace {

// A reusable barrier at which the ranks' threads exchange their strings. A round is one all-gather.
class Meeting {
 public:
  explicit Meeting(size_t ranks) : given_(ranks) {}

  std::vector<std::string> all_gather(size_t rank, std::string_view mine) {
    Lock lock(mutex_);
    given_[rank] = mine;
    const uint64_t round = round_;
    if (!left_ && ++arrived_ == given_.size()) {
      all_ = std::exchange(given_, std::vector<std::string>(given_.size()));
      arrived_ = 0;
      round_++;
      all_here_.notify_all();
    }
    all_here_.wait(lock, [&]() FEEDLINE_REQUIRES(mutex_) { return round_ != round || left_; });
    if (round_ == round)
      throw Error(Category::stalled, fmt::format("rank {} has ended or failed, so this exchange of the ranks cannot be "
                                                 "completed; see the error of that rank",
                                                 *left_));
    return all_;  // the next round cannot end, and replace all_, before this rank has entered it
  }

  void leave(size_t rank) {
    const Lock lock(mutex_);
    if (!left_) left_ = rank;
    all_here_.notify_all();
  }

 private:
  Mutex mutex_;
  Condition all_here_;
  std::vector<std::string> given_ FEEDLINE_GUARDED_BY(mutex_), all_ FEEDLINE_GUARDED_BY(mutex_);
  size_t arrived_ FEEDLINE_GUARDED_BY(mutex_) = 0;
  uint64_t round_ FEEDLINE_GUARDED_BY(mutex_) = 0;
  std::optional<size_t> left_ FEEDLINE_GUARDED_BY(mutex_);
};

// One rank's membership, shared by all copies of its exchange. When the last copy is destroyed, the rank leaves.
struct Member {
  Member(std::shared_ptr<Meeting> whose, size_t which) : meeting(std::move(whose)), rank(which) {}
  ~Member() { meeting->leave(rank); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  const std::shared_ptr<Meeting> meeting;
  const size_t rank;
};

}  // namespace

std::vector<Exchange> exchanges_between_threads(int ranks) {
  const auto meeting = std::make_shared<Meeting>(static_cast<size_t>(ranks));
  std::vector<Exchange> exchanges;
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); rank++)
    exchanges.push_back([member = std::make_shared<Member>(meeting, rank)](std::string_view mine) {
      return member->meeting->all_gather(member->rank, mine);
    });
  return exchanges;
}

}  // namespace feedline
