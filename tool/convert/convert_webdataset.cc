#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "tool/common/picture_stats.h"
#include "tool/common/record_map.h"
#include "tool/convert/convert.h"
#include "tool/convert/example_writer.h"
#include "tool/convert/tar_archive.h"

namespace feedline::cli {
namespace {

constexpr uint64_t most_file_bytes = uint64_t{256} << 20;  // what a record can have
constexpr const char* key_feature = "__key__";             // as WebDataset calls it

struct Sample {
  std::string key;                           // the path without its extension
  std::map<std::string, std::string> files;  // extension -> content
};

/// Calls on_sample for each sample of the archives, in order, and left_out with the name of each file that belongs to
/// no sample. Calls progress as read_archive() does.
void for_each_sample(const std::vector<std::string>& archives, auto&& left_out, auto&& progress, auto&& on_sample) {
  for (const std::string& archive : archives) {
    Sample sample;
    const auto finish = [&] {
      if (!sample.files.empty()) on_sample(sample);
      sample.files.clear();
    };
    read_archive(
        archive, most_file_bytes, [](const std::string&) { return true; },
        [&](const std::string& path, std::string content) {
          const size_t name = path.rfind('/') + 1, dot = path.find('.', name);
          if (dot == std::string::npos || dot == name || dot + 1 == path.size()) {
            left_out(fmt::format("{}: {}", archive, path));
            return;
          }
          std::string key = path.substr(0, dot), extension = path.substr(dot + 1);
          std::transform(extension.begin(), extension.end(), extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
          if (key != sample.key) finish();
          sample.key = std::move(key);
          if (!sample.files.try_emplace(extension, std::move(content)).second)
            refuse_input(archive, fmt::format("has two files {}.{} in one sample", sample.key, extension));
        },
        progress);
    finish();
  }
}

/// Returns the number that the text is, with white space around it or not.
std::optional<int64_t> integer_of(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
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

Converted convert_webdataset(const std::vector<std::string>& archives, const ConvertTarget& target) {
  Converted result;
  std::map<std::string, Files> extensions;
  uint64_t samples = 0, bytes = 0, archive_bytes = 0;
  for (const std::string& archive : archives) archive_bytes += identify(archive).size;
  Progress reading("reading", archive_bytes);
  for_each_sample(
      archives, [&](const std::string& file) { result.left_out.push_back(file + ": its name has no extension"); },
      [&](uint64_t read) {
        reading.add(read);
        Interrupt::check();
      },
      [&](const Sample& sample) {
        samples++;
        bytes += sample.key.size() + 32;
        for (const auto& [extension, content] : sample.files) {
          extensions[extension].add(extension, content);
          bytes += extension.size() + content.size() + 16;
        }
      });
  reading.done();
  if (samples == 0)
    refuse_input(archives.front(), "has no sample: no file of it has a name with an extension, such as 000001.jpg");

  make_folder(target.folder);
  std::vector<std::string> keys = {key_feature};
  for (const auto& [extension, files] : extensions) keys.push_back(extension);
  ExampleWriter example(keys);
  Progress writing("writing", bytes);
  ShardWriter writer(target, "data", samples, bytes, writing);
  const auto ignore = [](const auto&) {};
  const auto changed = [&] { refuse_input(archives.front(), "or another archive changed while it was read"); };
  for_each_sample(archives, ignore, ignore, [&](const Sample& sample) {
    if (samples-- == 0) changed();
    example.set_bytes(0, std::string_view(sample.key));
    for (const auto& [extension, content] : sample.files) {
      const auto found = extensions.find(extension);
      if (found == extensions.end()) changed();
      const auto feature = static_cast<size_t>(std::distance(extensions.begin(), found)) + 1;
      if (found->second.integers) {
        const int64_t number = integer_of(content).value_or(0);
        example.set_ints(feature, {&number, 1});
      } else {
        example.set_bytes(feature, std::string_view(content));
      }
    }
    writer.write(example.finish());
  });
  if (samples != 0) changed();
  result.sets.push_back(writer.finish());
  writing.done();

  std::vector<TextFeature> features = {{.key = key_feature}};
  for (const auto& [extension, files] : extensions) features.push_back(files.text(extension, result.sets[0].records));
  write_pipeline(result, target, {"Samples of WebDataset: a feature for each extension."}, features);
  return result;
}

}  // namespace feedline::cli
