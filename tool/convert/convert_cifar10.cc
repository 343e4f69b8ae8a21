#include <fmt/format.h>

#include <map>
#include <stdexcept>

#include "io/file.h"
#include "tool/convert/cifar10.h"
#include "tool/convert/convert.h"
#include "tool/convert/example_writer.h"
#include "tool/convert/tar_archive.h"

namespace feedline::tool {
namespace {

constexpr uint64_t most_batch_bytes = uint64_t{64} << 20;  // a batch has 31 MB

// The batches of each set.
const std::vector<std::pair<std::string, std::vector<std::string>>> sets = {
    {"train", {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin"}},
    {"validation", {"data_batch_5.bin"}},
    {"eval", {"test_batch.bin"}},
};

std::map<std::string, Cifar10Batch> read_batches(const std::string& archive) {
  std::map<std::string, Cifar10Batch> batches;
  const auto batch_of = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  bool is_pickled = false;
  const io::InputFile file(archive);
  Progress progress("reading", file.size());
  const auto ignore = [](const auto&...) {};
  read_archive(file, most_batch_bytes,
               {.wanted =
                    [&](const std::string& path) {
                      is_pickled |= batch_of(path) == "test_batch";
                      for (const auto& [set, names] : sets)
                        for (const std::string& name : names)
                          if (batch_of(path) == name) return true;
                      return false;
                    },
                .on_file =
                    [&](const std::string& path, const std::string& content) {
                      try {
                        if (!batches.try_emplace(batch_of(path), read_cifar10_batch(content)).second)
                          throw std::runtime_error("the archive has this file twice");
                      } catch (const std::runtime_error& error) {
                        refuse_input(archive, fmt::format("{} in the archive: {}", path, error.what()));
                      }
                    },
                .on_hard_link = ignore,
                .on_other = ignore,
                .progress =
                    [&](uint64_t bytes) {
                      progress.add(bytes);
                      Interrupt::check();
                    }});
  if (is_pickled && batches.empty())
    refuse_input(archive,
                 "is CIFAR-10's \"python version\", whose batches only Python can read; use the \"binary version\", "
                 "cifar-10-binary.tar.gz, which has the same pictures and is on the same web page");
  for (const auto& [set, names] : sets)
    for (const std::string& name : names)
      if (!batches.contains(name))
        refuse_input(archive,
                     fmt::format("has no file {}; use a complete archive of CIFAR-10's \"binary version\"", name));
  return batches;
}

}  // namespace

Converted convert_cifar10(const std::string& archive, const ConvertTarget& target) {
  const auto batches = read_batches(archive);
  uint64_t pictures = 0;
  for (const auto& [name, batch] : batches) pictures += batch.labels.size();
  OutputFolder out(target.folder);
  Progress progress("writing", pictures * cifar10_image_bytes);
  Converted result;
  for (const auto& [set, names] : sets) {
    uint64_t records = 0;
    for (const std::string& name : names) records += batches.at(name).labels.size();
    ExampleWriter example({"image", "label"});
    ShardWriter writer(out, target, set, records, records * (cifar10_image_bytes + 48), progress);
    for (const std::string& name : names) {
      const Cifar10Batch& batch = batches.at(name);
      for (size_t i = 0; i < batch.labels.size(); i++) {
        const int64_t label = batch.labels[i];
        example.set_bytes(0, std::string_view(batch.images).substr(i * cifar10_image_bytes, cifar10_image_bytes));
        example.set_ints(1, {&label, 1});
        writer.write(example.finish(), archive);
      }
    }
    result.sets.push_back(writer.finish());
  }
  progress.done();
  TextFeature image{.key = "image", .length = cifar10_image_bytes};
  image.output_dtype = "FLOAT32";
  // The scale is 1 / 255. The pictures stay separate planes.
  image.made = {"decode_raw { stored: UINT8 shape: [3, 32, 32] layout: CHW } normalize { scale: 0.00392156862745098 }"};
  const TextFeature label{.key = "label", .kind = Kind::int64_list};
  publish(out, result,
          {"CIFAR-10, three planes of 32 x 32, as float32 from 0 to 1. This is the training set. The others:",
           fmt::format("source {{ files: {} }}", text_literal(result.sets[1].pattern())),
           fmt::format("source {{ files: {} }}", text_literal(result.sets[2].pattern()))},
          {image, label});
  return result;
}

}  // namespace feedline::tool
