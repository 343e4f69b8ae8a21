// Compares the order of samples with TensorFlow's answers (order/README.md): every case of order.json through a Feeder,
// and the distances over which shuffles move records.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "feeder/data.h"
#include "support/catch.h"

namespace feedline::test {
namespace {

const std::string folder = std::string(FEEDLINE_GOLDEN) + "/order";

nlohmann::json load(const std::string& name) {
  std::ifstream in(folder + "/" + name);
  REQUIRE(in);
  return nlohmann::json::parse(in);
}

std::string source_text(const nlohmann::json& files) {
  std::string text = "source {";
  for (const auto& file : files) text += fmt::format(" files: '{}'", file.get<std::string>());
  return text + " }\nfeature { name: 'id' dtype: INT64 }\n";
}

// Returns a message of the manifest as text. Its fields have the names of pipeline.proto.
std::string message_text(const nlohmann::json& golden, const std::string& name) {
  if (!golden.contains(name)) return "";
  std::string text = name + " {";
  for (const auto& [field, value] : golden[name].items()) text += fmt::format(" {}: {}", field, value.dump());
  return text + " }\n";
}

std::string pipeline_text(const nlohmann::json& sets, const nlohmann::json& golden, int batch) {
  std::string text = source_text(sets.at(golden.at("set").get<std::string>()).at("files"));
  if (golden.contains("filter"))
    text +=
        fmt::format("feature {{ name: 'record' dtype: INT64 }}\nfilter: '{}'\n", golden["filter"].get<std::string>());
  if (golden.contains("window") && golden["window"].contains("key"))
    text += fmt::format("feature {{ name: '{}' dtype: INT64 }}\n", golden["window"]["key"].get<std::string>());
  return text + message_text(golden, "interleave") + message_text(golden, "window") +
         fmt::format(
             "output {{ name: 'id' feature: 'id' }}\nbatch {{ global_batch_size: {} last_batch_policy: PARTIAL }}\n"
             "epoch {{ allow_empty: true }}\n",
             batch);
}

// Returns an epoch's ids in the form of `expect`: numbers, or lists of numbers if samples are windows.
nlohmann::json epoch_ids(Feeder& feeder) {
  nlohmann::json ids = nlohmann::json::array();
  while (const auto batch = feeder.next()) {
    const TensorView tensor = batch.at("id");
    const auto values = tensor.as<int64_t>();
    const auto valid = batch.at("@valid").as<const bool>();
    const bool windows = tensor.shape.rank() == 2;
    const auto rows = static_cast<size_t>(batch.valid_count()),
               frames = windows ? static_cast<size_t>(tensor.shape[1]) : 1;
    for (size_t i = 0; i < rows; i++) {
      std::vector<int64_t> sample;  // the missing frames of a short window are filler
      for (size_t f = i * frames; f < (i + 1) * frames; f++)
        if (valid[f]) sample.push_back(values[f]);
      windows ? ids.push_back(sample) : ids.push_back(sample.at(0));
    }
  }
  return ids;
}

// Returns why feedline has no pipeline that asks for the same as the case; null if it has one.
const char* other_question(const nlohmann::json& golden) {
  if (golden["group"] == "shard") return "num_shards is a contiguous part, not every num_shards-th record";
  if (golden["group"] == "choose") return "a mixture draws its choices itself";
  if (golden.value("filter_of", "") == "interleaved") return "filters come before interleave";
  return nullptr;
}

// Figures of orders of 0 .. N-1, as in buffer.json: the mean of each figure and its standard error.
class Figures {
 public:
  explicit Figures(int64_t labels) : labels_(labels) {}

  void add(const std::vector<int64_t>& order) {
    const auto n = static_cast<int64_t>(order.size());
    std::vector<double> moved;
    double displacement = 0;
    int64_t runs = 0;
    for (int64_t i = 0; i < n; i++) {
      const auto label_at = [&](int64_t at) { return order[static_cast<size_t>(at)] * labels_ / n; };
      moved.push_back(static_cast<double>(i - order[static_cast<size_t>(i)]));
      displacement += std::abs(moved.back());
      runs += i == 0 || label_at(i) != label_at(i - 1);
    }
    std::sort(moved.begin(), moved.end());
    note("mean_displacement", displacement / static_cast<double>(n));
    note("first_stays", order.front() == 0);
    note("label_run", static_cast<double>(n) / static_cast<double>(runs));
    for (const int percent : {0, 1, 10, 50, 90, 99, 100}) {
      const double at = percent / 100.0 * static_cast<double>(n - 1);
      const auto below = static_cast<size_t>(at);
      const double above = moved[std::min(below + 1, moved.size() - 1)];
      note(fmt::format("{} %", percent), moved[below] + (at - std::floor(at)) * (above - moved[below]));
    }
  }

  // Both sides have random numbers of their own, but from fixed seeds: 5 standard errors are far off, and the test
  // gives the same result every time.
  void check(const nlohmann::json& golden) const {
    for (const auto& [name, sum] : sums_) {
      const bool quantile = name.ends_with(" %");
      const auto& pair = quantile ? golden.at("quantiles").at(name.substr(0, name.size() - 2)) : golden.at(name);
      const double mean = sum.total / sum.count;
      const double variance = std::max(0.0, sum.squares / sum.count - mean * mean) / (sum.count - 1);
      const double error = std::sqrt(variance + std::pow(pair[1].get<double>(), 2));
      INFO(name << ": " << mean << ", tf.data " << pair[0] << ", standard error of the difference " << error);
      CHECK(std::abs(mean - pair[0].get<double>()) <= 5 * error + 1e-6);
    }
  }

 private:
  struct Sum {
    double count = 0, total = 0, squares = 0;
  };
  void note(const std::string& name, double value) {
    Sum& sum = sums_[name];
    sum.count++;
    sum.total += value;
    sum.squares += value * value;
  }

  int64_t labels_;
  std::map<std::string, Sum> sums_;
};

// Compares `shuffle` with one row of buffer.json.
void check_figures(const Data& data, const std::string& shuffle, int64_t labels, const nlohmann::json& row) {
  constexpr int epochs = 200;
  Feeder feeder(data.pipeline(shuffle + " batch { global_batch_size: 500 last_batch_policy: PARTIAL } seed: 5"));
  Figures figures(labels);
  for (int epoch = 0; epoch < epochs; epoch++) figures.add(read_epoch(feeder).front().all());
  INFO(shuffle << " beside buffer_size " << row.at("buffer_size"));
  figures.check(row);
}

}  // namespace

TEST_CASE("the order of samples is tf.data's") {
  const nlohmann::json golden = load("order.json");
  std::map<std::string, int> run;
  std::map<std::string, std::map<std::string, int>> skipped;
  int number = 0;
  for (const auto& one : golden.at("cases")) {
    const std::string group = one.at("group");
    if (const char* reason = other_question(one)) {
      skipped[group][reason]++;
      continue;
    }
    const std::string text = pipeline_text(golden.at("sets"), one, std::array{1, 7, 64}[number++ % 3]);
    INFO(group << "\n" << text);
    Feeder feeder(parse_pipeline(text, folder));
    CHECK(epoch_ids(feeder) == one.at("expect"));
    run[group]++;
  }
  for (const auto& [group, cases] : run) std::printf("golden order: %-18s %4d run\n", group.c_str(), cases);
  for (const auto& [group, reasons] : skipped)
    for (const auto& [reason, cases] : reasons)
      std::printf("golden order: %-18s %4d skipped: %s\n", group.c_str(), cases, reason.c_str());
}

TEST_CASE("shuffles move records as far as tf.data's buffer does") {
  const nlohmann::json golden = load("buffer.json");
  const int64_t samples = golden.at("samples");
  const Data data({samples});
  std::map<std::string, int> run;
  const auto check = [&](const char* mode, const std::string& shuffle, const nlohmann::json& row) {
    check_figures(data, shuffle, golden.at("labels"), row);
    run[mode]++;
  };
  for (const auto& row : golden.at("figures")) {
    const int64_t size = row.at("buffer_size");
    check("BUFFER", fmt::format("shuffle {{ mode: BUFFER buffer_size: {} }}", size), row);
    if (size >= samples) check("GLOBAL", "shuffle { mode: GLOBAL }", row);
  }
  for (const auto& [mode, rows] : run) std::printf("golden order: %-18s %4d run\n", mode.c_str(), rows);
}

}  // namespace feedline::test
