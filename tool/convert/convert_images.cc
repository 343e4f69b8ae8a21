#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/syscall_hooks.h"
#include "io/file.h"
#include "pictures/decode/picture_info.h"
#include "pictures/shape/render.h"
#include "tool/common/picture_stats.h"
#include "tool/common/text_file.h"
#include "tool/convert/convert.h"
#include "tool/convert/example_writer.h"

namespace feedline::tool {
namespace {

namespace fs = std::filesystem;

using ListFolderOp = HookedCall<"list folder", EIO>;
using TypeOp = HookedCall<"type of file", EACCES>;

constexpr uint64_t most_image_bytes = uint64_t{255} << 20;  // a record has at most 256 MiB

struct Image {
  std::string path;  // absolute, or relative to the current folder
  uint64_t bytes = 0, version = 0;
};

/// Returns what is in the folder, in ascending order of name.
std::vector<fs::directory_entry> list(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error(injected<ListFolderOp>(), std::generic_category());
  if (!error)
    for (fs::directory_iterator entry(folder, error); !error && entry != fs::end(entry); entry.increment(error))
      entries.push_back(*entry);
  if (error) throw io::io_failure(folder, "cannot be listed", error.value());
  std::sort(entries.begin(), entries.end());
  return entries;
}

enum class Is : uint8_t { folder, file, other };

/// Returns what the entry is or, if it is a link, what it leads to. Throws Error io_error for a link that leads
/// nowhere, because its target may be on a disk that is not mounted.
Is what(const fs::directory_entry& entry) {
  std::error_code error(injected<TypeOp>(), std::generic_category());
  if (!error && entry.is_directory(error)) return Is::folder;
  if (!error && entry.is_regular_file(error)) return Is::file;
  if (error) throw io::io_failure(entry.path(), "cannot be opened", error.value());
  return Is::other;
}

/// The files below a folder, also those in folders that are symbolic links.
class FilesBelow {
 public:
  /// Lists the files. Adds to `left_out` what is neither a file nor a folder, and links to a folder in which the link
  /// itself lies.
  FilesBelow(const fs::path& folder, std::vector<std::string>& left_out) : left_out_(left_out) { enter(folder, ""); }

  /// Returns the relative paths in ascending order, byte by byte.
  std::vector<std::string> take() {
    std::sort(files_.begin(), files_.end());
    return std::move(files_);
  }

 private:
  void enter(const fs::path& folder, const fs::path& relative) {
    struct stat status {};
    int error = injected<TypeOp>();
    if (!error && stat(folder.c_str(), &status) != 0) error = errno;
    if (error) throw io::io_failure(folder, "cannot be listed", error);
    const std::pair id(status.st_dev, status.st_ino);
    if (std::find(above_.begin(), above_.end(), id) != above_.end()) {
      left_out_.push_back(folder.string() + ": is a link to a folder that contains the link");
      return;
    }
    above_.push_back(id);
    for (const fs::directory_entry& entry : list(folder)) {
      const fs::path name = relative / entry.path().filename();
      switch (what(entry)) {
        case Is::folder:
          enter(entry.path(), name);
          break;
        case Is::file:
          files_.push_back(name.string());
          break;
        case Is::other:
          left_out_.push_back(entry.path().string() + ": is not a regular file");
      }
    }
    above_.pop_back();
  }

  std::vector<std::string>& left_out_;
  std::vector<std::string> files_;
  std::vector<std::pair<dev_t, ino_t>> above_;  // the folder that is being listed, and those around it
};

/// Looks at a file. Returns nullopt if the file is not to be converted; `why` then has the reason. Throws Error
/// io_error if the file cannot be read.
std::optional<Image> look_at(const std::string& path, std::string& why) {
  const io::InputFile file(path);
  std::array<std::byte, 32> first{};
  const auto begin = std::span(first).first(std::min<uint64_t>(first.size(), file.size()));
  file.read_at(0, begin);
  why = !pictures::format_of(begin)      ? pictures::no_format(begin)
        : file.size() > most_image_bytes ? "the file is larger than 255 MiB, too large for a record"
                                         : "";
  if (!why.empty()) return std::nullopt;
  return Image{path, file.size(), file.version()};
}

/// Calls on_image(relative path, image) for each JPEG or PNG file below a folder, in ascending order of path. Adds
/// files that are neither, and files that are too large, to `left_out`.
void for_each_image(const std::string& folder, std::vector<std::string>& left_out, auto&& on_image) {
  for (const std::string& file : FilesBelow(folder, left_out).take()) {
    const std::string path = (fs::path(folder) / file).string();
    std::string why;
    if (const auto image = look_at(path, why))
      on_image(file, *image);
    else
      left_out.push_back(path + ": " + why);
    Interrupt::check();
  }
}

void read_image(const Image& image, std::vector<std::byte>& content) {
  const io::InputFile file(image.path);
  if (file.size() != image.bytes || file.version() != image.version)
    throw Error(Category::io_error,
                "has changed since it was listed; convert the files again when nothing writes to them",
                Place::of_file(image.path));
  content.resize(image.bytes);
  file.read_at(0, content);
  file.check_unchanged();
}

/// Decodes pictures, and resizes them to one size: uint8 [height, width, 3]. Turns them as their EXIF data says,
/// because the stored pixels have no EXIF data.
class Decoder {
 public:
  explicit Decoder(const pictures::Size& size)
      : size_(size), pixels_(static_cast<size_t>(size.height * size.width * 3)) {}

  /// Returns the pixels, which are valid until the next call. Throws BadPicture.
  std::span<const std::byte> decode(std::span<const std::byte> picture) {
    const pictures::PictureInfo info = pictures::picture_info(picture);
    // A third is added, because a progressive picture in CMYK may need 8 bytes for each pixel, and decoder_memory()
    // reserves 6.
    const int64_t most = std::min(pictures::most_pixels, info.width * info.height * 4 / 3);
    const pictures::DecodeOptions options{.max_pixels = most, .apply_exif = true};
    scratch_.resize(std::max<size_t>(scratch_.size(), pictures::render_memory(options, size_.height)));
    const auto whole = [this](int64_t width, int64_t height) {
      return pictures::Geometry{.source = {0, 0, width, height},
                                .width = size_.width,
                                .height = size_.height,
                                .made = {0, 0, size_.width, size_.height}};
    };
    pictures::render(picture, options, whole, {.filter = pictures::Filter::bilinear_antialiased}, pixels_.data(),
                     scratch_);
    return pixels_;
  }

  /// Returns how a pipeline reads the pixels of the feature `key`.
  TextFeature text(const std::string& key) const {
    return {.key = key,
            .length = static_cast<int64_t>(pixels_.size()),
            .made = {fmt::format("decode_raw {{ stored: UINT8 shape: [{}, {}, 3] layout: HWC }}", size_.height,
                                 size_.width)},
            .remark = "pixels of decoded pictures"};
  }

 private:
  const pictures::Size size_;
  std::vector<std::byte> pixels_, scratch_;
};

/// The records to be written.
struct Plan {
  std::vector<std::string> keys;
  std::vector<std::vector<Image>> records;  // an image for each key
  std::vector<int64_t> labels;              // a label for each record; empty: the records have no labels
};

/// Reads the pictures of a feature in the form that records store, and collects their statistics.
class ImageFeature {
 public:
  ImageFeature(std::string key, const std::optional<pictures::Size>& decode_to) : key_(std::move(key)) {
    if (decode_to) decoder_.emplace(*decode_to);
  }

  /// Returns the bytes to store for an image file, which are valid until the next call. Throws BadPicture.
  std::span<const std::byte> read(const Image& image) {
    read_image(image, file_);
    if (decoder_) return decoder_->decode(file_);
    pictures_.add(file_);
    return file_;
  }

  /// Returns how a pipeline reads the feature. Precondition: read() was called for all `values` values of the feature.
  TextFeature text(uint64_t values) const {
    if (decoder_) return decoder_->text(key_);
    TextFeature text{.key = key_, .remark = "JPEG or PNG files, delivered as they are, because most cannot be read"};
    if (!pictures_.are_most_of(values)) return text;
    text.remark = describe(pictures_, values);
    decode_pictures(text, pictures_, values);
    return text;
  }

 private:
  const std::string key_;
  std::optional<Decoder> decoder_;
  std::vector<std::byte> file_;
  PictureStats pictures_;
};

/// Sets the features of a record. Returns the error of the first of its images that cannot be decoded, if there is one.
std::optional<Error> set_images(const std::vector<Image>& record, std::vector<ImageFeature>& features,
                                ExampleWriter& example) {
  for (size_t f = 0; f < record.size(); f++) try {
      example.set_bytes(f, features[f].read(record[f]));
    } catch (const pictures::BadPicture& bad) {
      return Error(Category::bad_pipeline, fmt::format("cannot be decoded: {}", bad.what()),
                   Place::of_file(record[f].path));
    }
  return std::nullopt;
}

Converted write_images(const Plan& plan, const std::optional<pictures::Size>& decode_to, OutputFolder& out,
                       const ConvertTarget& target, Converted result, const std::vector<std::string>& comments) {
  uint64_t bytes = 0;
  for (const auto& record : plan.records)
    for (const Image& image : record)
      bytes += decode_to ? static_cast<uint64_t>(decode_to->height * decode_to->width * 3) : image.bytes;
  std::vector<std::string> keys = plan.keys;
  if (!plan.labels.empty()) keys.push_back("label");
  ExampleWriter example(keys);
  Progress progress("writing", bytes);
  ShardWriter writer(out, target, "data", plan.records.size(), bytes, progress);
  std::vector<ImageFeature> images;
  for (const std::string& key : plan.keys) images.emplace_back(key, decode_to);
  std::optional<Error> first_bad;
  uint64_t written = 0;
  for (size_t r = 0; r < plan.records.size(); r++) {
    if (const auto bad = set_images(plan.records[r], images, example)) {
      result.left_out.push_back(fmt::format("{}: {}", bad->place().file, bad->message()));
      if (!first_bad) first_bad = bad;
      writer.skip();
      continue;
    }
    if (!plan.labels.empty()) example.set_ints(plan.keys.size(), {&plan.labels[r], 1});
    writer.write(example.finish(), plan.records[r][0].path);
    written++;
  }
  if (written == 0 && first_bad)
    throw Error(first_bad->category(), first_bad->message() + "; every record has such a picture", first_bad->place());
  result.sets.push_back(writer.finish());
  progress.done();

  std::vector<TextFeature> features;
  for (const ImageFeature& image : images) features.push_back(image.text(written));
  if (!plan.labels.empty()) features.push_back({.key = "label", .kind = Kind::int64_list});
  publish(out, result, comments, features);
  return result;
}

}  // namespace

Converted convert_image_classes(const std::string& images, const std::optional<pictures::Size>& decode_to,
                                const ConvertTarget& target) {
  Converted result;
  Plan plan;
  plan.keys = {"image"};
  std::vector<std::string> classes;
  for (const fs::directory_entry& entry : list(images)) {
    if (what(entry) == Is::folder)
      classes.push_back(entry.path().filename());
    else
      result.left_out.push_back(entry.path().string() + ": is not in the folder of a class");
  }
  if (classes.empty())
    refuse_input(images,
                 "has no folders, but needs one folder for each class; if each record has pictures from several "
                 "folders, use --feature NAME=DIR for each folder instead");

  std::string labels;
  int64_t label = 0;
  for (const std::string& name : classes) {
    if (name.find('\n') != std::string::npos)
      refuse_input(images, "the name of a folder has a line break, which labels.txt cannot hold; rename the folder");
    const std::string folder = (fs::path(images) / name).string();
    for_each_image(folder, result.left_out, [&](const std::string&, const Image& image) {
      plan.records.push_back({image});
      plan.labels.push_back(label);
    });
    if (plan.labels.empty() || plan.labels.back() != label)
      result.left_out.push_back(
          fmt::format("{}: has no JPEG or PNG files, so no record has the label of this folder, {}", folder, label));
    labels += name + "\n";
    label++;
  }
  if (plan.records.empty()) refuse_input(images, "has no JPEG or PNG files in the folders of the classes");
  OutputFolder out(target.folder);
  write_text(out.place("labels.txt"), labels);
  return write_images(plan, decode_to, out, target, std::move(result),
                      {fmt::format("Pictures of {} classes: line n + 1 of labels.txt names label n. The records are "
                                   "sorted by class; `feedline split --shuffle` writes them in random order.",
                                   classes.size())});
}

Converted convert_image_sets(const std::vector<std::pair<std::string, std::string>>& folders,
                             const std::optional<pictures::Size>& decode_to, const ConvertTarget& target) {
  Converted result;
  Plan plan;
  std::map<std::string, std::vector<Image>> by_path;
  for (const auto& [key, folder] : folders) {
    for_each_image(folder, result.left_out, [&](const std::string& file, const Image& image) {
      by_path[file].resize(folders.size());
      by_path[file][plan.keys.size()] = image;
    });
    plan.keys.push_back(key);
  }
  for (auto& [file, images] : by_path) {
    std::string missing;
    for (size_t f = 0; f < images.size(); f++)
      if (images[f].path.empty()) missing += (missing.empty() ? "" : ", ") + plan.keys[f];
    if (missing.empty()) {
      plan.records.push_back(std::move(images));
      continue;
    }
    for (const Image& image : images)
      if (!image.path.empty())
        result.left_out.push_back(
            fmt::format("{}: {} has no JPEG or PNG file with the same relative path", image.path, missing));
  }
  if (plan.records.empty())
    refuse_input(folders.front().second,
                 "no JPEG or PNG file has the same relative path in all folders; give the pictures of a record the "
                 "same relative path in each folder");
  OutputFolder out(target.folder);
  return write_images(plan, decode_to, out, target, std::move(result),
                      {fmt::format("Pictures that have the same path in {} folders.", folders.size())});
}

}  // namespace feedline::tool
