#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

#include "base/absolute_path.h"
#include "base/byte_size.h"
#include "base/machine.h"
#include "feedline/error.h"
#include "flowgraph/pipeline/resolve_cache.h"
#include "flowgraph/pipeline/resolve_features.h"
#include "flowgraph/pipeline/resolve_outputs.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/pipeline/unsupported.h"
#include "io/index/count_records.h"
#include "io/read/source.h"

namespace feedline::flow {
namespace {

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Category::bad_pipeline, fmt::format(format, std::forward<Args>(args)...));
}

uint64_t byte_size(const std::string& path, const std::string& text, uint64_t otherwise) {
  if (text.empty()) return otherwise;
  uint64_t bytes = 0;
  try {
    bytes = parse_byte_size(text);
  } catch (const Error& error) {
    refuse("{}: {}", path, error.message());
  }
  if (bytes == 0) refuse("{}: 0 bytes is not a valid size; write a size above 0", path);
  return bytes;
}

IndexSpec resolve_index(const Pipeline& pipeline, const config::Source& source, const std::string& path) {
  IndexSpec spec;
  if (!source.has_index()) return spec;
  const config::Index& index = source.index();
  spec.mode = static_cast<IndexMode>(index.mode());
  spec.given = spec.mode != IndexMode::lazy || !index.dir().empty();
  if (index.dir().find('\0') != std::string::npos)
    refuse("{}: index.dir: '{}' is not a folder name, because it has a NUL character", path, index.dir());
  if (!io::scheme_of(index.dir()).empty())
    refuse("{}: index.dir: '{}' is not a folder on this machine; write the path of a local folder", path, index.dir());
  if (!index.dir().empty()) {
    const std::filesystem::path dir = std::filesystem::path(pipeline.folder()) / index.dir();
    spec.dir = absolute_path(dir).lexically_normal().string();
  }
  spec.stride = byte_size(path + ": index.stride", index.stride(), spec.stride);
  if (spec.stride < io::smallest_stride || spec.stride > io::largest_stride)
    refuse("{}: index.stride: {} bytes; it must be {} bytes to {}", path, spec.stride, io::smallest_stride,
           format_byte_size(io::largest_stride));
  return spec;
}

// Returns one end of a range of records. `text` is the part of the range before or after its colon, as in "10%:90%",
// "0:50000" or ":50%". Returns `otherwise` if the end is left out.
RangeEnd resolve_range_end(const std::string& field, std::string_view text, RangeEnd otherwise) {
  if (text.empty()) return otherwise;
  const auto refuse_it = [&] {
    refuse("{}: '{}' is not a number of records or a percentage; write both ends, as in \"0%:90%\" or \"0:50000\"",
           field, text);
  };
  RangeEnd end{.percent = text.back() == '%'};
  if (!end.percent) {
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), end.value);
    if (error != std::errc() || rest != text.data() + text.size()) refuse_it();
    return end;
  }
  double percent = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size() - 1, percent);
  if (error != std::errc() || rest != text.data() + text.size() - 1 || !(percent >= 0 && percent <= 100)) refuse_it();
  end.value = static_cast<uint64_t>(std::llround(percent * 1e6));
  return end;
}

void resolve_part(const config::Source& source, const std::string& path, SourceSpec& spec) {
  if (!source.range().empty()) {
    const std::string_view range = source.range();
    const size_t colon = range.find(':');
    if (colon == range.npos)
      refuse("{}: range: '{}' has no colon; write where the range begins and ends, as in \"0%:90%\" or \"0:50000\"",
             path, range);
    spec.begin = resolve_range_end(path + ": range", range.substr(0, colon), spec.begin);
    spec.end = resolve_range_end(path + ": range", range.substr(colon + 1), spec.end);
    if (spec.begin.percent == spec.end.percent && spec.begin.value > spec.end.value)
      refuse("{}: range: '{}' ends before it begins; write the smaller number first", path, range);
  }
  if (source.num_shards() < 0)
    refuse("{}: num_shards: {} is negative; write 1 or more, or leave it out", path, source.num_shards());
  if (source.num_shards() > 0) spec.num_shards = static_cast<uint32_t>(source.num_shards());
  if (source.shard_id() < 0 || static_cast<uint32_t>(source.shard_id()) >= spec.num_shards)
    refuse("{}: shard_id: {}; with num_shards {} it must be 0 to {}; correct shard_id or num_shards", path,
           source.shard_id(), spec.num_shards, spec.num_shards - 1);
  spec.shard_id = static_cast<uint32_t>(source.shard_id());
}

// Warns of files that two sources feed. Does not warn if both sources take only a part of their files (`range` or
// `num_shards`).
void warn_of_shared_files(const config::Pipeline& config, const std::vector<SourceSpec>& sources,
                          std::vector<std::string>& warnings) {
  const auto takes_part = [&](int s) { return !config.source(s).range().empty() || config.source(s).num_shards() > 1; };
  const auto name_of = [&](int s) { return element_path("source", s, config.source_size(), config.source(s).name()); };
  constexpr size_t most_pairs = 3;
  size_t pairs = 0;
  std::unordered_map<std::string_view, int> first_in;
  for (int s = 0; s < config.source_size(); s++) {
    std::map<int, std::vector<std::string>> shared;  // by the number of the earlier source with these files
    for (const std::string& file : sources[static_cast<size_t>(s)].files) {
      const int other = first_in.try_emplace(file, s).first->second;
      if (other != s && !(takes_part(s) && takes_part(other))) shared[other].push_back(file);
    }
    for (const auto& [other, files] : shared)
      if (pairs++ < most_pairs)
        warnings.push_back(
            fmt::format("{}: files: {} in {}, too, so both sources feed the same records; give each source its own "
                        "files or its own 'range'",
                        name_of(s), some_of(files.front(), files.size()), name_of(other)));
  }
  if (pairs > most_pairs)
    warnings.back() += fmt::format(" (and {} more pairs of sources share files)", pairs - most_pairs);
}

std::vector<SourceSpec> resolve_sources(const Pipeline& pipeline, const ListFiles& list,
                                        std::vector<std::string>& warnings) {
  const config::Pipeline& config = pipeline.message();
  if (config.source().empty()) refuse("source: it is missing; name the files: source {{ files: \"data/*.tfrecord\" }}");
  std::vector<SourceSpec> sources;
  std::set<std::string> names;
  for (int i = 0; i < config.source_size(); i++) {
    const config::Source& source = config.source(i);
    const std::string path = element_path("source", i, config.source_size(), source.name());
    if (!source.name().empty() && !names.insert(source.name()).second)
      refuse("{}: name: another source has this name; give each source a name of its own", path);
    SourceSpec spec;
    spec.name = source.name();
    spec.compression = static_cast<Compression>(source.compression());
    spec.record_type = static_cast<RecordType>(source.record_type());
    spec.record_limit = byte_size(path + ": record_limit", source.record_limit(), spec.record_limit);
    spec.index = resolve_index(pipeline, source, path);
    resolve_part(source, path, spec);
    if (i > 0 && spec.record_type != sources[0].record_type)
      refuse("{}: record_type: it is {}, but source[0] has {}; give all sources the same record_type", path,
             config::Source::RecordType_Name(source.record_type()),
             config::Source::RecordType_Name(config.source(0).record_type()));
    if (source.files().empty()) refuse("{}: files: no path is given; name paths or patterns", path);
    FileList files = list({path,
                           pipeline.folder(),
                           {source.files().begin(), source.files().end()},
                           {source.exclude().begin(), source.exclude().end()}});
    spec.files = std::move(files.files);
    warnings.insert(warnings.end(), files.warnings.begin(), files.warnings.end());
    sources.push_back(std::move(spec));
  }
  if (sources.size() > 1) warn_of_shared_files(config, sources, warnings);
  return sources;
}

void resolve_batch(const config::Pipeline& config, PipelineSpec& spec) {
  const config::Batch& batch = config.batch();
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  const auto size = [&](const char* field, int64_t rows) {
    if (rows < 1 || rows > most) refuse("batch.{}: {} rows; it must be 1 to {}", field, rows, most);
    return rows;
  };
  switch (batch.size_case()) {
    case config::Batch::kGlobalBatchSize:
      spec.global_batch_size = size("global_batch_size", batch.global_batch_size());
      break;
    case config::Batch::kBatchSizePerReplica:
      spec.batch_size_per_replica = size("batch_size_per_replica", batch.batch_size_per_replica());
      break;
    default:
      refuse("batch: the number of rows is missing; give batch.global_batch_size or batch.batch_size_per_replica");
  }
  spec.last_batch_policy = static_cast<LastBatchPolicy>(batch.last_batch_policy());
  spec.valid_mask = batch.valid_mask();

  spec.repeat = config.epoch().repeat() == 0 ? 1 : config.epoch().repeat();
  if (spec.repeat < -1)
    refuse(
        "epoch.repeat: {} is not valid; write the number of passes in an epoch, 1 or more, or -1 to repeat without end",
        spec.repeat);
  spec.epoch_steps = config.epoch().steps();
  spec.allow_empty = config.epoch().allow_empty();
  constexpr int64_t most_steps = int64_t{1} << 40;
  if (spec.epoch_steps < 0 || spec.epoch_steps > most_steps)
    refuse("epoch.steps: {}; it must be 1 to {}, or left out", spec.epoch_steps, most_steps);
  if (spec.epoch_steps > 0) {
    if (config.epoch().repeat() > 0)
      refuse(
          "epoch.repeat: it has no effect with epoch.steps, because an epoch then ends after that number of steps; "
          "remove one of the two");
    spec.repeat = -1;
  }
}

ShuffleSpec resolve_shuffle(const config::Pipeline& config) {
  const config::Shuffle& shuffle = config.shuffle();
  ShuffleSpec spec;
  if (config.has_shuffle()) switch (shuffle.mode()) {
      case config::Shuffle::BUFFER:
        spec.mode = ShuffleMode::buffer;
        break;
      case config::Shuffle::GLOBAL:
        spec.mode = ShuffleMode::global;
        break;
      case config::Shuffle::NONE:
        break;
      default:
        spec.mode = ShuffleMode::block;
    }
  spec.seed = shuffle.has_seed() ? shuffle.seed() : config.seed();
  spec.reshuffle_each_epoch = !shuffle.has_reshuffle_each_epoch() || shuffle.reshuffle_each_epoch();
  if (spec.mode == ShuffleMode::none) return spec;
  const auto no_use = [&](const char* field) {
    refuse("shuffle.{}: it has no effect with mode {}; leave it out", field,
           config::Shuffle::Mode_Name(shuffle.mode()));
  };
  if (spec.mode != ShuffleMode::block && !shuffle.block_size().empty()) no_use("block_size");
  if (spec.mode != ShuffleMode::block && shuffle.lanes() != 0) no_use("lanes");
  const bool buffers = spec.mode == ShuffleMode::block || spec.mode == ShuffleMode::buffer;
  if (!buffers && shuffle.buffer_size() != 0) no_use("buffer_size");
  if (!buffers && !shuffle.buffer_bytes().empty()) no_use("buffer_bytes");
  if (spec.mode != ShuffleMode::buffer && shuffle.shuffle_files()) no_use("shuffle_files");
  if (spec.mode == ShuffleMode::buffer && shuffle.buffer_size() == 0 && shuffle.buffer_bytes().empty())
    refuse("shuffle.mode: BUFFER needs the size of the buffer; give shuffle.buffer_size or shuffle.buffer_bytes");
  spec.shuffle_files = shuffle.shuffle_files();
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (spec.mode == ShuffleMode::buffer && shuffle.buffer_size() > most)
    refuse("shuffle.buffer_size: {} samples; it must be 1 to {}", shuffle.buffer_size(), most);
  if (shuffle.buffer_size() < 0)
    refuse("shuffle.buffer_size: {} is negative; write 1 or more, or leave it out", shuffle.buffer_size());
  if (shuffle.buffer_size() > 0 && !shuffle.buffer_bytes().empty())
    refuse("shuffle.buffer_size: shuffle.buffer_bytes is given, too; remove one of the two");
  spec.buffer_size = shuffle.buffer_size();
  spec.buffer_bytes = byte_size("shuffle.buffer_bytes", shuffle.buffer_bytes(), 0);
  spec.block_bytes = byte_size("shuffle.block_size", shuffle.block_size(), spec.block_bytes);
  if (shuffle.lanes() < 0) refuse("shuffle.lanes: {} is negative; write 1 or more, or leave it out", shuffle.lanes());
  spec.lanes = shuffle.lanes();
  return spec;
}

InterleaveSpec resolve_interleave(const config::Pipeline& config, ShuffleMode mode) {
  const config::Interleave& interleave = config.interleave();
  InterleaveSpec spec;
  if (!config.has_interleave()) return spec;
  if (interleave.cycle_length() < 1)
    refuse("interleave.cycle_length: {}; it must be 1 or more, because it is the number of files that are open at once",
           interleave.cycle_length());
  if (interleave.block_length() < 0)
    refuse("interleave.block_length: {} is negative; write 1 or more, or leave it out", interleave.block_length());
  if (mode == ShuffleMode::block || mode == ShuffleMode::global)
    refuse(
        "interleave: it has no effect, because shuffle.mode {} takes samples of all files in random order; leave it "
        "out",
        config::Shuffle::Mode_Name(config.shuffle().mode()));
  spec.cycle_length = static_cast<uint32_t>(interleave.cycle_length());
  if (spec.on()) spec.block_length = static_cast<uint64_t>(std::max(1, interleave.block_length()));
  return spec;
}

std::optional<WindowSpec> resolve_window(const config::Pipeline& config, const PipelineSpec& spec) {
  if (!config.has_window()) return std::nullopt;
  const config::Window& window = config.window();
  WindowSpec out;
  constexpr int64_t most = 1 << 20;
  const auto in_range = [most](const char* field, int64_t value, int64_t otherwise) {
    if (value < 0 || value > most) refuse("window.{}: {} records; it must be 1 to {}", field, value, most);
    return value > 0 ? value : otherwise;
  };
  if (window.size() == 0) refuse("window.size: it is missing; say how many records make a sample");
  out.size = in_range("size", window.size(), 1);
  out.shift = in_range("shift", window.shift(), out.size);
  out.stride = in_range("stride", window.stride(), 1);
  if (out.size * out.stride > most)
    refuse(
        "window: window.size times window.stride is {}, but it must be at most {}; lower window.size or window.stride",
        out.size * out.stride, most);
  out.drop_remainder = !window.has_drop_remainder() || window.drop_remainder();
  out.across_files = window.across_files();
  out.key = window.key();
  if (out.across_files && spec.interleave.on())
    refuse(
        "window.across_files: a window cannot continue in the next file, because 'interleave' takes samples of several "
        "files in turn; remove window.across_files or 'interleave'");
  if (out.across_files && spec.shuffle.shuffle_files)
    refuse(
        "window.across_files: a window cannot continue in the next file, because shuffle.shuffle_files reads the files "
        "in random order; remove window.across_files or shuffle.shuffle_files");
  return out;
}

std::optional<MixtureSpec> resolve_mixture(const config::Pipeline& config, const PipelineSpec& spec) {
  const bool any_weight = std::any_of(config.source().begin(), config.source().end(),
                                      [](const config::Source& source) { return source.has_weight(); });
  if (!config.has_mixture()) {
    if (any_weight)
      refuse(
          "source.weight: it has no effect, because sources are read one after another; write mixture {{}} to draw "
          "from them by weight, or remove the weights");
    return std::nullopt;
  }
  MixtureSpec out;
  out.stop = static_cast<MixtureStop>(config.mixture().stop());
  const std::string stop = config::Mixture::Stop_Name(config.mixture().stop());
  if (out.stop == MixtureStop::cycle_forever && spec.epoch_steps == 0)
    refuse(
        "mixture.stop: with CYCLE_FOREVER an epoch has no end of its own; write epoch.steps, or choose a different "
        "mixture.stop");
  if (out.stop != MixtureStop::cycle_forever && spec.epoch_steps > 0)
    refuse(
        "epoch.steps: mixture.stop {} already decides where an epoch ends; write mixture.stop: CYCLE_FOREVER, or "
        "remove epoch.steps",
        stop);
  if (out.stop != MixtureStop::cycle_forever && spec.repeat < 0)
    refuse(
        "epoch.repeat: -1 repeats without end, but mixture.stop {} ends each epoch; write a positive epoch.repeat, or "
        "mixture.stop: CYCLE_FOREVER with epoch.steps",
        stop);
  std::vector<double> weights;
  for (int s = 0; s < config.source_size(); s++) {
    if (any_weight && !config.source(s).has_weight())
      refuse(
          "source[{}].weight: it is missing, but other sources have a weight; give every source a weight, or remove "
          "all weights",
          s);
    weights.push_back(any_weight ? config.source(s).weight() : 1);
  }
  out.shares = shares_of(weights);
  return out;
}

void resolve_errors(const config::Errors& errors, PipelineSpec& spec) {
  spec.on_error = static_cast<OnError>(errors.on_error());
  spec.absent_feature = static_cast<AbsentFeature>(errors.absent_feature());
  if (errors.max_failures() < 0)
    refuse("errors.max_failures: {} is negative; write 1 or more, or leave it out to allow any number of failures",
           errors.max_failures());
  if (errors.max_failures() > 0) spec.max_failures = errors.max_failures();
  const double rate = errors.max_failure_rate();
  if (!(rate >= 0 && rate <= 1))
    refuse("errors.max_failure_rate: {}; it must be 0 to 1, the share of the records that may be bad", rate);
  if (rate > 0) spec.max_failure_rate = rate;
  if (spec.on_error == OnError::raise && (errors.max_failures() > 0 || rate > 0))
    spec.warnings.push_back(
        "errors: max_failures and max_failure_rate have no effect with on_error RAISE, which stops at the first bad "
        "record; remove them, or write on_error: SKIP_RECORD or SKIP_FILE");
}

// Returns the numbers of the CPUs in a text such as "0-3,8", ascending. Throws Error bad_pipeline for a CPU that this
// process may not use.
std::vector<int> resolve_cpu_set(const std::string& text) {
  std::set<int> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto refuse_text = [&] {
    refuse("parallelism.cpu_set: '{}' is not a list of CPUs; write numbers and ranges, as in \"0-3,8\"", text);
  };
  const auto number = [&] {
    int cpu = 0;
    const auto [rest, error] = std::from_chars(at, end, cpu);
    if (error != std::errc() || cpu < 0 || cpu >= CPU_SETSIZE) refuse_text();
    at = rest;
    return cpu;
  };
  while (at != end) {
    const int first = number();
    int last = first;
    if (at != end && *at == '-') {
      at++;
      last = number();
    }
    if (last < first || (at != end && (*at != ',' || ++at == end))) refuse_text();
    for (int cpu = first; cpu <= last; cpu++) cpus.insert(cpu);
  }
  cpu_set_t usable;
  if (!cpus.empty() && sched_getaffinity(0, sizeof usable, &usable) == 0) {
    for (int cpu : cpus) {
      if (CPU_ISSET(static_cast<size_t>(cpu), &usable)) continue;
      std::vector<int> those;
      for (int other = 0; other < CPU_SETSIZE; other++)
        if (CPU_ISSET(static_cast<size_t>(other), &usable)) those.push_back(other);
      refuse("parallelism.cpu_set: this process may not use CPU {}; choose from the CPUs that it may use: {}", cpu,
             fmt::join(those, ","));
    }
  }
  return {cpus.begin(), cpus.end()};
}

void resolve_resources(const config::Pipeline& config, PipelineSpec& spec) {
  spec.memory_limit = byte_size("memory.limit", config.memory().limit(), usable_memory() / 4);
  spec.device_limit = byte_size("memory.device_limit", config.memory().device_limit(), 0);
  const config::Parallelism& parallelism = config.parallelism();
  const auto in_range = [](const char* field, int value, int most) {
    if (value < 0 || value > most) refuse("parallelism.{}: {}; it must be 1 to {}", field, value, most);
    return value;
  };
  spec.threads = in_range("threads", parallelism.threads(), 4096);
  spec.cpu_set = resolve_cpu_set(parallelism.cpu_set());
  if (const int prefetch = in_range("host_prefetch", parallelism.host_prefetch(), 1024)) {
    spec.host_prefetch = prefetch;
    spec.more_small_batches = false;
  }
  if (const int prefetch = in_range("device_prefetch", parallelism.device_prefetch(), 1024))
    spec.device_prefetch = prefetch;
  spec.peer_access = config.distribute().peer() != config::Distribute::OFF;
}

// Returns the number of the feature that window.key names. No window reaches across a change of the feature's value.
int resolve_key(const std::string& key, const std::vector<FeatureSpec>& features) {
  std::vector<std::string> names;
  for (const FeatureSpec& feature : features) {
    names.push_back(feature.name);
    if (feature.name != key) continue;
    if (feature.dtype == DType::float32 || feature.kind != FeatureKind::fixed || feature.shape.rank() > 0)
      refuse(
          "window.key: feature '{}' does not have exactly one INT64 or BYTES value in each record; name a feature "
          "that does",
          key);
    return static_cast<int>(names.size()) - 1;
  }
  refuse("window.key: there is no feature '{}'; the features are: {}", key, fmt::join(names, " "));
}

// Sets spec.filter, the pipeline of a second feed that evaluates the filter and window.key before the main feed starts.
// The second feed has the same records and features, in file order, and only the outputs that filter and key need.
void resolve_filter(const config::Pipeline& config, PipelineSpec& spec) {
  const bool has_key = spec.window && !spec.window->key.empty();
  if (config.filter().empty() && !has_key) return;
  auto filter = std::make_shared<PipelineSpec>(spec);
  filter->shuffle = {};
  filter->interleave = {};
  filter->window.reset();
  filter->mixture.reset();
  filter->repeat = 1;
  filter->epoch_steps = 0;
  filter->global_batch_size = 4096;
  filter->batch_size_per_replica = 0;
  filter->last_batch_policy = LastBatchPolicy::partial;
  filter->valid_mask.clear();
  filter->absent_feature = AbsentFeature::ignore;  // the main feed looks for absent features
  config::Pipeline output;
  output.add_output()->set_name("filter");
  output.mutable_output(0)->set_dtype(config::FLOAT64);
  output.mutable_output(0)->mutable_expression()->set_formula(config.filter().empty() ? "1" : config.filter());
  output.add_output()->set_name("@file");
  output.mutable_output(1)->set_feature("@file");
  try {
    resolve_outputs(output, {}, *filter);
  } catch (const Error& error) {
    constexpr std::string_view path = "output 'filter': expression.formula: ";
    if (!error.message().starts_with(path)) throw;
    throw Error(Category::bad_pipeline, "filter: " + error.message().substr(path.size()));
  }
  const auto add = [&](const char* name, Reserved what, int feature) {
    filter->outputs.push_back(filter->outputs.back());
    filter->outputs.back().name = name;
    filter->outputs.back().jobs[0].column = {ColumnRef::Kind::reserved, feature, what};
  };
  add("@audit", Reserved::audit, -1);
  if (has_key) add("@key", Reserved::value, resolve_key(spec.window->key, spec.features));
  filter->warnings.clear();
  spec.filter_text = config.filter();
  if (has_key) spec.filter_text += "\nwindow.key: " + spec.window->key;
  if (const auto type = config.source(0).record_type(); type != config::Source::EXAMPLE)
    spec.filter_text += '\n' + config::Source::RecordType_Name(type);
  for (const config::Feature& feature : config.feature()) spec.filter_text += '\n' + feature.ShortDebugString();
  for (const config::Source& source : config.source())
    for (const config::Feature& feature : source.feature()) spec.filter_text += '\n' + feature.ShortDebugString();
  spec.filter = std::move(filter);
}

// With LAZY: refuses everything that needs counts or an index, because they do not exist before the end of the first
// epoch.
void refuse_with_lazy(const PipelineSpec& spec) {
  const auto lazy = std::count_if(spec.sources.begin(), spec.sources.end(),
                                  [](const SourceSpec& source) { return source.index.mode == IndexMode::lazy; });
  if (lazy == 0) return;
  const auto refuse_if = [](bool wanted, const char* what) {
    if (wanted)
      refuse(
          "source: index.mode: LAZY does not support {0}, because it counts the records while it feeds them; remove "
          "{0}, or write source.index.mode: BUILD",
          what);
  };
  refuse_if(static_cast<size_t>(lazy) < spec.sources.size(), "sources with a different index.mode");
  for (const SourceSpec& source : spec.sources)
    refuse_if(
        source.begin.value > 0 || !source.end.percent || source.end.value < RangeEnd::all || source.num_shards > 1,
        "'range' or num_shards");
  refuse_if(spec.filter != nullptr, "'filter'");
  refuse_if(spec.interleave.on(), "'interleave'");
  refuse_if(spec.window.has_value(), "'window'");
  refuse_if(spec.mixture.has_value(), "'mixture'");
  refuse_if(spec.shuffle.mode != ShuffleMode::none, "'shuffle'");
  refuse_if(spec.repeat != 1, "epoch.repeat or epoch.steps");
  refuse_if(spec.cache.has_value(), "'cache'");
  refuse_if(spec.on_error == OnError::skip_file, "errors.on_error: SKIP_FILE");
  refuse_if(spec.max_failure_rate < 1, "errors.max_failure_rate");
  for (const OutputSpec& output : spec.outputs)
    for (const DenseJob& job : output.jobs)
      refuse_if(job.column.kind == ColumnRef::Kind::reserved && job.column.what == Reserved::record, "@record");
}

}  // namespace

std::vector<uint32_t> shares_of(const std::vector<double>& weights) {
  double sum = 0;
  for (size_t s = 0; s < weights.size(); s++) {
    if (weights[s] > std::numeric_limits<float>::max())
      refuse("source[{}].weight: {} is too large; only the ratio of the weights matters, so divide all of them", s,
             weights[s]);
    if (!(weights[s] > 0))
      refuse("source[{}].weight: {} is not a positive number; to draw nothing from this source, remove the source", s,
             weights[s]);
    sum += weights[s];
  }
  std::vector<uint32_t> shares;
  for (size_t s = 0; s < weights.size(); s++) {
    const double share = weights[s] / sum * MixtureSpec::whole;
    if (share < 0.5)
      refuse(
          "source[{}].weight: {} is too small: it is less than {:.1g} of the sum of all weights, which is {}; raise "
          "this weight, or remove the source",
          s, weights[s], 0.5 / MixtureSpec::whole, sum);
    shares.push_back(static_cast<uint32_t>(std::lround(share)));
  }
  return shares;
}

PipelineSpec validate(const Pipeline& pipeline, const ListFiles& list) {
  const config::Pipeline& config = pipeline.message();
  refuse_unsupported(config);
  PipelineSpec spec;
  spec.written_stages = digests_of(config);
  resolve_batch(config, spec);
  resolve_errors(config.errors(), spec);
  resolve_resources(config, spec);
  spec.shuffle = resolve_shuffle(config);
  spec.interleave = resolve_interleave(config, spec.shuffle.mode);
  spec.window = resolve_window(config, spec);
  spec.mixture = resolve_mixture(config, spec);
  spec.sources = resolve_sources(pipeline, list, spec.warnings);
  spec.features = resolve_features(config, spec.sources[0].record_type);
  resolve_filter(config, spec);
  resolve_cache(pipeline, spec);
  resolve_outputs(config, pipeline.folder(), spec);
  check_cache_keeps(spec);
  refuse_with_lazy(spec);
  if (spec.window)
    for (const OutputSpec& output : spec.outputs)
      if (!output.internal && !output.dense())
        refuse(
            "window: output '{}' does not have a fixed shape, but with windows its tensor must be [rows, {}, "
            "shape...]; make the output from a FIXED feature, and give that feature a 'length' if it is BYTES",
            output.name, spec.window->size);
  return spec;
}

}  // namespace feedline::flow
