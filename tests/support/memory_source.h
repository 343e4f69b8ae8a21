// Data files that lie in memory, with names such as "memory://b/part-000.tfrecord".
#pragma once

#include <fnmatch.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "feedline/error.h"
#include "io/read/source.h"

namespace feedline::test {

class MemoryFile final : public io::SourceFile {
 public:
  MemoryFile(std::string uri, const std::string& bytes, uint64_t version)
      : uri_(std::move(uri)), bytes_(bytes), version_(version) {}
  const std::string& path() const noexcept override { return uri_; }
  uint64_t size() const noexcept override { return bytes_.size(); }
  uint64_t version() const noexcept override { return version_; }
  void check_unchanged() const override {}
  void read_at(uint64_t offset, std::span<std::byte> into) const override {
    if (!into.empty()) std::memcpy(into.data(), bytes_.data() + offset, into.size());
  }

 private:
  const std::string uri_;
  const std::string& bytes_;
  const uint64_t version_;
};

/// Completes reads on a thread of its own.
class MemoryBackend final : public io::ReadBackend {
 public:
  MemoryBackend(std::vector<const std::string*> files, std::vector<uint64_t> broken_from, io::ReadDone done)
      : files_(std::move(files)),
        broken_from_(std::move(broken_from)),
        done_(std::move(done)),
        thread_([this] { run(); }) {}
  ~MemoryBackend() override { stop(); }

  void submit(std::span<const io::Read> reads) override {
    {
      const std::lock_guard lock(mutex_);
      if (!stopped_) {
        queue_.insert(queue_.end(), reads.begin(), reads.end());
        changed_.notify_one();
        return;
      }
    }
    for (const io::Read& read : reads) done_(read.tag, ECANCELED);
  }
  std::optional<int> read_cached(const io::Read&) noexcept override { return std::nullopt; }
  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }
  std::string description() const override { return "memory"; }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const io::Read read = queue_.front();
      queue_.pop_front();
      lock.unlock();
      const bool broken = read.offset + read.length > broken_from_[read.file];
      if (!broken)
        std::memcpy(read.buffer + read.offset % io::block_bytes, files_[read.file]->data() + read.offset, read.length);
      done_(read.tag, broken ? EIO : 0);
      lock.lock();
    }
  }

  const std::vector<const std::string*> files_;
  const std::vector<uint64_t> broken_from_;  // by file
  const io::ReadDone done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<io::Read> queue_;
  bool stopped_ = false;
  std::thread thread_;
};

/// Files in memory.
class MemorySource : public io::Source {
 public:
  using Files = std::map<std::string, std::string>;
  explicit MemorySource(Files files) : files_(std::move(files)) {}

  std::string absolute(const std::string&, const std::string& pattern) const override { return pattern; }
  Listing list(const std::string&, const std::string& pattern) const override {
    Listing listing{.files = {}, .literal = files_.contains(pattern), .name = pattern, .instead = "; nothing is there"};
    for (const auto& [uri, bytes] : files_)
      if (fnmatch(pattern.c_str(), uri.c_str(), FNM_PATHNAME) == 0) listing.files.push_back(uri);
    return listing;
  }
  io::FileId stat(const std::string& uri) const override { return {uri, bytes_of(uri).size(), version}; }
  std::shared_ptr<const io::SourceFile> open(const std::string& uri) const override {
    return std::make_shared<const MemoryFile>(uri, bytes_of(uri), version);
  }
  std::unique_ptr<io::ReadBackend> make_read_backend(std::vector<io::FileId> files, const io::BackendOptions&,
                                                     io::ReadDone done) const override {
    std::vector<const std::string*> all;
    for (const io::FileId& file : files) all.push_back(&bytes_of(file.uri));
    std::vector<uint64_t> broken(files.size(), UINT64_MAX);
    return std::make_unique<MemoryBackend>(std::move(all), std::move(broken), std::move(done));
  }

  const std::string& bytes_of(const std::string& uri) const {
    const auto file = files_.find(uri);
    if (file == files_.end())
      throw Error(Category::io_error, "cannot be opened: No such file or directory", Place::of_file(uri));
    return file->second;
  }
  /// Changes a file, of which nobody is told.
  std::string& bytes_of(const std::string& uri) { return files_.at(uri); }

  uint64_t version = 1;

 private:
  Files files_;
};

/// Makes a source the one of all names "memory://..." while this object lives. One at a time.
class Mounted {
 public:
  explicit Mounted(const io::Source& source) {
    [[maybe_unused]] static const bool once = [] {
      io::register_source("memory", std::make_unique<const Forward>());
      return true;
    }();
    mounted_ = &source;
  }
  ~Mounted() { mounted_ = nullptr; }
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;

 private:
  struct Forward final : io::Source {
    std::string absolute(const std::string& folder, const std::string& pattern) const override {
      return mounted_.load()->absolute(folder, pattern);
    }
    Listing list(const std::string& folder, const std::string& pattern) const override {
      return mounted_.load()->list(folder, pattern);
    }
    io::FileId stat(const std::string& uri) const override { return mounted_.load()->stat(uri); }
    std::shared_ptr<const io::SourceFile> open(const std::string& uri) const override {
      return mounted_.load()->open(uri);
    }
    std::unique_ptr<io::ReadBackend> make_read_backend(std::vector<io::FileId> files, const io::BackendOptions& options,
                                                       io::ReadDone done) const override {
      return mounted_.load()->make_read_backend(std::move(files), options, std::move(done));
    }
  };
  static inline std::atomic<const io::Source*> mounted_ = nullptr;
};

}  // namespace feedline::test
