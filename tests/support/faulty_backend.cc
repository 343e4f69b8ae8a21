#include "support/faulty_backend.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

namespace feedline::test {
namespace {

uint64_t draw(uint64_t seed, uint64_t number, uint64_t what) {  // the finaliser of SplitMix64
  uint64_t x = seed + number * 0x9e3779b97f4a7c15u + what * 0xd1342543de82ef95u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

class FaultyBackend final : public io::ReadBackend {
 public:
  FaultyBackend(std::vector<io::FileId> files, io::ReadDone done, const Faults& faults)
      : files_(std::move(files)), done_(std::move(done)), faults_(faults), thread_([this] { work(); }) {}

  ~FaultyBackend() override { stop(); }

  void submit(std::span<const io::Read> reads) override {
    bool refused;
    {
      const std::lock_guard lock(mutex_);
      refused = stopping_;
      for (const io::Read& read : reads) {
        if (refused) break;
        const uint64_t number = ++submitted_;
        outstanding_.push_back({number + draw(faults_.seed, number, 0) % (faults_.overtaken_by + 1), number, read});
      }
    }
    if (refused)
      for (const io::Read& read : reads) done_(read.tag, ECANCELED);
    changed_.notify_one();
  }

  std::optional<int> read_cached(const io::Read&) noexcept override { return std::nullopt; }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    const std::lock_guard lock(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

  std::string description() const override { return "faulty, for tests"; }

 private:
  struct Pending {
    uint64_t turn, number;
    io::Read read;
    bool operator<(const Pending& other) const { return std::pair(turn, number) < std::pair(other.turn, other.number); }
  };

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !outstanding_.empty(); });
      if (outstanding_.empty()) return;
      const auto next = std::min_element(outstanding_.begin(), outstanding_.end());
      const Pending pending = *next;
      outstanding_.erase(next);
      lock.unlock();
      done_(pending.read.tag, perform(pending));
      lock.lock();
    }
  }

  int perform(const Pending& pending) {
    if (faults_.delay.count() > 0 && !stopping_) {
      const auto longest = static_cast<uint64_t>(faults_.delay.count());
      std::this_thread::sleep_for(std::chrono::microseconds(draw(faults_.seed, pending.number, 1) % longest));
    }
    if (stopping_) return ECANCELED;
    const io::Read& read = pending.read;
    std::byte* const place = read.buffer + read.offset % io::block_bytes;
    if (pending.number == faults_.failing ||
        (faults_.one_in > 0 && draw(faults_.seed, pending.number, 2) % faults_.one_in == 0)) {
      std::memset(place, 0xa5, read.length);
      return faults_.error;
    }
    std::ifstream file(files_[read.file].uri, std::ios::binary);
    if (!file) return ENOENT;
    file.seekg(static_cast<std::streamoff>(read.offset));
    file.read(reinterpret_cast<char*>(place), static_cast<std::streamsize>(read.length));
    return file.gcount() == static_cast<std::streamsize>(read.length) ? 0 : ENODATA;
  }

  const std::vector<io::FileId> files_;
  const io::ReadDone done_;
  const Faults faults_;
  std::mutex mutex_, join_mutex_;
  std::condition_variable changed_;
  std::vector<Pending> outstanding_;
  uint64_t submitted_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace

std::unique_ptr<io::ReadBackend> make_faulty_backend(std::vector<io::FileId> files, const io::BackendOptions&,
                                                     io::ReadDone done, const Faults& faults) {
  return std::make_unique<FaultyBackend>(std::move(files), std::move(done), faults);
}

}  // namespace feedline::test
