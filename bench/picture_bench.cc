// Measures how close decoding and shaping pictures comes to bare loops over libjpeg-turbo and libpng, and how feeds of
// pictures grow with the cores:
// picture_bench [--rounds N] [--threads N,...] [--json FILE] [--data DIR]
//
// Every figure is a rate in pictures/s; on one CPU, of CPU time, so that other programs matter little. Each round
// measures every bare loop and every way through feedline once, in turn, on one CPU, and on each number of them that
// --threads gives. A ratio is taken within a round. The program prints the median over the rounds with the smallest and the largest.
// bench/results/pictures.md defines each metric.
#include <fmt/format.h>
#include <oneapi/tbb/info.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <variant>

#include "feedline/feeder.h"
#include "measure.h"
#include "on_cpus.h"
#include "photos.h"
#include "picture_ceilings.h"
#include "pictures/decode/jpeg_decoder.h"
#include "pictures/decode/png_decoder.h"
#include "pictures/shape/render.h"
#include "rounds.h"

namespace feedline::bench {
namespace {

namespace fs = std::filesystem;
using pictures::Window;

constexpr size_t photos = 32;      // they take 2 MB as JPEGs
constexpr uint64_t records = 512;  // of the files that feeds read; each photo comes 16 times
constexpr Window whole{0, 0, 500, 375};
constexpr Window part{100, 38, 300, 300};  // of a JPEG, which is resized
constexpr int64_t side = 224;              // to so many rows and columns
constexpr Window square{0, 0, 256, 256};   // a whole PNG
constexpr size_t decoded_bytes = 500 * 375 * 3;
constexpr size_t kept = 256, batches = 192;  // pictures that a bare copy reads, and has room for: more than caches take
const std::vector<float> mean = {0.4914f, 0.4822f, 0.4465f}, deviation = {0.2470f, 0.2435f, 0.2616f};

std::span<const std::byte> bytes_of(const std::string& picture) { return std::as_bytes(std::span(picture)); }

/// Returns the 256 x 256 pixels in the middle of a picture.
test::Pixels middle_of(const test::Pixels& from) {
  test::Pixels to{square.width, square.height, from.channels, {}};
  const int64_t left = (from.width - to.width) / 2, top = (from.height - to.height) / 2;
  for (int64_t y = top; y < top + to.height; y++) {
    const auto row = from.bytes.begin() + (y * from.width + left) * from.channels;
    to.bytes.insert(to.bytes.end(), row, row + to.width * from.channels);
  }
  return to;
}

/// The pictures: JPEGs of 500 x 375 pixels in quality 90, and PNGs of their middle.
struct Encoded {
  std::vector<std::string> jpegs, pngs;
  std::vector<std::byte> decoded = std::vector<std::byte>(kept * decoded_bytes);  // of many pictures, for a bare copy
  Encoded() {
    for (const test::Pixels& pixels : make_photos(photos)) {
      jpegs.push_back(test::to_jpeg(pixels));
      pngs.push_back(test::to_png(middle_of(pixels)));
    }
  }
};

/// Decodes a window of a picture into `pixels`, row after row.
template <typename Decoder>
void decode(const std::string& picture, const Window& window, std::vector<uint8_t>& pixels) {
  Decoder decoder(bytes_of(picture), {});
  decoder.begin(window);
  const auto row_bytes = static_cast<size_t>(window.width * decoder.channels());
  pixels.resize(row_bytes * static_cast<size_t>(window.height));
  for (size_t y = 0; y < static_cast<size_t>(window.height); y++) decoder.read_row(pixels.data() + y * row_bytes);
  decoder.finish();
}

/// What one thread works with. The memory that it writes to stays in its caches.
class PictureWorker {
 public:
  explicit PictureWorker(const Encoded& encoded) : encoded_(encoded) {
    for (size_t c = 0; c < 3; c++) {
      scale_[c] = 1 / (255 * deviation[c]);
      bias_[c] = -mean[c] / deviation[c];
    }
    decoded_ = libjpeg_.decode(encoded.jpegs.front(), part);
    resize();
    const std::vector<float> bare = tensor_;
    render(encoded.jpegs.front());
    for (size_t i = 0; i < bare.size(); i++)
      if (!(std::abs(bare[i] - tensor_[i]) < 1e-5f))
        throw std::runtime_error(
            fmt::format("value {} of a tensor is {}, and {} by the bare loops", i, tensor_[i], bare[i]));
  }

  // Each of these works on all pictures, and returns their number.
  uint64_t libjpeg(const Window& window) {
    return with_each(encoded_.jpegs, [&](const std::string& jpeg) { decoded_ = libjpeg_.decode(jpeg, window); });
  }
  uint64_t copy() {
    copies_.resize(batches * decoded_bytes);
    for (size_t i = 0; i < kept; i++)
      std::memcpy(copies_.data() + i % batches * decoded_bytes, encoded_.decoded.data() + i * decoded_bytes,
                  decoded_bytes);
    return kept;
  }
  uint64_t libpng() {
    return with_each(encoded_.pngs, [&](const std::string& png) { decode_bare_png(png, pixels_); });
  }
  uint64_t resize_bare() {
    decoded_ = libjpeg_.decode(encoded_.jpegs.front(), part);
    return with_each(encoded_.jpegs, [&](const std::string&) { resize(); });
  }
  uint64_t jpeg(const Window& window) {
    return with_each(encoded_.jpegs,
                     [&](const std::string& jpeg) { decode<pictures::JpegDecoder>(jpeg, window, pixels_); });
  }
  uint64_t png() {
    return with_each(encoded_.pngs,
                     [&](const std::string& png) { decode<pictures::PngDecoder>(png, square, pixels_); });
  }
  uint64_t to_tensors() {
    return with_each(encoded_.jpegs, [&](const std::string& jpeg) { render(jpeg); });
  }

 private:
  static uint64_t with_each(const std::vector<std::string>& pictures, auto&& work) {
    for (const std::string& picture : pictures) work(picture);
    return pictures.size();
  }
  void resize() { resize_(decoded_, scale_, bias_, tensor_.data()); }
  void render(const std::string& jpeg) {
    static constexpr pictures::Geometry geometry{part, side, side, {0, 0, side, side}};
    pictures::render(
        bytes_of(jpeg), options_, [](int64_t, int64_t) { return geometry; }, finish_,
        reinterpret_cast<std::byte*>(tensor_.data()), scratch_);
  }

  const Encoded& encoded_;
  BareJpeg libjpeg_;
  BareJpeg::Rows decoded_;
  BareResize resize_{part.width, side};
  float scale_[3], bias_[3];
  const pictures::DecodeOptions options_{.max_pixels = whole.width * whole.height};
  const pictures::Finish finish_{.dtype = DType::float32,
                                 .filter = pictures::Filter::bilinear_antialiased,
                                 .channels_first = true,
                                 .scale = 1 / 255.0f,
                                 .mean = mean,
                                 .std = deviation};
  std::vector<std::byte> scratch_ = std::vector<std::byte>(pictures::render_memory(options_));
  std::vector<uint8_t> pixels_;
  std::vector<std::byte> copies_;
  std::vector<float> tensor_ = std::vector<float>(static_cast<size_t>(3 * side * side));
};

/// One line of the result.
struct Row {
  std::string name;
  std::variant<std::function<uint64_t(PictureWorker&)>, Pipeline> work;  // on each CPU by itself, or a feed on all
  std::vector<std::string> against = {};  // the names of earlier rows; one that is against none is a bare loop
  double wanted = 0;                      // the wanted ratio to the rate of doing these rows one after another
};

class Bench {
 public:
  Bench(std::string folder, const std::vector<size_t>& counts)
      : folder_(std::move(folder)), cpus_(choose_cpus(std::ranges::max(counts))), tables_(counts, "pictures/s") {
    for (const CpuTables::Many& on : tables_.many)
      first_.emplace_back(fmt::format("first batch on {} cores against 1", on.cpus), "scaling");
    pin_all(cpus_);
    tbb::info::default_concurrency();  // oneTBB counts the CPUs only once, so it must see all of them now
    fs::create_directories(folder_);
    write("jpeg", encoded_.jpegs);
    write("png", encoded_.pngs);
    for (size_t t = 0; t < cpus_.size(); t++) workers_.push_back(std::make_unique<PictureWorker>(encoded_));
    rows_ = {
        {"libjpeg-turbo", [](PictureWorker& worker) { return worker.libjpeg(whole); }},
        {"JPEG decoded", [](PictureWorker& worker) { return worker.jpeg(whole); }, {"libjpeg-turbo"}, 0.95},
        {"JPEG decoded, feed", feed("jpeg", "decode"), {"libjpeg-turbo"}},
        {"memory copy", [](PictureWorker& worker) { return worker.copy(); }},
        {"kept in memory, feed", cached("MEMORY"), {"memory copy"}, 0.75},
        {"kept in memory, feed", cached("MEMORY"), {"JPEG decoded, feed"}, 10},
        {"kept on a disk, feed", cached("DISK"), {"JPEG decoded, feed"}},
        {"libjpeg-turbo, window", [](PictureWorker& worker) { return worker.libjpeg(part); }},
        {"JPEG's window decoded",
         [](PictureWorker& worker) { return worker.jpeg(part); },
         {"libjpeg-turbo, window"},
         0.95},
        {"resize", [](PictureWorker& worker) { return worker.resize_bare(); }},
        {"JPEG to 224",
         [](PictureWorker& worker) { return worker.to_tensors(); },
         {"libjpeg-turbo, window", "resize"},
         0.85},
        {"JPEG to 224, feed", feed("jpeg", "resize"), {"libjpeg-turbo, window", "resize"}},
        {"libpng", [](PictureWorker& worker) { return worker.libpng(); }},
        {"PNG decoded", [](PictureWorker& worker) { return worker.png(); }, {"libpng"}, 0.95},
        {"PNG decoded, feed", feed("png", "decode"), {"libpng"}},
    };
  }

  void round() {
    const Rates one = measure(Cpus(cpus_).first(1), tables_.one);
    for (size_t i = 0; i < tables_.many.size(); i++) {
      CpuTables::Many& on = tables_.many[i];
      const Rates many = measure(Cpus(cpus_).first(on.cpus), on.rates);
      for (const Row& row : rows_) {
        const auto* pipeline = std::get_if<Pipeline>(&row.work);
        if (!pipeline) continue;
        const double ceiling = compose(row, many) / compose(row, one);
        on.scaling.add(name(row), many.at(row.name) / one.at(row.name), ceiling, 0.95);
        first_[i].add(name(row), first_batch_s(*pipeline, 1) / first_batch_s(*pipeline, on.cpus), ceiling, 0);
      }
    }
  }

  bool print(const std::string& json_file) const { return tables_.print(json_file, first_); }

 private:
  std::string file(const std::string& set) const { return fs::absolute(folder_) / (set + ".tfrecord"); }
  void write(const std::string& set, const std::vector<std::string>& pictures) const {
    size_t next = 0;
    make_file(file(set), records, [&](Random&) { return record_of(pictures[next++ % pictures.size()]); });
  }
  /// Returns the pipeline of the comparison with other loaders.
  Pipeline feed(const std::string& set, const std::string& work) const {
    const std::string path = in_source("bench/peers/" + set);
    return load_pipeline(path + ".textproto")
        .overlaid(load_pipeline(fmt::format("{}-{}.textproto", path, work)).text())
        .with("source.files", file(set));
  }

  /// Returns the pipeline that decodes JPEGs, with a cache. Its first epoch, which fills the cache, is not measured.
  Pipeline cached(const std::string& where) const {
    const Pipeline pipeline = feed("jpeg", "decode")
                                  .with("cache.where", where)
                                  .with("cache.what", "DECODED")
                                  .with("cache.limit", "1GiB")
                                  .with("memory.limit", "4GiB");
    return where == "DISK" ? pipeline.with("cache.dir", folder_) : pipeline;
  }

  static std::string name(const Row& row) { return title(row.name, row.against); }
  static double compose(const Row& row, const Rates& rates) { return composed_rate(row.name, row.against, rates); }

  Rates measure(Cpus cpus, Table& table) {
    pin_all(cpus);
    Rates rates;
    for (const Row& row : rows_) {
      const auto* work = std::get_if<std::function<uint64_t(PictureWorker&)>>(&row.work);
      // A feeder that waits for its turn would go on preparing batches.
      const auto feeder = work ? nullptr : make_feeder(std::get<Pipeline>(row.work), cpus.size());
      if (feeder && feeder->report().cache_share) epoch(*feeder);
      const auto once = [&](size_t t) { return work ? (*work)(*workers_[t]) : epoch(*feeder); };
      if (cpus.size() == 1)
        rates[row.name] = rate([&] { return once(0); }, [](auto&& timed) { return cpu_seconds(timed); });
      else
        rates[row.name] = work ? rate_on_each(cpus, once) : rate([&] { return once(0); });
      table.add(name(row), rates[row.name], compose(row, rates), row.wanted);
    }
    return rates;
  }

  static std::unique_ptr<Feeder> make_feeder(const Pipeline& pipeline, size_t threads) {
    Options options;
    options.threads = static_cast<int>(threads);
    return std::make_unique<Feeder>(pipeline, options);
  }
  // Returns the time from before a feeder is made to its first batch.
  double first_batch_s(const Pipeline& pipeline, size_t threads) const {
    pin_all(Cpus(cpus_).first(threads));
    std::unique_ptr<Feeder> feeder;
    return seconds([&] {
      feeder = make_feeder(pipeline, threads);
      feeder->next();
    });
  }

  const std::string folder_;
  const std::vector<int> cpus_;
  const Encoded encoded_;
  std::vector<std::unique_ptr<PictureWorker>> workers_;  // one for each CPU
  std::vector<Row> rows_;
  CpuTables tables_;
  std::vector<Table> first_;  // one for each of tables_.many
};

}  // namespace
}  // namespace feedline::bench

int main(int argc, char** argv) {
  return feedline::bench::guarded("picture_bench", [&] {
    return feedline::bench::run_rounds<feedline::bench::Bench>(
        argc, argv, "Rates of decoding and shaping pictures beside their ceilings", "100 MB");
  });
}
