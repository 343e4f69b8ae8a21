#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <utility>

#include "base/absolute_path.h"
#include "base/mutex.h"
#include "feedline/error.h"
#include "io/read/source.h"

namespace feedline::io {
namespace {

struct Registry {
  Mutex mutex;
  std::map<std::string, std::unique_ptr<const Source>, std::less<>> sources FEEDLINE_GUARDED_BY(mutex);  // by scheme
};

// Never destroyed, because threads may still read when the process ends.
Registry& registry() {
  static Registry& all = *new Registry;
  return all;
}

// Returns the source of the file or pattern `name`. It lives until the process ends.
const Source& source_of(std::string_view name) {
  const std::string_view scheme = scheme_of(name);
  if (scheme.empty()) return local_files();
  Registry& all = registry();
  const Lock lock(all.mutex);
  const auto found = all.sources.find(scheme);
  return found == all.sources.end() ? local_files() : *found->second;
}

// Reads files of several sources, each through a backend of its source.
class MixedBackend final : public ReadBackend {
 public:
  MixedBackend(std::vector<FileId> files, const BackendOptions& options, const ReadDone& done) {
    std::vector<std::pair<const Source*, std::vector<FileId>>> parts;
    for (FileId& file : files) {
      const Source* const source = &source_of(file.uri);
      auto part = std::ranges::find(parts, source, [](const auto& one) { return one.first; });
      if (part == parts.end()) part = parts.insert(part, {source, {}});
      places_.push_back({static_cast<uint32_t>(part - parts.begin()), static_cast<uint32_t>(part->second.size())});
      part->second.push_back(std::move(file));
    }
    for (auto& [source, of_source] : parts)
      backends_.push_back(source->make_read_backend(std::move(of_source), options, done));
  }
  ~MixedBackend() override { MixedBackend::stop(); }

  void submit(std::span<const Read> reads) override {
    std::array<Read, 32> some;
    while (!reads.empty()) {  // submits successive reads of one backend together
      const uint32_t backend = places_[reads[0].file].backend;
      size_t count = 0;
      for (; count < std::min(reads.size(), some.size()) && places_[reads[count].file].backend == backend; count++)
        some[count] = of_backend(reads[count]);
      backends_[backend]->submit(std::span(some).first(count));
      reads = reads.subspan(count);
    }
  }
  std::optional<int> read_cached(const Read& read) noexcept override {
    return backends_[places_[read.file].backend]->read_cached(of_backend(read));
  }
  int opening() const noexcept override {
    int count = 0;
    for (const auto& backend : backends_) count += backend->opening();
    return count;
  }
  void stop() override {
    for (const auto& backend : backends_) backend->stop();
  }
  std::string description() const override {
    std::string text;
    for (const auto& backend : backends_) text += (text.empty() ? "" : ", and ") + backend->description();
    return text;
  }

 private:
  struct PlaceOfFile {
    uint32_t backend, file;
  };
  Read of_backend(Read read) const noexcept {
    read.file = places_[read.file].file;
    return read;
  }

  std::vector<PlaceOfFile> places_;  // for each file
  std::vector<std::unique_ptr<ReadBackend>> backends_;
};

class AllFiles final : public Source {
 public:
  std::string absolute(const std::string& folder, const std::string& pattern) const override {
    return source_of(pattern).absolute(folder, pattern);
  }
  Listing list(const std::string& folder, const std::string& pattern) const override {
    return source_of(pattern).list(folder, pattern);
  }
  FileId stat(const std::string& uri) const override { return source_of(uri).stat(uri); }
  std::shared_ptr<const SourceFile> open(const std::string& uri) const override { return source_of(uri).open(uri); }
  std::unique_ptr<ReadBackend> make_read_backend(std::vector<FileId> files, const BackendOptions& options,
                                                 ReadDone done) const override {
    const Source& first = files.empty() ? local_files() : source_of(files[0].uri);
    if (std::ranges::all_of(files, [&](const FileId& file) { return &source_of(file.uri) == &first; }))
      return first.make_read_backend(std::move(files), options, std::move(done));
    return std::make_unique<MixedBackend>(std::move(files), options, done);
  }
};

bool is_scheme(std::string_view text) noexcept {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !text.empty() && is_letter(text[0]) && std::ranges::all_of(text, [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
  });
}

}  // namespace

std::string_view scheme_of(std::string_view name) noexcept {
  const std::string_view scheme = name.substr(0, std::min(name.find("://"), name.size()));
  return scheme.size() < name.size() && is_scheme(scheme) ? scheme : std::string_view();
}

void register_source(const std::string& scheme, std::unique_ptr<const Source> source) {
  if (!is_scheme(scheme) || scheme == "file")
    throw Error(
        Category::bad_pipeline,
        fmt::format("'{}' is not a valid scheme of a source; begin with a lower-case letter, continue with lower-case "
                    "letters, digits, +, - or ., and do not use 'file'",
                    scheme));
  Registry& all = registry();
  const Lock lock(all.mutex);
  if (!all.sources.emplace(scheme, std::move(source)).second)
    throw Error(Category::bad_pipeline,
                fmt::format("the scheme '{}' has a source already; use a different scheme", scheme));
}

bool is_path(std::string_view name) { return &source_of(name) == &local_files(); }

std::vector<std::string> schemes() {
  Registry& all = registry();
  const Lock lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [scheme, source] : all.sources) names.push_back(scheme);
  return names;
}

const Source& all_files() {
  static const AllFiles& files = *new AllFiles;  // never destroyed, like the registry
  return files;
}

std::string absolute_name(const std::string& folder, const std::string& name) {
  if (!is_path(name)) return name;
  return absolute_path(std::filesystem::path(folder) / name).lexically_normal().string();
}

}  // namespace feedline::io
