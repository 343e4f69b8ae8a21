// Implements feedline/feedline.h, the C interface: each function calls the C++ interface. No exception leaves a
// function.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "feedline/feeder.h"
#include "feedline/feedline.h"
#include "feedline/log.h"
#include "gpu/device/dlpack_export.h"

using namespace feedline;

struct feedline_pipeline {
  Pipeline pipeline;
  std::string text;
};

struct feedline_feeder {
  std::vector<DeviceId> devices;
  Feeder feeder;
  std::string monitor_address = feeder.monitor_address();
};

struct feedline_batch {
  std::shared_ptr<const Batch> batch;
  DeviceId device;
};

namespace {

struct LastError {
  std::string text, category, message, file, feature;
  feedline_error error = {"", "", "", "", -1, -1, ""};
};

LastError& last_error() {
  thread_local LastError last;
  return last;
}

feedline_status failed(const char* text, std::string_view category, const char* message,
                       const Place& place = {}) noexcept {
  LastError& last = last_error();
  try {
    last.text = text;
    last.category = category;
    last.message = message;
    last.file = place.file;
    last.feature = place.feature;
    last.error = {last.text.c_str(), last.category.c_str(), last.message.c_str(), last.file.c_str(),
                  place.offset,      place.record,          last.feature.c_str()};
  } catch (const std::bad_alloc&) {  // there is no memory for copies of the texts
    last.error = {"out of memory", "out_of_memory", "out of memory", "", -1, -1, ""};
  }
  return FEEDLINE_FAILED;
}

/// Runs `body`, and returns its status, or FEEDLINE_OK if it returns nothing. If `body` throws, keeps the failure for
/// feedline_last_error(), and returns FEEDLINE_FAILED.
template <typename Body>
feedline_status guarded(Body body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return FEEDLINE_OK;
    } else {
      return body();
    }
  } catch (const Error& error) {
    return failed(error.what(), name(error.category()), error.message().c_str(), error.place());
  } catch (const std::bad_alloc&) {
    return failed("out of memory", "out_of_memory", "out of memory");
  } catch (const std::exception& error) {
    return failed(error.what(), "internal_error", error.what());
  } catch (...) {
    return failed("a callback threw an object that is not a std::exception", "internal_error", "a callback threw");
  }
}

/// Throws Error bad_pipeline for a null pointer.
void need(const void* pointer, const char* what) {
  if (!pointer) throw Error(Category::bad_pipeline, std::string(what) + " is NULL");
}

/// A pointer of the caller, and its name.
struct Needed {
  const void* pointer;
  const char* what;
};

/// Runs `body` as the other guarded() does, but fails with bad_pipeline if a pointer of `needed` is null.
template <typename Body>
feedline_status guarded(std::initializer_list<Needed> needed, Body body) noexcept {
  return guarded([&] {
    for (const Needed& each : needed) need(each.pointer, each.what);
    return body();
  });
}

/// Returns what `body` returns, or `otherwise` if it throws.
template <typename Value, typename Body>
Value value_or(Value otherwise, Body body) noexcept {
  guarded([&] { otherwise = body(); });
  return otherwise;
}

/// Throws Error bad_pipeline for a struct that is smaller than it was in the first version.
void check_size(size_t given, size_t first_version) {
  if (given < first_version)
    throw Error(Category::bad_pipeline, "struct_size is " + std::to_string(given) +
                                            "; set struct_size to the sizeof of the struct, which is " +
                                            std::to_string(first_version) + " or more");
}

/// Returns what `ask` returns for the feeder, or `unknown` if `feeder` is null or `ask` throws.
template <typename Value, typename Ask>
Value of(const feedline_feeder* feeder, Value unknown, Ask ask) noexcept {
  return value_or(unknown, [&] {
    need(feeder, "feeder");
    return ask(feeder->feeder);
  });
}

char* copy_of(const std::string& text) {
  auto copy = std::make_unique<char[]>(text.size() + 1);
  std::memcpy(copy.get(), text.c_str(), text.size() + 1);
  return copy.release();
}

feedline_pipeline* handle_of(Pipeline pipeline) {
  std::string text = pipeline.text();
  return new feedline_pipeline{std::move(pipeline), std::move(text)};
}

/// Returns the options of the caller, or the defaults if there are none.
feedline_options whole(const feedline_options* given) {
  feedline_options options = {};
  if (given) {
    check_size(given->struct_size, offsetof(feedline_options, monitor));
    std::memcpy(&options, given, std::min(given->struct_size, sizeof options));
  }
  return options;
}

/// Writes `value` to the caller's struct, but only as many bytes as that struct has. `first_version` is the size of the
/// struct in the first version; it does not change when members are added.
template <typename Struct>
void give(Struct value, Struct* to, size_t first_version) {
  need(to, "the struct to fill");
  check_size(to->struct_size, first_version);
  value.struct_size = to->struct_size;
  std::memcpy(to, &value, std::min(value.struct_size, sizeof value));
}

BackendKind backend_of(const char* name) {
  if (!name) return BackendKind::automatic;
  if (std::strcmp(name, "uring") == 0) return BackendKind::uring;
  if (std::strcmp(name, "pread") == 0) return BackendKind::pread;
  throw Error(Category::bad_pipeline,
              "options.backend: '" + std::string(name) +
                  "' is neither 'uring' nor 'pread'; give one of these, or NULL to let feedline choose");
}

Options options_of(const feedline_options& given) {
  Options options;
  options.devices = parse_devices(given.devices ? given.devices : "host");
  options.rank = given.rank;
  options.world_size = given.world_size == 0 ? 1 : given.world_size;
  options.threads = given.threads;
  options.epoch = given.start_epoch;
  options.io.backend = backend_of(given.backend);
  if (given.monitor) options.monitor = given.monitor;
  if (given.monitor_token) options.monitor_token = given.monitor_token;
  if (given.on_progress)
    options.on_progress = [given](uint64_t done, uint64_t total) {
      if (given.on_progress(given.progress_context, done, total) != 0)
        throw Error(Category::stalled, "options.on_progress did not return 0, so the feeder was not made");
    };
  if (given.exchange)
    options.exchange = [given](std::string_view mine) {
      std::vector<std::string> all;
      const auto take = [](void* taker, const void* bytes, size_t size) {
        static_cast<std::vector<std::string>*>(taker)->emplace_back(static_cast<const char*>(bytes), size);
      };
      if (given.exchange(given.exchange_context, mine.data(), mine.size(), take, &all) != 0)
        throw Error(Category::stalled, "options.exchange did not return 0, so the ranks cannot agree");
      return all;
    };
  return options;
}

}  // namespace

const feedline_error* feedline_last_error(void) { return &last_error().error; }
const char* feedline_version(void) { return FEEDLINE_VERSION; }

feedline_status feedline_pipeline_load(const char* file, feedline_pipeline** pipeline) {
  return guarded({{file, "file"}, {pipeline, "pipeline"}}, [&] { *pipeline = handle_of(load_pipeline(file)); });
}
feedline_status feedline_pipeline_parse(const char* text, const char* folder, feedline_pipeline** pipeline) {
  return guarded({{text, "text"}, {pipeline, "pipeline"}},
                 [&] { *pipeline = handle_of(parse_pipeline(text, folder ? folder : "")); });
}
feedline_status feedline_pipeline_with(const feedline_pipeline* pipeline, const char* text,
                                       feedline_pipeline** changed) {
  return guarded({{pipeline, "pipeline"}, {text, "text"}, {changed, "changed"}},
                 [&] { *changed = handle_of(pipeline->pipeline.overlaid(text)); });
}
feedline_status feedline_pipeline_with_field(const feedline_pipeline* pipeline, const char* path, const char* value,
                                             feedline_pipeline** changed) {
  return guarded({{pipeline, "pipeline"}, {path, "path"}, {value, "value"}, {changed, "changed"}},
                 [&] { *changed = handle_of(pipeline->pipeline.with(path, value)); });
}
const char* feedline_pipeline_text(const feedline_pipeline* pipeline) {
  return value_or("", [&] {
    need(pipeline, "pipeline");
    return pipeline->text.c_str();
  });
}
void feedline_pipeline_free(feedline_pipeline* pipeline) { delete pipeline; }

feedline_status feedline_feeder_new(const feedline_pipeline* pipeline, const feedline_options* options,
                                    feedline_feeder** feeder) {
  return guarded({{pipeline, "pipeline"}, {feeder, "feeder"}}, [&] {
    Options all = options_of(whole(options));
    std::vector<DeviceId> devices = all.devices;
    *feeder = new feedline_feeder{std::move(devices), Feeder(pipeline->pipeline, std::move(all))};
  });
}
void feedline_feeder_free(feedline_feeder* feeder) { delete feeder; }
void feedline_feeder_stop(feedline_feeder* feeder) {
  if (feeder) feeder->feeder.stop();
}

feedline_status feedline_feeder_next(feedline_feeder* feeder, int32_t replica, int64_t timeout_ms,
                                     feedline_batch** batch) {
  return guarded({{feeder, "feeder"}, {batch, "batch"}}, [&] {
    constexpr auto for_ever = std::chrono::nanoseconds::max();
    const bool ends =
        timeout_ms >= 0 && timeout_ms < std::chrono::duration_cast<std::chrono::milliseconds>(for_ever).count();
    const auto timeout = ends ? std::chrono::nanoseconds(std::chrono::milliseconds(timeout_ms)) : for_ever;
    Batch next;
    switch (feeder->feeder.next(replica, timeout, next)) {
      case Next::not_ready:
        return FEEDLINE_NOT_READY;
      case Next::end_of_epoch:
        return FEEDLINE_END_OF_EPOCH;
      case Next::batch:
        break;
    }
    const DeviceId device = feeder->devices[static_cast<size_t>(replica)];
    *batch = new feedline_batch{std::make_shared<const Batch>(std::move(next)), device};
    return FEEDLINE_OK;
  });
}
size_t feedline_feeder_spare_batches(const feedline_feeder* feeder, int32_t replica) {
  return of(feeder, size_t{0}, [&](const Feeder& asked) { return asked.spare_batches(replica); });
}

int32_t feedline_feeder_replicas(const feedline_feeder* feeder) {
  return of(feeder, int32_t{0}, [](const Feeder& asked) { return asked.replicas(); });
}
int64_t feedline_feeder_steps_per_epoch(const feedline_feeder* feeder) {
  return of(feeder, int64_t{-1}, [](const Feeder& asked) { return asked.steps_per_epoch(); });
}
int64_t feedline_feeder_samples_per_epoch(const feedline_feeder* feeder) {
  return of(feeder, int64_t{-1}, [](const Feeder& asked) { return asked.samples_per_epoch(); });
}

size_t feedline_feeder_element_count(const feedline_feeder* feeder) {
  return of(feeder, size_t{0}, [](const Feeder& asked) { return asked.elements().size(); });
}
feedline_status feedline_feeder_element(const feedline_feeder* feeder, size_t number, feedline_element* element) {
  return guarded({{feeder, "feeder"}, {element, "element"}}, [&] {
    const std::vector<ElementSpec>& all = feeder->feeder.elements();
    if (number >= all.size())
      throw Error(Category::bad_pipeline, "there is no output " + std::to_string(number) +
                                              ": the outputs are numbered from 0, and their number is " +
                                              std::to_string(all.size()));
    constexpr const char* kinds[] = {"dense", "padded", "ragged", "nested"};
    const ElementSpec& spec = all[number];
    const bool strings = spec.dtype == DType::bytes;
    give<feedline_element>({.struct_size = 0,
                            .name = spec.name.c_str(),
                            .kind = kinds[static_cast<size_t>(spec.kind)],
                            .dtype = gpu::dl_type(strings ? DType::uint8 : spec.dtype),
                            .strings = strings,
                            .ndim = static_cast<int32_t>(spec.shape.rank()),
                            .shape = spec.shape.begin()},
                           element, offsetof(feedline_element, shape) + sizeof element->shape);
  });
}

feedline_status feedline_feeder_get_state(const feedline_feeder* feeder, int64_t step, char** text) {
  return guarded({{feeder, "feeder"}, {text, "text"}},
                 [&] { *text = copy_of(step < 0 ? feeder->feeder.get_state() : feeder->feeder.get_state(step)); });
}
feedline_status feedline_feeder_set_state(feedline_feeder* feeder, const char* text, int32_t accept_changes) {
  return guarded({{feeder, "feeder"}, {text, "text"}}, [&] { feeder->feeder.set_state(text, accept_changes != 0); });
}
feedline_status feedline_feeder_set_epoch(feedline_feeder* feeder, uint64_t epoch) {
  return guarded({{feeder, "feeder"}}, [&] { feeder->feeder.set_epoch(epoch); });
}
feedline_status feedline_feeder_report(const feedline_feeder* feeder, char** json) {
  return guarded({{feeder, "feeder"}, {json, "json"}}, [&] { *json = copy_of(to_json(feeder->feeder.report())); });
}
void feedline_text_free(char* text) { delete[] text; }
const char* feedline_feeder_monitor_address(const feedline_feeder* feeder) {
  return of(feeder, "", [&](const Feeder&) { return feeder->monitor_address.c_str(); });
}

feedline_status feedline_batch_get_info(const feedline_batch* batch, feedline_batch_info* info) {
  return guarded({{batch, "batch"}, {info, "info"}}, [&] {
    const Batch& of = *batch->batch;
    give<feedline_batch_info>({.struct_size = 0,
                               .epoch = of.epoch(),
                               .step = of.step(),
                               .rows = of.rows(),
                               .valid_count = of.valid_count(),
                               .tensors = of.tensors().size()},
                              info, offsetof(feedline_batch_info, tensors) + sizeof info->tensors);
  });
}
const char* feedline_batch_tensor_name(const feedline_batch* batch, size_t number) {
  return value_or<const char*>(nullptr, [&]() -> const char* {
    need(batch, "batch");
    const std::vector<NamedTensor>& all = batch->batch->tensors();
    return number < all.size() ? all[number].name.c_str() : nullptr;
  });
}
feedline_status feedline_batch_tensor(const feedline_batch* batch, const char* name,
                                      DLManagedTensorVersioned** tensor) {
  return guarded({{batch, "batch"}, {name, "name"}, {tensor, "tensor"}}, [&] {
    const TensorView view = batch->batch->at(name);  // throws if there is none
    bool lent = false;
    for (const NamedTensor& other : batch->batch->tensors()) lent |= other.lent && other.name == name;
    *tensor = gpu::export_tensor<DLManagedTensorVersioned>(batch->batch, view, batch->device,
                                                           lent ? DLPACK_FLAG_BITMASK_READ_ONLY : 0);
  });
}
feedline_status feedline_batch_ready_on(const feedline_batch* batch, void* cuda_stream) {
  return guarded({{batch, "batch"}}, [&] {
    batch->batch->ready_on(cuda_stream ? Stream::cuda(static_cast<CUstream_st*>(cuda_stream)) : Stream::host);
  });
}
feedline_status feedline_batch_copy(const feedline_batch* batch, feedline_batch** copy) {
  return guarded({{batch, "batch"}, {copy, "copy"}}, [&] {
    *copy = new feedline_batch{std::make_shared<const Batch>(batch->batch->copy()), batch->device};
  });
}
void feedline_batch_free(feedline_batch* batch) { delete batch; }

void feedline_set_log_sink(void (*sink)(void* context, int32_t level, const char* line), void* context) {
  if (!sink) {
    set_log_sink(stderr_log_sink());
    return;
  }
  set_log_sink([sink, context](LogLevel level, std::string_view line) {
    sink(context, static_cast<int32_t>(level), std::string(line).c_str());
  });
}
