#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "base/parse.h"
#include "io/file.h"
#include "tool/common/picture_stats.h"
#include "tool/convert/convert.h"
#include "tool/convert/example_writer.h"
#include "tool/convert/tar_archive.h"

namespace feedline::tool {
namespace {

constexpr uint64_t most_record_bytes = uint64_t{256} << 20, most_linked_bytes = uint64_t{1} << 30;
constexpr const char* key_feature = "__key__";  // as WebDataset calls it

[[noreturn]] void refuse_changed(const std::string& archive) {
  throw Error(Category::io_error, "has changed since it was read; convert it again when nothing writes to it",
              Place::of_file(archive));
}

/// An archive, with its size and version from the beginning of the conversion.
struct Archive {
  explicit Archive(const std::string& where) : path(where) {
    const io::InputFile file(path);
    size = file.size();
    version = file.version();
  }
  /// Returns the file. Throws Error io_error if it has changed.
  io::InputFile open() const {
    io::InputFile file(path);
    if (file.size() != size || file.version() != version) refuse_changed(path);
    return file;
  }

  std::string path;
  uint64_t size = 0, version = 0;
  std::set<std::string> linked;  // the targets of the hard links that were found so far
};

struct Sample {
  std::string key;                           // the path without its extension
  std::map<std::string, std::string> files;  // extension -> content
  uint64_t bytes = 0;                        // of all contents
};

/// Calls on_sample(sample, path of its archive) for each sample of the archives, in order, and left_out with a text for
/// each member that belongs to no sample. Calls progress as read_archive() does.
///
/// Files that Archive::linked names are kept in memory for the hard links to them. If a hard link has another target,
/// the target is added to Archive::linked, and the link's sample lacks the file. Then all archives must be read again.
void for_each_sample(std::vector<Archive>& archives, auto&& left_out, auto&& progress, auto&& on_sample) {
  for (Archive& archive : archives) {
    Sample sample;
    const auto finish = [&] {
      if (!sample.files.empty()) on_sample(sample, archive.path);
      sample.files.clear();
      sample.bytes = 0;
    };
    const auto leave_out = [&](const std::string& path, const std::string& why) {
      left_out(fmt::format("{}: {}: {}", archive.path, path, why));
    };
    const auto dot_of = [](const std::string& path) {  // npos if the name has no extension
      const size_t name = path.rfind('/') + 1, dot = path.find('.', name);
      return dot == name || dot + 1 == path.size() ? std::string::npos : dot;
    };
    const auto add = [&](const std::string& path, std::string content) {
      const size_t dot = dot_of(path);
      if (dot == std::string::npos) return leave_out(path, "its name has no extension");
      std::string key = path.substr(0, dot), extension = path.substr(dot + 1);
      std::transform(extension.begin(), extension.end(), extension.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      if (extension == key_feature)
        return leave_out(path, fmt::format("{} is reserved for the path of the sample", key_feature));
      if (key != sample.key) finish();
      sample.key = std::move(key);
      sample.bytes += content.size();
      if (sample.bytes > most_record_bytes)
        refuse_input(archive.path, fmt::format("sample {} has more than {} bytes, the largest size of a record; leave "
                                               "out or shrink files of the sample",
                                               sample.key, most_record_bytes));
      if (!sample.files.try_emplace(extension, std::move(content)).second)
        refuse_input(archive.path, fmt::format("has two files {}.{} in one sample; rename one", sample.key, extension));
    };
    std::map<std::string, std::string> linked;  // path -> content
    uint64_t linked_bytes = 0;
    const auto keep_linked = [&](const std::string& path, const std::string& content) {
      if (!archive.linked.contains(path)) return;
      linked_bytes += content.size();
      if (linked_bytes > most_linked_bytes)
        refuse_input(archive.path,
                     fmt::format("hard links in the archive point to files of more than {} bytes in total, too much to "
                                 "keep in memory; make the archive again with `tar --hard-dereference`",
                                 most_linked_bytes));
      linked[path] = content;
    };
    const bool whole = read_archive(
        archive.open(), most_record_bytes,
        {.wanted =
             [&](const std::string& path) {
               if (dot_of(path) != std::string::npos || archive.linked.contains(path)) return true;
               add(path, "");  // leaves it out, whatever its size
               return false;
             },
         .on_file =
             [&](const std::string& path, std::string content) {
               keep_linked(path, content);
               add(path, std::move(content));
             },
         .on_hard_link =
             [&](const std::string& path, const std::string& target) {
               if (const auto found = linked.find(target); found != linked.end()) {
                 keep_linked(path, found->second);  // a later link may have this link as its target
                 add(path, found->second);
               } else if (!archive.linked.insert(target).second) {
                 leave_out(path, fmt::format("is a hard link to {}, which must come earlier in the archive", target));
               }
             },
         .on_other = [&](const std::string& path, const std::string& what) { leave_out(path, "is " + what); },
         .progress = progress});
    finish();
    if (!whole) left_out(archive.path + ": has no end-of-archive mark, so the last files may be missing");
  }
}

/// Returns the text as an integer, and ignores white space around it. Returns nullopt if the text is not an integer.
std::optional<int64_t> integer_of(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return parse_number<int64_t>(text);
}

/// What the files with one extension are.
struct Files {
  uint64_t count = 0;
  bool integers = false;  // all are numbers, and WebDataset reads this extension as numbers
  PictureStats pictures;

  void add(const std::string& extension, const std::string& content) {
    static constexpr std::array numbers = {"cls", "cls2", "class", "count", "index", "inx", "id"};
    if (count++ == 0) integers = std::find(numbers.begin(), numbers.end(), extension) != numbers.end();
    integers = integers && integer_of(content);
    pictures.add(std::as_bytes(std::span(content)));
  }

  TextFeature text(const std::string& extension, uint64_t samples) const {
    TextFeature text{.key = extension, .missing = count < samples};
    if (integers) text.kind = Kind::int64_list;
    if (pictures.are_most_of(count)) {
      text.remark = describe(pictures, count);
      decode_pictures(text, pictures, count);
    }
    return text;
  }
};

}  // namespace

Converted convert_webdataset(const std::vector<std::string>& paths, const ConvertTarget& target) {
  Converted result;
  std::map<std::string, Files> extensions;
  uint64_t samples = 0, bytes = 0, archive_bytes = 0;
  std::vector<Archive> archives(paths.begin(), paths.end());
  for (const Archive& archive : archives) archive_bytes += archive.size;
  const auto linked = [&] {
    size_t count = 0;
    for (const Archive& archive : archives) count += archive.linked.size();
    return count;
  };
  for (std::optional<size_t> known; known != linked();) {
    known = linked();
    result.left_out.clear();
    extensions.clear();
    samples = bytes = 0;
    Progress reading("reading", archive_bytes);
    for_each_sample(
        archives, [&](std::string text) { result.left_out.push_back(std::move(text)); },
        [&](uint64_t read) {
          reading.add(read);
          Interrupt::check();
        },
        [&](const Sample& sample, const std::string&) {
          samples++;
          bytes += sample.key.size() + 32;
          for (const auto& [extension, content] : sample.files) {
            extensions[extension].add(extension, content);
            bytes += extension.size() + content.size() + 16;
          }
        });
    reading.done();
  }
  if (samples == 0)
    refuse_input(paths.front(), fmt::format("{} no samples: no file in it has a name with an extension, such as "
                                            "000001.jpg",
                                            paths.size() > 1 ? "has, as all the other archives have," : "has"));

  OutputFolder out(target.folder);
  std::vector<std::string> keys = {key_feature};
  for (const auto& [extension, files] : extensions) keys.push_back(extension);
  ExampleWriter example(keys);
  Progress writing("writing", bytes);
  ShardWriter writer(out, target, "data", samples, bytes, writing);
  const auto ignore = [](const auto&) {};
  for_each_sample(archives, ignore, ignore, [&](const Sample& sample, const std::string& archive) {
    example.set_bytes(0, std::string_view(sample.key));
    for (const auto& [extension, content] : sample.files) {
      const auto found = extensions.find(extension);
      if (found == extensions.end()) refuse_changed(archive);
      const auto feature = static_cast<size_t>(std::distance(extensions.begin(), found)) + 1;
      if (found->second.integers) {
        const int64_t number = integer_of(content).value_or(0);
        example.set_ints(feature, {&number, 1});
      } else {
        example.set_bytes(feature, std::string_view(content));
      }
    }
    writer.write(example.finish(), archive);
  });
  result.sets.push_back(writer.finish());
  writing.done();

  std::vector<TextFeature> features = {{.key = key_feature}};
  for (const auto& [extension, files] : extensions) features.push_back(files.text(extension, result.sets[0].records));
  publish(out, result, {"Samples of WebDataset: a feature for each extension."}, features);
  return result;
}

}  // namespace feedline::tool
