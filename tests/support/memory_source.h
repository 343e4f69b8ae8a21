// Data files that lie in memory, with names such as "memory://b/part-000.tfrecord".
#pragma once

#include <fnmatch.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "feedline/error.h"
#include "io/read/source.h"

namespace feedline::test {

class MemoryFile final : public io::SourceFile {
 public:
  MemoryFile(std::string uri, const std::string& bytes) : uri_(std::move(uri)), bytes_(bytes) {}
  const std::string& path() const noexcept override { return uri_; }
  uint64_t size() const noexcept override { return bytes_.size(); }
  void read_at(uint64_t offset, std::span<std::byte> into) const override {
    if (!into.empty()) std::memcpy(into.data(), bytes_.data() + offset, into.size());
  }

 private:
  const std::string uri_;
  const std::string& bytes_;
};

/// Lists and opens files in memory. Who reads them by a backend derives from it.
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
    return std::make_shared<const MemoryFile>(uri, bytes_of(uri));
  }
  std::unique_ptr<io::ReadBackend> make_read_backend(std::vector<io::FileId>, const io::BackendOptions&,
                                                     io::ReadDone) const override {
    return nullptr;
  }

  const std::string& bytes_of(const std::string& uri) const {
    const auto file = files_.find(uri);
    if (file == files_.end()) throw Error(Category::io_error, "no such object", Place::of_file(uri));
    return file->second;
  }
  /// Changes a file, of which nobody is told.
  std::string& bytes_of(const std::string& uri) { return files_.at(uri); }

  uint64_t version = 1;

 private:
  Files files_;
};

}  // namespace feedline::test
