#include "flowgraph/feed/upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <system_error>

#include "base/append.h"
#include "base/byte_size.h"
#include "base/log.h"
#include "base/thread.h"
#include "flowgraph/table/table.h"
#include "gpu/device/trace.h"
#include "ranks/current_error.h"

namespace feedline::flow {
namespace {

using Clock = std::chrono::steady_clock;

// The time between two checks: of a thread that waits for packed rows, whether it must stop; of a thread that waits for
// copies, whether arrive() has waited too long for other ranks.
constexpr auto between_looks = std::chrono::milliseconds(50),
               between_looks_at_arrivals = std::chrono::milliseconds(1000);

// The alignment of lookup tables in bytes: kernels may read tables in words of this size.
constexpr size_t table_alignment = 16;

// The minimum and the maximum number of batches on a GPU, if the pipeline does not say how many. At least two are made
// ahead while one is used. More are made ahead as long as all together take at most `small_batches_bytes`: waking a
// thread of the host takes as long as making several small batches, so each wake-up should make several.
constexpr uint64_t fewest_buffers = 3, most_buffers = 9, small_batches_bytes = uint64_t{256} << 20;

// Returns the size of a buffer in bytes. A buffer has a batch, and after it the packed rows of the parts that are for
// other ranks.
uint64_t buffer_bytes_of(const PackedBatches& batches, size_t parts) {
  return batches.buffer_bytes() + (parts - 1) * batches.packed_bytes();
}

// Returns the bytes that tables take on each GPU.
uint64_t table_bytes_of(const PipelineSpec& spec) {
  uint64_t bytes = 0;
  for (const auto& table : spec.tables)
    if (table.on_device) bytes += table.device_bytes();
  return bytes;
}

// Returns how many batches each replica has on its GPU.
uint64_t buffers_of(const PipelineSpec& spec, uint64_t buffer_bytes, const std::vector<DeviceId>& devices) {
  if (spec.device_prefetch > 0) return static_cast<uint64_t>(spec.device_prefetch) + 1;
  uint64_t bytes = small_batches_bytes;
  if (const uint64_t tables = table_bytes_of(spec); spec.device_limit > 0) {
    uint64_t most_replicas = 0;
    for (const DeviceId device : devices)
      most_replicas = std::max(most_replicas, static_cast<uint64_t>(std::ranges::count(devices, device)));
    bytes = std::min(bytes, (spec.device_limit - std::min(tables, spec.device_limit)) / most_replicas);
  }
  return std::clamp(bytes / std::max<uint64_t>(1, buffer_bytes), fewest_buffers, most_buffers);
}

void check_limit(const PipelineSpec& spec, uint64_t buffers, uint64_t buffer_bytes,
                 const std::vector<DeviceId>& devices) {
  if (spec.device_limit == 0) return;
  const uint64_t table_bytes = table_bytes_of(spec);
  std::map<int, uint64_t> replicas;
  for (const DeviceId device : devices) replicas[device.ordinal]++;
  for (const auto& [ordinal, count] : replicas) {
    const uint64_t bytes = count * buffers * buffer_bytes + table_bytes;
    if (bytes <= spec.device_limit) continue;
    const std::string tables =
        table_bytes > 0 ? fmt::format(" and tables of {}", format_byte_size(table_bytes)) : std::string();
    throw Error(
        Category::bad_pipeline,
        fmt::format("memory.device_limit: {} batches{} on GPU {} need {}, but the limit is {}; set memory.device_limit "
                    "to at least \"{}MiB\", or set a smaller parallelism.device_prefetch or a smaller batch size{}",
                    count * buffers, tables, ordinal, format_byte_size(bytes), format_byte_size(spec.device_limit),
                    (bytes >> 20) + 1, table_bytes > 0 ? ", or remove lookup.on_device" : ""));
  }
}

// Returns the copies that bring the packed tensors to `buffer`. Tensors that lie one after another on both sides are
// copied at once, with the few bytes between them. `other`: a buffer that already has the tensors, at the same offsets,
// and from which they are copied. If it is null, they are copied from `packed`.
std::vector<gpu::CopyToDevice> copies_of(const Batch& packed, const std::vector<BatchTensor>& places, std::byte* buffer,
                                         const std::byte* other) {
  std::vector<gpu::CopyToDevice> copies;
  for (size_t t = 0; t < places.size(); t++) {
    const TensorView& tensor = packed.tensors()[t].tensor;
    const auto* const from = other ? other + places[t].offset : static_cast<const std::byte*>(tensor.data);
    const size_t bytes = tensor.size_bytes();
    std::byte* const to = buffer + places[t].offset;
    if (bytes == 0) continue;
    if (!copies.empty()) {
      gpu::CopyToDevice& last = copies.back();
      const auto apart = static_cast<size_t>(to - last.to);
      if (from == last.from.data() + apart && apart < last.from.size() + tensor_alignment) {
        last.from = {last.from.data(), apart + bytes};
        continue;
      }
    }
    copies.push_back({{from, bytes}, to});
  }
  return copies;
}

}  // namespace

Upload::Upload(const PipelineSpec& spec, Start start)
    : batches_(spec, start.facts),
      between_(std::move(start.between)),
      distribution_(std::move(start.distribution)),
      alike_(start.same_rows ? start.devices.size() : 1),
      parts_(start.parts),
      own_(parts_ > 1 ? static_cast<size_t>(distribution_.parts_of(distribution_.rank)[0]) : 0),
      most_in_flight_(start.from.buffers() - 1),
      from_(start.from),
      copying_(start.devices.size()) {
  const uint64_t buffer_bytes = buffer_bytes_of(batches_, parts_);
  const uint64_t buffers = buffers_of(spec, buffer_bytes, start.devices);
  check_limit(spec, buffers, buffer_bytes, start.devices);
  std::vector<std::byte> tables;
  std::vector<unpack::UnpackKernel> kernels;
  for (const PackedBatches::Job& job : batches_.jobs()) {
    // Kernels count rows in 32 bits.
    if (const int64_t rows = start.facts.rows / start.facts.frames * job.rows; rows >= int64_t{1} << 31)
      throw Error(
          Category::bad_pipeline,
          fmt::format("batch: one output has {} values in a batch, but a GPU can unpack only less than 2^31; set a "
                      "smaller batch size, or set 'devices' to host",
                      rows));
    const unpack::DeviceUnpacker& unpacker = unpackers_.emplace_back(job.spec);
    std::ranges::copy(unpacker.kernels(), std::back_inserter(kernels));
    tables_at_.push_back(tables.size());
    tables.insert(tables.end(), unpacker.tables().begin(), unpacker.tables().end());
    tables.resize(round_up(tables.size(), table_alignment));
  }
  for (size_t j = 0; j < unpackers_.size(); j++) job_order_.push_back(j);
  std::ranges::stable_sort(job_order_, {}, [&](size_t j) { return unpackers_[j].kernels(); });
  std::vector<std::shared_ptr<BatchRing>> rings;
  for (size_t r = 0; r < start.devices.size(); r++) {
    Replica& replica = replicas_.emplace_back(mutex_);
    for (const PackedBatches::Job& job : batches_.jobs())
      replica.tables.push_back(job.table ? start.tables[*job.table]->on_gpu(start.devices[r]) : nullptr);
    replica.device = gpu::open_device_ring({.gpu = start.devices[r],
                                            .buffers = buffers,
                                            .buffer_bytes = buffer_bytes,
                                            .copies = most_in_flight_,
                                            .tables = tables,
                                            .kernels = kernels,
                                            .reads = replica.tables,
                                            .copies_from = source_on_gpu(spec, start.devices, r)});
    replica.ring =
        std::make_shared<BatchRing>(replica.device, buffers, buffer_bytes, static_cast<int>(r), [&](std::byte* memory) {
          BatchContent content = batches_.content(memory);
          for (NamedTensor& tensor : content.tensors) tensor.lent = tensor.lent || alike_ > 1;
          return content;
        });
    replica.buffer_wait.watch(*replica.ring);
    rings.push_back(replica.ring);
  }
  delivery_ = std::make_unique<Delivery>(
      std::move(rings), spec.host_prefetch, start.position, std::move(start.ledger),
      [this](int replica) {
        const int source = source_of(static_cast<size_t>(replica));
        const bool has_rows = replicas_[static_cast<size_t>(source) * alike_].counters.waiting > 0;
        return has_rows ? Stage::upload : from_.busy_stage(source);
      },
      alike_ > 1);
  try {
    for (size_t first = 0; first < replicas_.size(); first += alike_) {
      Replica& replica = replicas_[first];
      replica.uploads = start_thread("feedline-upload", [this, first] { run(first, &Upload::upload); });
      replica.finishes = start_thread("feedline-copied", [this, first] { run(first, &Upload::finish_copies); });
    }
  } catch (const std::system_error& error) {
    end();
    throw Error(Category::io_error, fmt::format("the threads that serve GPUs cannot be started: {}", error.what()));
  } catch (...) {
    end();
    throw;
  }
}

// Returns the GPU from which a replica copies its rows; nullopt if the host gives the rows to the replica.
std::optional<DeviceId> Upload::source_on_gpu(const PipelineSpec& spec, const std::vector<DeviceId>& devices,
                                              size_t replica) const {
  if (replica % alike_ == 0) return std::nullopt;
  const DeviceId before = devices[replica - 1];
  return spec.peer_access || before == devices[replica] ? std::optional(before) : std::nullopt;
}

Upload::~Upload() { end(); }

void Upload::end() noexcept {
  stop();
  for (size_t r = 0; r < replicas_.size(); r++) {
    Replica& replica = replicas_[r];
    if (replica.uploads.joinable()) replica.uploads.join();
    {
      const Lock lock(mutex_);
      copying_[r].no_more = true;
    }
    replica.changed.notify_all();
    if (replica.finishes.joinable()) replica.finishes.join();
  }
  // Waits for all GPUs before the packed rows are given back: a failure may have left copies unfinished, and several
  // GPUs may copy the same rows.
  for (const Replica& replica : replicas_) replica.device->drain();
  for (size_t r = 0; r < replicas_.size(); r++) {
    std::deque<Parts> unfinished;
    {
      const Lock lock(mutex_);
      unfinished.swap(copying_[r].in_flight);
      unfinished.push_back(std::move(copying_[r].failed));
    }
    unfinished.clear();  // without the lock, because this gives batches back
    replicas_[r].ring->pool().close();
  }
}

void Upload::stop() noexcept {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  for (Replica& replica : replicas_) replica.changed.notify_all();
  delivery_->stop();
}

// Runs one of the threads. A GPU that fails ends the feed of all replicas.
void Upload::run(size_t first, void (Upload::*body)(size_t)) noexcept {
  try {
    replicas_[first].device->enter_thread();
    (this->*body)(first);
  } catch (...) {
    failed_ = true;
    delivery_->fail(std::current_exception());
    stop();
  }
}

void Upload::upload(size_t first) {
  Replica& source = replicas_[first];
  std::vector<Ready> ready;  // one for each replica of the source
  while (wait_for_room(first)) {
    ready.assign(alike_, {});
    std::vector<Batch> packed(parts_);
    EpochEnd end;
    bool ended = false;
    try {
      if (!take(first, packed, end)) return;
    } catch (const Error& error) {
      for (Ready& last : ready) last.error = std::make_shared<const Error>(error);  // comes after the batches before it
      packed.clear();
      ended = true;
    }
    if (!packed.empty() && packed[own_]) {
      source.counters.waiting++;
      for (size_t r = first; r < first + alike_; r++) {
        Replica& replica = replicas_[r];
        replica.filled = replica.buffer_wait.take(*replica.ring, *delivery_, static_cast<int>(r),
                                                  [this] { return stopping_.load(); });
        try {
          if (replica.filled) {
            ready[r - first].batch = replica.ring->share(replica.filled);
            fill(replica, packed, *replica.filled, replica.device->reaches() ? &replicas_[r - 1] : nullptr);
            continue;
          }
        } catch (...) {
          keep_until_drained(first, std::move(packed));
          throw;
        }
        keep_until_drained(first, std::move(packed));  // the feed stops
        return;
      }
      {
        const Lock lock(mutex_);
        copying_[first].in_flight.push_back(std::move(packed));
      }
      source.changed.notify_all();
      source.counters.waiting--;
    }
    for (size_t r = 0; r < alike_; r++) {
      ready[r].end = end;
      delivery_->put(static_cast<int>(first + r), std::move(ready[r]));
    }
    if (ended) return;
  }
}

// A GPU may still be reading these rows. So end() gives their memory back only after it has drained the streams.
void Upload::keep_until_drained(size_t first, Parts&& packed) {
  const Lock lock(mutex_);
  copying_[first].failed = std::move(packed);
}

// Waits until this source may hold another packed batch. Returns false if the feed stops. A source never holds all
// packed batches of its replica, because then no buffer would be free for the next one.
bool Upload::wait_for_room(size_t first) {
  Lock lock(mutex_);
  replicas_[first].changed.wait(lock, [&]() FEEDLINE_REQUIRES(mutex_) {
    return stopping_ || copying_[first].in_flight.size() < most_in_flight_;
  });
  return !stopping_;
}

bool Upload::take(size_t first, std::vector<Batch>& packed, EpochEnd& end) {
  for (size_t part = 0; part < parts_;) {
    const int source = source_of(first) + static_cast<int>(part);
    const auto outcome = from_.next(source, Clock::now() + between_looks, packed[part], &end);
    if (outcome != Delivery::Outcome::not_ready)
      part++;
    else if (stopping_)
      return false;
  }
  return true;
}

// Returns the offset of a part in a buffer, in bytes. The replica's own part comes first, because the batch is made
// from it.
uint64_t Upload::place_of(size_t part) const noexcept {
  if (part == own_) return 0;
  return batches_.buffer_bytes() + (part < own_ ? part : part - 1) * batches_.packed_bytes();
}

void Upload::fill(Replica& replica, std::span<const Batch> packed, BatchBuffer& buffer, const Replica* previous) {
  const StageCounters::Busy busy(replica.counters);
  const Batch& own = packed[own_];
  BatchContent& content = buffer.content;
  content.epoch = own.epoch();
  content.step = own.step();
  content.rows = own.rows();
  content.valid_count = own.valid_count();
  content.audit = own.audit();
  content.bad_audit = own.bad_audit();
  std::vector<Shape> shapes;
  for (const NamedTensor& tensor : own.tensors()) shapes.push_back(tensor.tensor.shape);
  batches_.set_shapes(shapes, content);

  std::vector<gpu::CopyToDevice> copies;
  for (size_t part = 0; part < parts_ && (!between_ || distribution_.reads(distribution_.rank)); part++)
    std::ranges::copy(copies_of(packed[part], batches_.packed(), buffer.memory + place_of(part),
                                previous ? previous->filled->memory : nullptr),
                      std::back_inserter(copies));
  for (const gpu::CopyToDevice& copy : copies) (previous ? between_gpus_ : uploaded_) += copy.from.size();
  // If a different rank has sent numbers of table rows, they are checked below. Numbers that are sent from GPU to GPU
  // cannot be checked, because they do not pass through the host.
  const int reader = distribution_.reader_of(distribution_.rank);
  const bool has_arrived = distribution_.transfers() && reader != distribution_.rank && !between_;
  std::vector<unpack::UnpackLaunch> launches;
  for (const size_t j : job_order_) {
    const PackedBatches::Job& job = batches_.jobs()[j];
    unpack::DeviceRows rows{.in = buffer.memory + batches_.packed()[job.column].offset,
                            .in_stride = job.column_stride,
                            .out = buffer.memory + job.offset,
                            .out_stride = job.stride,
                            .count = static_cast<uint32_t>(content.rows * job.rows)};
    if (job.table) {
      if (has_arrived)
        batches_.check_table_rows(job, static_cast<const std::byte*>(own.tensors()[job.column].tensor.data),
                                  content.rows, reader);
      rows.numbers = reinterpret_cast<const int64_t*>(rows.in);
      rows.in = replica.tables[j].get();
      rows.in_stride = batches_.table_of(job).row_bytes();
    }
    const unpack::UnpackLaunch launch = unpackers_[j].launch(rows, replica.device->tables() + tables_at_[j]);
    if (!launch.empty()) launches.push_back(launch);
  }
  const size_t number = replica.ring->number_of(&buffer);
  if (between_) {
    PendingArrival arrival{number, {content.epoch, static_cast<int64_t>(content.step)}, {}, std::move(launches)};
    for (size_t part = 0; part < parts_; part++) {
      std::byte* const there = buffer.memory + place_of(part);
      std::vector<std::span<std::byte>>& rows = arrival.parts.emplace_back();
      for (const gpu::CopyToDevice& piece : copies_of(packed[part], batches_.packed(), there, there))
        rows.emplace_back(piece.to, piece.from.size());
    }
    replica.device->fill(number, copies, {});
    const Lock lock(mutex_);
    pending_.push_back(std::move(arrival));
  } else if (previous)
    replica.device->fill_from(*previous->device, previous->ring->number_of(previous->filled), number, copies, launches);
  else
    replica.device->fill(number, copies, launches);
}

void Upload::arrive(feedline::Stream stream) {
  const gpu::TraceRange range("feedline arrive");
  PendingArrival arrival;
  {
    const Lock lock(mutex_);
    arrival = std::move(pending_.front());
    pending_.pop_front();
    arriving_since_ = Clock::now();
  }
  const auto waits_no_more = [&] {
    const Lock lock(mutex_);
    arriving_since_.reset();
    arrived_ = arrival.position;
  };
  try {
    replicas_[0].device->go_on(
        arrival.buffer, stream, [&] { exchange(arrival, stream); }, arrival.launches);
    waits_no_more();
  } catch (...) {
    waits_no_more();
    const Error error = current_error(), why = in_step(arrival.position, error);
    delivery_->fail(std::make_exception_ptr(why));
    between_->abort(error);
    throw why;
  }
}

std::optional<Position> Upload::arrived() const {
  const Lock lock(mutex_);
  return arrived_;
}

void Upload::exchange(const PendingArrival& arrival, feedline::Stream stream) {
  const int rank = distribution_.rank, reader = distribution_.reader_of(rank);
  std::vector<Transport::Part> sends, receives;
  for (int to = 0; to < distribution_.ranks(); to++)
    if (to != rank && distribution_.reader_of(to) == rank)
      for (const std::span<std::byte> rows : arrival.parts[static_cast<size_t>(distribution_.parts_of(to)[0])])
        sends.push_back({to, rows});
  if (rank != reader)
    for (const std::span<std::byte> rows : arrival.parts[0]) receives.push_back({reader, rows});
  if (distribution_.one_part())
    for (const std::span<std::byte> rows : arrival.parts[0]) between_->broadcast(rows, reader, stream);
  else
    between_->send_receive(sends, receives, stream);
  for (const Transport::Part& part : sends) sent_ += part.bytes.size();
  for (const Transport::Part& part : receives) received_ += part.bytes.size();
}

// Returns whether the log must warn of the current arrive(). Returns true at most once for each call of arrive().
bool Upload::arrival_takes_long() {
  if (!arriving_since_ || Clock::now() - *arriving_since_ < long_wait) return false;
  arriving_since_.reset();
  return true;
}

void Upload::finish_copies(size_t first) {
  Replica& source = replicas_[first];
  for (;;) {
    Lock lock(mutex_);
    Copying& copying = copying_[first];
    const auto has_work = [&] { return copying.no_more || !copying.in_flight.empty(); };
    while (between_ && !source.changed.wait_for(lock, between_looks_at_arrivals, has_work)) {
      if (!arrival_takes_long()) continue;
      // next() waits inside arrive(), where it cannot write the warning itself.
      lock.unlock();
      log_warning(
          fmt::format("next() has waited {} s for other ranks to call next() for the same step", long_wait.count()));
      lock.lock();
    }
    source.changed.wait(lock, has_work);
    if (copying.in_flight.empty()) return;
    lock.unlock();
    for (size_t r = first; r < first + alike_; r++) {
      Replica& replica = replicas_[r];
      replica.copy_ns += static_cast<uint64_t>(replica.device->finish_copy() * 1e9);
      replica.copies++;
    }
    lock.lock();
    const Parts copied = std::move(copying.in_flight.front());
    copying.in_flight.pop_front();
    lock.unlock();
    source.changed.notify_all();
  }
}

void Upload::add_to(Counters& counters) const {
  counters.uploaded_bytes += uploaded_;
  counters.between_gpus_bytes += between_gpus_;
  counters.sent_bytes += sent_;
  counters.received_bytes += received_;
}

std::vector<StageReport> Upload::report() const {
  std::vector<StageReport> stages;
  for (size_t r = 0; r < replicas_.size(); r++) {
    const Replica& replica = replicas_[r];
    stages.push_back(replica.counters.report(fmt::format("upload {}", r), replica.buffer_wait.waited_s(),
                                             static_cast<int64_t>(delivery_->waiting_batches(static_cast<int>(r)))));
    stages.push_back({.name = fmt::format("copy {}", r),
                      .busy_s = static_cast<double>(replica.copy_ns) / 1e9,
                      .wait_s = 0,
                      .messages = replica.copies,
                      .queue = 0});
  }
  return stages;
}

std::vector<std::pair<std::string, std::string>> Upload::outputs(const PipelineSpec& spec, const FeedFacts& facts) {
  std::vector<std::pair<std::string, std::string>> outputs;
  const PackedBatches batches(spec, facts);
  for (const PackedBatches::Origin& output : batches.origins())
    outputs.emplace_back(output.name, output.stored ? "copied to GPUs as it is"
                                      : !output.table.empty()
                                          ? fmt::format("gathered on GPUs from {}", output.table)
                                          : fmt::format("unpacked on GPUs from '{}'", output.column));
  return outputs;
}

std::string Upload::text(const PipelineSpec& spec, const FeedFacts& facts, const std::vector<DeviceId>& devices,
                         size_t parts) {
  const PackedBatches batches(spec, facts);
  std::string text;
  for (const auto& [name, made] : outputs(spec, facts)) append(text, "where    {:<24} {}\n", name, made);
  const uint64_t buffer_bytes = buffer_bytes_of(batches, parts), buffers = buffers_of(spec, buffer_bytes, devices);
  append(text, "memory   {:<26} {:>5} x {:>10} = {:>10}, on each GPU for each of its replicas\n", "batches on a GPU",
         buffers, format_byte_size(buffer_bytes), format_byte_size(buffers * buffer_bytes));
  if (const uint64_t table_bytes = table_bytes_of(spec))
    append(text, "memory   {:<26} {:>5} x {:>10} = {:>10}, on each GPU\n", "tables on a GPU", 1,
           format_byte_size(table_bytes), format_byte_size(table_bytes));
  std::string ordinals;
  for (const DeviceId device : devices) ordinals += fmt::format("{}{}", ordinals.empty() ? "" : ", ", device.ordinal);
  append(text, "replicas on GPUs {}\n", ordinals);
  return text;
}

}  // namespace feedline::flow
