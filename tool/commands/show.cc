// feedline show: draws the pictures of an epoch's first samples on a sheet.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "feedline/feeder.h"
#include "io/output_file.h"
#include "tool/commands/commands.h"
#include "tool/commands/flags.h"
#include "tool/commands/pipeline_flags.h"
#include "tool/common/interrupt.h"
#include "tool/common/terminal.h"
#include "tool/feeding/contact_sheet.h"
#include "tool/feeding/pipeline_args.h"
#include "tool/feeding/scalar_text.h"
#include "trainer_bridge/picture_output.h"

namespace feedline::tool {
namespace {

struct ShowArgs {
  PipelineArgs pipeline;
  std::string out;
  uint64_t epoch = 0;
  int64_t samples = 32;
};

/// Returns the outputs that are pictures. Throws Error bad_pipeline if there are none.
std::vector<PictureOutput> pictures_of(const Feeder& feeder, const Pipeline& pipeline) {
  std::vector<PictureOutput> pictures;
  std::string others;
  for (const ElementSpec& element : feeder.elements()) {
    if (auto picture = PictureOutput::of(element, pipeline)) pictures.push_back(std::move(*picture));
    others += fmt::format(" {} ({} {})", element.name, name(element.dtype), to_string(element.shape));
  }
  if (pictures.empty())
    throw Error(
        Category::bad_pipeline,
        fmt::format("none of the outputs is a picture; the outputs are:{}. A picture is UINT8 or floats of the shape "
                    "[height, width, 1 or 3], or of [1 or 3, height, width] with layout CHW. Add decode_image to an "
                    "output, or decode_raw with such a shape and its layout, or let `feedline inspect --pipeline "
                    "FILE...` write the pipeline",
                    others));
  return pictures;
}

/// Returns the replica's next batch, or an empty one at the end of the epoch. Throws Error stalled after an interrupt.
Batch shown_batch(Feeder& feeder, int replica) {
  Batch batch;
  while (feeder.next(replica, std::chrono::milliseconds(100), batch) == Next::not_ready) Interrupt::check();
  return batch;
}

/// The sheet, and a line of text for each of its cells.
class Sheet {
 public:
  Sheet(std::vector<PictureOutput> pictures, std::vector<ElementSpec> elements, int64_t most_samples)
      : pictures_(std::move(pictures)), elements_(std::move(elements)), drawn_(sizes_of(pictures_), most_samples) {}

  int64_t samples() const noexcept { return drawn_.cells(); }

  void add(const Batch& batch, int64_t row) {
    drawn_.add_cell();
    const auto valid = batch.at("@valid").as<const bool>();
    const auto frames = static_cast<int64_t>(valid.size()) / batch.rows();
    bool filler = true;
    size_t place = 0;
    for (const PictureOutput& output : pictures_) {
      rgb_.resize(static_cast<size_t>(output.height() * output.width() * 3));
      for (int64_t picture = 0; picture < output.frames(); picture++, place++) {
        const int64_t frame = picture * frames / output.frames();
        if (!valid[static_cast<size_t>(row * frames + frame)]) continue;
        filler = false;
        output.to_rgb(batch.at(output.name()), row * output.frames() + picture, rgb_);
        drawn_.draw(place, rgb_);
      }
    }
    std::string scalars = filler ? "filler" : "";
    for (const ElementSpec& element : elements_)
      if (const auto text = filler ? std::nullopt : scalar_text(batch, element, row, frames))
        scalars += fmt::format("{}{} {}", scalars.empty() ? "" : ", ", element.name, *text);
    const int64_t cell = drawn_.cells() - 1;
    lines_ += fmt::format("row {}, column {}{}{}\n", cell / drawn_.cells_in_a_row() + 1,
                          cell % drawn_.cells_in_a_row() + 1, scalars.empty() ? "" : ": ", scalars);
  }

  std::vector<std::byte> to_png() const { return drawn_.to_png(); }

  /// Returns the names of a cell's pictures, from left to right, and a line for each cell.
  std::string text() const {
    std::string names;
    for (const PictureOutput& output : pictures_)
      names += fmt::format("{}{} ({} x {}{})", names.empty() ? "" : ", ", output.name(), output.width(),
                           output.height(), output.frames() > 1 ? fmt::format(", {} frames", output.frames()) : "");
    return names + "\n" + lines_;
  }

 private:
  static std::vector<ContactSheet::Size> sizes_of(const std::vector<PictureOutput>& pictures) {
    std::vector<ContactSheet::Size> sizes;
    for (const PictureOutput& output : pictures)
      sizes.insert(sizes.end(), static_cast<size_t>(output.frames()), {output.height(), output.width()});
    return sizes;
  }

  const std::vector<PictureOutput> pictures_;
  const std::vector<ElementSpec> elements_;
  ContactSheet drawn_;
  std::vector<uint8_t> rgb_;
  std::string lines_;
};

int show(const ShowArgs& args) {
  const Interrupt interrupt;
  const Pipeline pipeline = load(args.pipeline);
  Options options = feeder_options(args.pipeline);
  options.epoch = args.epoch;
  Feeder feeder(pipeline, std::move(options));
  print_warnings(feeder);
  const int64_t most =
      feeder.samples_per_epoch() < 1 ? args.samples : std::min(args.samples, feeder.samples_per_epoch());
  Sheet sheet(pictures_of(feeder, pipeline), feeder.elements(), most);
  io::remove_unfinished(args.out);
  io::OutputFile file(args.out);
  for (bool more = true; more && sheet.samples() < args.samples;) {
    more = false;
    for (int replica = 0; replica < feeder.replicas() && sheet.samples() < args.samples; replica++) {
      const Batch batch = shown_batch(feeder, replica);
      if (!batch) continue;
      more = true;
      for (int64_t row = 0; row < batch->rows() && sheet.samples() < args.samples; row++) sheet.add(batch, row);
    }
  }
  if (sheet.samples() == 0) throw Error(Category::bad_pipeline, fmt::format("epoch {} has no samples", args.epoch));
  file.write(sheet.to_png());
  file.publish();
  fmt::print("{} of epoch {} in {}: {}", format_count(static_cast<uint64_t>(sheet.samples()), "sample"), args.epoch,
             args.out, without_controls(sheet.text(), "\n"));
  return 0;
}

}  // namespace

void add_show(CLI::App& app, Run& run) {
  const auto [command, args] =
      add_command(app, run, "show", "draw the pictures of an epoch's first samples on one sheet, a PNG", show);
  add_pipeline_args(command, args.pipeline);
  add_option(command, "--out FILE", args.out, "PNG file to write; an existing file is replaced")->required();
  add_number(command, "--samples N", args.samples, whole_number(1, 1'000'000),
             "show the first N samples (default: 32)");
  add_number(command, "--epoch E", args.epoch, whole_number(0), "number of the epoch; the first is 0 (default: 0)");
}

}  // namespace feedline::tool
