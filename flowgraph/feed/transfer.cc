#include "flowgraph/feed/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/byte_size.h"
#include "base/float_environment.h"
#include "base/leak.h"
#include "base/log.h"
#include "base/thread.h"
#include "ranks/current_error.h"

namespace feedline::flow {
namespace {

using Part = Transport::Part;

// The time within which the other ranks must have learned that this rank leaves.
constexpr auto leave_timeout = std::chrono::seconds(5);
// The time between two votes while some ranks vote to begin anew and some do not yet.
constexpr auto between_meetings = std::chrono::milliseconds(50);
constexpr size_t head_numbers = 3, shape_numbers = 1 + Shape::max_rank + 2;

size_t bytes_of(const BatchTensor& tensor, const Shape& shape) {
  return static_cast<size_t>(shape.elements()) * size_of(tensor.dtype);
}

std::span<std::byte> bytes_of(std::vector<int64_t>& numbers) { return std::as_writable_bytes(std::span(numbers)); }

}  // namespace

// Throws Error bad_pipeline if the numbers of a head are impossible.
void Transfer::check_head(const Head& head) const {
  bool possible = head.numbers[1] >= 0 && head.numbers[1] <= head.rows();
  for (auto at = head.numbers.begin() + head_numbers; at != head.numbers.end(); at += shape_numbers)
    possible = possible && *at >= 0 && *at <= static_cast<int64_t>(Shape::max_rank + 2);
  if (!possible || !batches_.can_have(head.shapes(), head.rows()))
    throw Error(Category::bad_pipeline,
                fmt::format("rank {} sent an invalid description of its rows; all ranks must run the same version of "
                            "feedline",
                            distribution_.reader_of(distribution_.rank)));
}

std::vector<Shape> Transfer::Head::shapes() const {
  std::vector<Shape> shapes;
  for (auto at = numbers.begin() + head_numbers; at != numbers.end(); at += shape_numbers) {
    Shape shape;
    for (auto axis = at + *at; axis != at; --axis) shape = shape.with_rows(*axis);
    shapes.push_back(shape);
  }
  return shapes;
}

MemoryLine Transfer::memory(const PipelineSpec& spec, const FeedFacts& facts, size_t replicas) {
  return {"batches as they arrive", replicas * (static_cast<uint64_t>(spec.host_prefetch) + 1),
          PackedBatches(spec, facts).buffer_bytes()};
}

Transfer::Transfer(const PipelineSpec& spec, Start start)
    : spec_(spec),
      start_(std::move(start)),
      distribution_(start_.distribution),
      readers_(distribution_.readers()),
      communicator_(*start_.communicator),
      batches_(spec_, start_.facts, start_.tables),
      arena_(start_.threads, spec_.cpu_set),
      position_(start_.position),
      buffers_(start_.devices.size()) {
  const MemoryLine wanted = memory(spec_, start_.facts, start_.devices.size());
  const uint64_t bytes = wanted.count * wanted.bytes;
  if (!start_.graph && bytes > spec_.memory_limit)  // on a reader the plan has checked the limit
    throw Error(
        Category::bad_pipeline,
        fmt::format("memory.limit: the batches that other ranks send need {}, but the limit is {}; set memory.limit to "
                    "at least \"{}MiB\", or set a smaller parallelism.host_prefetch",
                    format_byte_size(bytes), format_byte_size(spec_.memory_limit), (bytes >> 20) + 1));
  for (size_t replica = 0; replica < start_.devices.size(); replica++) {
    rings_.push_back(std::make_shared<BatchRing>(
        wanted.count / start_.devices.size(), wanted.bytes, static_cast<int>(replica),
        [&](std::byte* memory) { return batches_.content(memory); }, start_.devices[replica]));
    buffer_wait_.watch(*rings_.back());
  }
  exchanged_->rings = rings_;
  exchanged_->votes.resize(static_cast<size_t>(distribution_.ranks()));
  exchanged_->heads.resize(start_.parts.size());
  for (Head& head : exchanged_->heads) head.numbers.resize(head_numbers + shape_numbers * batches_.packed().size());
  delivery_ = std::make_unique<Delivery>(
      rings_, spec_.host_prefetch, position_, EpochLedger(rings_.size(), {}, false),
      [this](int) { return waits_for_rows_ ? Stage::read : Stage::transfer; }, true);
}

Transfer::~Transfer() {
  intend(Intent::leave);
  {
    Lock lock(mutex_);
    const bool heard = changed_.wait_for(lock, leave_timeout, [&]() FEEDLINE_REQUIRES(mutex_) { return ended_; });
    lock.unlock();
    if (!heard)
      communicator_.abort(Error(Category::stalled,
                                fmt::format("the feeder of this rank has ended, but some other ranks have not noticed "
                                            "this within {} s; see the logs of the other ranks",
                                            leave_timeout.count())));
  }
  if (thread_.joinable()) thread_.join();
  for (auto& ring : rings_) ring->pool().close();
  if (communicator_.failure()) leak(exchanged_);
}

void Transfer::run() {
  {
    const Lock lock(mutex_);
    ended_ = false;
  }
  try {
    thread_ = start_thread("feedline-transfer", [this] { loop(); });
  } catch (const std::system_error& error) {
    const Lock lock(mutex_);
    ended_ = true;
    throw Error(Category::io_error, fmt::format("the thread that sends rows cannot be started: {}", error.what()));
  }
}

void Transfer::end_together() {
  intend(Intent::begin_anew);
  Lock lock(mutex_);
  const auto is_over = [&]() FEEDLINE_REQUIRES(mutex_) { return ended_ || intent_ == Intent::leave; };
  if (!changed_.wait_for(lock, long_wait, is_over)) {
    lock.unlock();
    log_warning(
        "set_state(), set_epoch() or set_weights() on this rank waits for all other ranks to make the same call");
    lock.lock();
    changed_.wait(lock, is_over);
  }
  if (failure_) std::rethrow_exception(failure_);
}

void Transfer::end_if_others_begin_anew() {
  {
    const Lock lock(mutex_);
    if (intent_ != Intent::go_on || beginner_ < 0) return;
  }
  // This rank, too, has received all steps that the rank `beginner_` has received, and has done so long ago. So the
  // trainer of this rank asks for a step that will not come.
  if (std::chrono::steady_clock::now() - beginner_since_.load() < long_wait) return;
  communicator_.abort(Error(Category::stalled,
                            fmt::format("rank {} calls set_state(), set_epoch() or set_weights(), but this rank calls "
                                        "next(); all ranks must make these calls together (in Python also "
                                        "load_state_dict())",
                                        beginner_.load())));
}

void Transfer::stop() noexcept {
  delivery_->stop();
  intend(Intent::leave);
}

void Transfer::intend(Intent intent) noexcept {
  {
    const Lock lock(mutex_);
    intent_ = std::max(intent_, intent);
  }
  changed_.notify_all();
  if (start_.graph) start_.graph->stop();  // the thread may be waiting in the graph's next()
}

void Transfer::loop() noexcept {
  const DefaultFloatEnvironment floats;
  try {
    while (step()) {
    }
  } catch (...) {
    fail();
  }
  {
    const Lock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

void Transfer::fail() noexcept {
  try {
    const Error why = current_error();
    const bool of_ranks = communicator_.failure().has_value();
    if (!of_ranks) communicator_.abort(why);
    end_with(of_ranks ? in_step(position_, why) : why);
  } catch (...) {  // there is too little memory for a better Error
    delivery_->fail(std::current_exception());
  }
}

// Ends the feed with an error, which comes after the batches that have arrived.
void Transfer::end_with(const Error& error) {
  {
    const Lock lock(mutex_);
    failure_ = std::make_exception_ptr(error);
  }
  const auto shared = std::make_shared<const Error>(error);
  for (size_t replica = 0; replica < rings_.size(); replica++)
    delivery_->put(static_cast<int>(replica), {.error = shared});
}

bool Transfer::step() {
  exchanged_->vote = prepare();
  communicator_.all_gather(std::as_bytes(std::span(&exchanged_->vote, 1)),
                           std::as_writable_bytes(std::span(exchanged_->votes)), feedline::Stream::host);
  const std::vector<StepVote>& all = exchanged_->votes;
  for (const StepVote& vote : all)
    if (vote.intent > Intent::leave || vote.offer > Offer::end_of_epoch)
      throw Error(
          Category::bad_pipeline,
          fmt::format("rank {} sent a message that this version of feedline does not know; all ranks must run the same "
                      "version",
                      &vote - all.data()));
  const auto one_that = [&](Intent intent) {
    return std::find_if(all.begin(), all.end(), [&](const StepVote& vote) { return vote.intent == intent; });
  };
  if (const auto leaver = one_that(Intent::leave); leaver != all.end()) {
    end_with(
        Error(Category::stalled,
              fmt::format("rank {} has left the feed, after step {} of epoch {}: its feeder was stopped or destroyed",
                          leaver - all.begin(), position_.step, position_.epoch)));
    return false;
  }
  if (one_that(Intent::begin_anew) != all.end()) {
    if (one_that(Intent::go_on) == all.end()) return false;
    // The ranks go on voting, so that they learn of a rank that leaves or is lost.
    if (beginner_ < 0) beginner_since_ = std::chrono::steady_clock::now();
    beginner_ = static_cast<int>(one_that(Intent::begin_anew) - all.begin());
    Lock lock(mutex_);
    changed_.wait_for(lock, between_meetings,
                      [&]() FEEDLINE_REQUIRES(mutex_) { return intent_ != exchanged_->vote.intent; });
    return true;
  }
  check_votes();
  if (all[static_cast<size_t>(distribution_.reader_of(distribution_.rank))].offer == Offer::end_of_epoch)
    end_epoch();
  else
    receive();
  return true;
}

// Returns this rank's vote on whether the next step can be sent. On a rank that reads, it first waits until the graph
// has made that step.
Transfer::StepVote Transfer::prepare() {
  exchanged_->parts.clear();
  {
    const Lock lock(mutex_);
    if (intent_ != Intent::go_on) return {.intent = intent_};
  }
  if (!start_.graph || beginner_ >= 0) return {};
  StepVote vote{.epoch = position_.epoch, .step = position_.step};
  waits_for_rows_ = true;
  try {
    for (int part = 0; part < distribution_.planned().replicas; part++) {
      Delivery& parts = start_.graph->delivery();
      vote.offer = parts.next(part, std::nullopt, exchanged_->parts.emplace_back()) == Delivery::Outcome::batch
                       ? Offer::batch
                       : Offer::end_of_epoch;
    }
  } catch (const Error&) {
    const Lock lock(mutex_);
    if (intent_ == Intent::go_on) throw;
    vote = {.intent = intent_};  // intend() has stopped the graph, and so ended the wait in next()
  }
  waits_for_rows_ = false;
  return vote;
}

// Throws Error bad_pipeline unless all readers are at this rank's step and make the same offer: a batch, or the end of
// the epoch.
void Transfer::check_votes() const {
  const std::vector<StepVote>& all = exchanged_->votes;
  const auto place = [](const StepVote& vote) {
    const char* const end = vote.offer == Offer::end_of_epoch ? ", which is the end," : "";
    return fmt::format("step {}{} of epoch {}", vote.step, end, vote.epoch);
  };
  for (const int reader : readers_) {
    const StepVote &vote = all[static_cast<size_t>(reader)], &first = all[static_cast<size_t>(readers_[0])];
    if (vote.offer == Offer::nothing || vote.offer != first.offer || vote.epoch != position_.epoch ||
        vote.step != position_.step)
      throw Error(Category::bad_pipeline,
                  fmt::format("rank {} is at {}, but should be at {}: the files have changed on some rank; restart all "
                              "ranks",
                              reader, place(vote),
                              place({.offer = first.offer, .epoch = position_.epoch, .step = position_.step})));
  }
}

void Transfer::receive() {
  send_heads();
  for (size_t replica = 0; replica < buffers_.size(); replica++) buffers_[replica] = take_buffer(replica);
  const StageCounters::Busy busy(counters_);
  if (start_.heads_only)
    keep_own_rows();
  else
    distribution_.one_part() ? broadcast_rows() : send_rows();
  copy_to_replicas();
  for (size_t replica = 0; replica < buffers_.size(); replica++) deliver(replica);
  position_.step++;
}

Transfer::Head Transfer::head_of(const Batch& part) {
  Head head{{part.rows(), part.valid_count(), static_cast<int64_t>(part.audit())}};
  for (const NamedTensor& tensor : part.tensors()) {
    const Shape& shape = tensor.tensor.shape;
    head.numbers.push_back(static_cast<int64_t>(shape.rank()));
    head.numbers.insert(head.numbers.end(), shape.begin(), shape.end());
    head.numbers.insert(head.numbers.end(), shape_numbers - 1 - shape.rank(), 0);
  }
  return head;
}

void Transfer::send_heads() {
  const int rank = distribution_.rank;
  std::vector<Head>&heads = exchanged_->heads, &sent = exchanged_->sent;
  sent.clear();
  for (const Batch& part : exchanged_->parts) sent.push_back(head_of(part));
  if (distribution_.one_part()) {
    if (!sent.empty()) heads = sent;
    communicator_.broadcast(bytes_of(heads[0].numbers), distribution_.reader_of(rank), feedline::Stream::host);
    return check_head(heads[0]);
  }
  std::vector<Part> sends, receives;
  for (int to = 0; to < distribution_.ranks(); to++)
    if (to != rank && distribution_.reader_of(to) == rank)
      for (const int part : distribution_.parts_of(to))
        sends.push_back({to, bytes_of(sent[static_cast<size_t>(part)].numbers)});
  for (size_t arrival = 0; arrival < heads.size(); arrival++)
    if (sent.empty())
      receives.push_back({distribution_.reader_of(rank), bytes_of(heads[arrival].numbers)});
    else
      heads[arrival] = sent[static_cast<size_t>(start_.parts[arrival])];
  communicator_.send_receive(sends, receives, feedline::Stream::host);
  for (const Head& head : heads) check_head(head);
}

// Returns, for each packed tensor, where in the buffer its bytes go. The head says how many bytes these are. Throws
// Error bad_pipeline if the buffer has no room for the bytes of a tensor.
std::vector<std::span<std::byte>> Transfer::spans_in(const BatchBuffer& buffer, const Head& head) const {
  const std::vector<Shape> shapes = head.shapes();
  std::vector<std::span<std::byte>> spans;
  for (size_t t = 0; t < shapes.size(); t++) {
    const BatchTensor& tensor = batches_.packed()[t];
    const size_t bytes = bytes_of(tensor, shapes[t]);
    if (bytes > tensor.capacity)
      throw Error(
          Category::bad_pipeline,
          fmt::format(
              "a rank sent {} bytes for the tensor '{}', which has room for {} bytes; all ranks must run the same "
              "pipeline and the same version of feedline",
              bytes, tensor.name, tensor.capacity));
    spans.emplace_back(buffer.memory + tensor.offset, bytes);
  }
  return spans;
}

void Transfer::send_rows() {
  const int rank = distribution_.rank, reader = distribution_.reader_of(rank);
  std::vector<Part> sends, receives;
  for (int to = 0; to < distribution_.ranks() && !exchanged_->parts.empty(); to++) {
    if (distribution_.reader_of(to) != rank) continue;
    for (const int part : distribution_.parts_of(to))
      for (const NamedTensor& tensor : exchanged_->parts[static_cast<size_t>(part)].tensors()) {
        sends.push_back({to, {static_cast<std::byte*>(tensor.tensor.data), tensor.tensor.size_bytes()}});
        if (to != rank) sent_ += sends.back().bytes.size();
      }
  }
  for (size_t arrival = 0; arrival < start_.parts.size(); arrival++)
    for (const std::span<std::byte> bytes : spans_in(*buffers_[arrival], exchanged_->heads[arrival])) {
      receives.push_back({reader, bytes});
      if (reader != rank) received_ += bytes.size();
    }
  communicator_.send_receive(sends, receives, feedline::Stream::host);
  exchanged_->parts.clear();
}

// Broadcasts the rows from the reader's own buffer. Tensors that lie side by side are sent in one call.
void Transfer::broadcast_rows() {
  const int reader = distribution_.reader_of(distribution_.rank);
  keep_own_rows();
  const std::vector<std::span<std::byte>> spans = spans_in(*buffers_[0], exchanged_->heads[0]);
  for (size_t t = 0; t < spans.size();) {
    std::span<std::byte> together = spans[t++];
    for (; t < spans.size() &&
           spans[t].data() - (together.data() + together.size()) < static_cast<int64_t>(tensor_alignment);
         t++)
      together = {together.data(), spans[t].data() + spans[t].size()};
    communicator_.broadcast(together, reader, feedline::Stream::host);
    if (reader == distribution_.rank)
      sent_ += together.size() * static_cast<size_t>(distribution_.ranks() - 1);
    else
      received_ += together.size();
  }
}

// On a reader, copies the rows of its own replicas to their buffers. Does nothing on a rank that does not read.
void Transfer::keep_own_rows() {
  if (exchanged_->parts.empty()) return;
  for (size_t arrival = 0; arrival < start_.parts.size(); arrival++) {
    const auto spans = spans_in(*buffers_[arrival], exchanged_->heads[arrival]);
    const Batch& part = exchanged_->parts[static_cast<size_t>(start_.parts[arrival])];
    for (size_t t = 0; t < spans.size(); t++)
      if (!spans[t].empty()) std::memcpy(spans[t].data(), part.tensors()[t].tensor.data, spans[t].size());
  }
  exchanged_->parts.clear();
}

void Transfer::copy_to_replicas() {
  for (size_t replica = start_.parts.size(); replica < buffers_.size(); replica++) {
    const auto from = spans_in(*buffers_[0], exchanged_->heads[0]),
               to = spans_in(*buffers_[replica], exchanged_->heads[0]);
    for (size_t t = 0; t < from.size(); t++)
      if (!from[t].empty()) std::memcpy(to[t].data(), from[t].data(), from[t].size());
  }
}

BatchBuffer* Transfer::take_buffer(size_t replica) {
  // take() holds mutex_ when it calls stop(), but clang does not see it, because BufferWait has its own reference to
  // mutex_.
  const auto stop = [this]() FEEDLINE_NO_THREAD_SAFETY_ANALYSIS { return intent_ != Intent::go_on; };
  BatchBuffer* const buffer = buffer_wait_.take(*rings_[replica], *delivery_, static_cast<int>(replica), stop);
  return buffer ? buffer : scratch_buffer();
}

BatchBuffer* Transfer::scratch_buffer() {
  Scratch& one = exchanged_->scratch.emplace_back(gpu::Memory(batches_.buffer_bytes()));
  one.buffer.memory = one.memory.bytes().data();
  one.buffer.content = batches_.content(one.buffer.memory);
  return &one.buffer;
}

void Transfer::deliver(size_t replica) {
  if (!exchanged_->scratch.empty()) return;  // this rank leaves or begins anew, so nobody takes the step
  BatchBuffer& buffer = *buffers_[replica];
  const Head& head = exchanged_->heads[std::min(replica, start_.parts.size() - 1)];
  buffer.content.epoch = position_.epoch;
  buffer.content.step = static_cast<uint64_t>(position_.step);
  buffer.content.rows = head.rows();
  buffer.content.valid_count = head.numbers[1];
  buffer.content.audit = static_cast<uint64_t>(head.numbers[2]);
  const std::vector<Shape> shapes = head.shapes();
  if (const int reader = distribution_.reader_of(distribution_.rank);
      reader != distribution_.rank && !start_.heads_only)
    batches_.check_arrived(buffer.memory, shapes, head.rows(), reader);
  batches_.set_shapes(shapes, buffer.content);
  arena_.execute([&] { batches_.unpack(buffer); });
  delivery_->put(static_cast<int>(replica), {.batch = rings_[replica]->share(&buffer)});
}

void Transfer::end_epoch() {
  for (size_t replica = 0; replica < rings_.size(); replica++)
    delivery_->put(static_cast<int>(replica), {.end = {.epoch = position_.epoch}});
  position_ = {position_.epoch + 1, 0};
}

void Transfer::add_to(Counters& counters) const {
  counters.sent_bytes += sent_;
  counters.received_bytes += received_;
}

StageReport Transfer::stage() const { return counters_.report("transfer", buffer_wait_.waited_s(), 0); }

}  // namespace feedline::flow
