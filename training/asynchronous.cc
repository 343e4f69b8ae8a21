#include <fmt/format.h>

#include <deque>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/mutex.h"
#include "base/thread.h"
#include "feedline/data_parallel.h"
#include "feedline/error.h"
#include "gpu/device/device_name.h"
#include "ranks/current_error.h"
#include "training/buckets.h"

namespace feedline {
namespace {

constexpr int server_rank = 0, worker_rank = 1;

// The message that a worker sends to each server before its gradients. When the worker has finished, it sends only this
// message.
struct WorkerMessage {
  enum class Kind : uint32_t { gradients, done } kind = Kind::gradients;
  float loss_scale = 1;
};
static_assert(std::is_trivially_copyable_v<WorkerMessage>);

// Allocates a message in host memory that communicators can use.
WorkerMessage& allocate_message(Places& places) {
  return *new (places.allocate_on_host(sizeof(WorkerMessage))) WorkerMessage;
}

// Throws Error bad_pipeline if the communicator is not one of a worker and a server, of which this rank is `rank`.
void check_pair(const char* function, const Communicator& pair, int rank) {
  if (pair.size() == 2 && pair.rank() == rank) return;
  throw Error(Category::bad_pipeline,
              fmt::format("{}: this rank is rank {} of {} in a communicator, but must be rank {} of 2; make a "
                          "communicator for each pair of a server, as rank 0, and a worker, as rank 1",
                          function, pair.rank(), pair.size(), rank));
}

// Broadcasts the message from the worker to the server. Both ranks of the pair call it.
void exchange_message(const TrainingCommunicator& pair, WorkerMessage& message) {
  pair->broadcast(std::as_writable_bytes(std::span(&message, 1)), worker_rank, Stream::host);
}

class Worker final : public DataParallel {
 public:
  Worker(std::vector<std::shared_ptr<Communicator>> servers, std::vector<Variable> variables,
         const DataParallelOptions& options)
      : places_(options, servers[0]->device()),
        variables_(std::move(variables)),
        trainer_(options.stream),
        check_finite_(options.check_finite),
        owners_(place_by_size(variables_, static_cast<int>(servers.size()))),
        buckets_(make_buckets(variables_, owners_, bucket_bytes_of(options, host()), places_)),
        ready_(variables_) {
    for (Bucket& bucket : buckets_) bucket.allocate(false);
    for (auto& server : servers) servers_.emplace_back(std::move(server), places_);
    try {
      receive_values();
    } catch (...) {  // abort() ends kernels that wait for a server; otherwise freeing the memory would wait for them
      for (const TrainingCommunicator& server : servers_) server->abort(current_error());
      throw;
    }
  }
  ~Worker() override {
    message_.kind = WorkerMessage::Kind::done;
    for (const TrainingCommunicator& server : servers_) try {
        exchange_message(server, message_);
      } catch (const Error&) {
        // The server has failed or ended, so it needs no message.
      }
  }

  void ready(size_t variable) override { ready_.add(variable); }

  bool step(float loss_scale) override {
    ready_.expect_all();
    ready_.clear();
    places_.here().follow(trainer_);
    verdict_.begin(places_.here());
    for (Bucket& bucket : buckets_) {
      bucket.take_gradients(variables_);
      bucket.divide_at(places_.here(), loss_scale, verdict_);
    }
    if (check_finite_ && !verdict_.read()) return false;
    message_ = {WorkerMessage::Kind::gradients, loss_scale};
    for (const TrainingCommunicator& server : servers_) exchange_message(server, message_);
    for (Bucket& bucket : buckets_) {
      bucket.gradient_to_home();
      server_of(bucket)->broadcast(bucket.gradient_at(bucket.home), worker_rank, places_.home().stream());
    }
    receive_values();
    return true;
  }

  void wait() override {
    places_.here().wait();
    for (const TrainingCommunicator& server : servers_)
      if (const auto failure = server->failure()) throw *failure;
  }

  int owner(size_t variable) const override { return owners_.at(variable); }

 private:
  const TrainingCommunicator& server_of(const Bucket& bucket) const {
    return servers_[static_cast<size_t>(bucket.owner)];
  }

  void receive_values() {
    for (Bucket& bucket : buckets_) {
      server_of(bucket)->broadcast(bucket.numbers_at(bucket.home), server_rank, places_.home().stream());
      bucket.numbers_to_here();
      bucket.give_values(variables_);
    }
    places_.here().lead(trainer_);
  }

  Places places_;
  const std::vector<Variable> variables_;
  const Stream trainer_;
  const bool check_finite_;
  const std::vector<int> owners_;
  std::vector<Bucket> buckets_;
  WorkerMessage& message_ = allocate_message(places_);
  Verdict verdict_{places_};
  std::deque<TrainingCommunicator> servers_;
  ReadyVariables ready_;
};

// The state that the Services of all workers share.
struct Shared {
  Mutex mutex;  // also guards the variables, the trainer's stream and the state of Apply
  Served served FEEDLINE_GUARDED_BY(mutex);
};

// Serves one worker. run() is the body of a thread.
class Service {
 public:
  Service(std::shared_ptr<Communicator> worker, int server, const std::vector<int>& owners,
          const std::vector<Variable>& variables, const Apply& apply, const DataParallelOptions& options,
          Shared& shared)
      : places_(options, worker->device()),
        worker_(std::move(worker), places_),
        variables_(variables),
        apply_(apply),
        trainer_(options.stream),
        buckets_(make_buckets(variables, owners, bucket_bytes_of(options, host()), places_)),
        shared_(shared) {
    if (places_.apart())
      throw Error(
          Category::bad_pipeline,
          fmt::format(
              "serve_parameters: the variables are on {}, but a worker's communicator is for memory of {}; make the "
              "communicators for the variables' device",
              device_name(options.device), device_name(worker_->device())));
    std::erase_if(buckets_, [&](const Bucket& bucket) { return bucket.owner != server; });
    for (Bucket& bucket : buckets_) bucket.allocate(true);
  }

  void run() noexcept try {
    gpu::Queue& queue = places_.home();
    queue.enter_thread();
    send_values(false);
    for (;;) {
      exchange_message(worker_, message_);
      if (message_.kind == WorkerMessage::Kind::done) return;
      for (Bucket& bucket : buckets_) worker_->broadcast(bucket.gradient_at(bucket.home), worker_rank, queue.stream());
      for (Bucket& bucket : buckets_) bucket.divide_at(queue, message_.loss_scale, finite_for_the_worker_);
      queue.wait();
      if (const auto failure = worker_->failure()) throw *failure;  // the gradients may be incomplete
      send_values(true);
    }
  } catch (...) {
    lose(current_error());
  }

  /// Records that the worker is lost and why, and aborts its communicator, so that the worker learns of it.
  void lose(const Error& why) {
    worker_->abort(why);
    const Lock lock(shared_.mutex);
    shared_.served.lost.push_back(why);
  }

 private:
  // Sends the values to the worker; if `update`, first updates them with the worker's gradients. Holds one lock during
  // the update and the copy of the values, so that the worker receives the result of its own update.
  void send_values(bool update) {
    {
      const Lock lock(shared_.mutex);
      places_.home().follow(trainer_);
      if (update) {
        for (Bucket& bucket : buckets_) bucket.apply(apply_, variables_, trainer_);
        shared_.served.updates++;
      }
      for (Bucket& bucket : buckets_) bucket.take_masters(variables_);
      places_.home().lead(trainer_);
    }
    for (Bucket& bucket : buckets_)
      worker_->broadcast(bucket.numbers_at(bucket.home), server_rank, places_.home().stream());
  }

  Places places_;
  const TrainingCommunicator worker_;
  const std::vector<Variable>& variables_;
  const Apply& apply_;
  const Stream trainer_;
  std::vector<Bucket> buckets_;
  WorkerMessage& message_ = allocate_message(places_);
  // An argument that divide_at() needs; nothing reads its result here. A worker has checked the gradients before it
  // sent them, if check_finite is set.
  Verdict finite_for_the_worker_{places_};
  Shared& shared_;
};

}  // namespace

std::unique_ptr<DataParallel> asynchronous(std::vector<std::shared_ptr<Communicator>> servers,
                                           std::vector<Variable> variables, const DataParallelOptions& options) {
  if (servers.empty())
    throw Error(Category::bad_pipeline,
                "asynchronous: the list of servers is empty; give a communicator for each server");
  return or_abort(servers, [&] {
    for (const auto& server : servers)
      if (server->device() != servers[0]->device())
        throw Error(
            Category::bad_pipeline,
            fmt::format("asynchronous: the communicators of two servers are for memory of {} and of {}; make those of "
                        "all servers for the same device",
                        device_name(servers[0]->device()), device_name(server->device())));
    for (const auto& server : servers) check_pair("asynchronous", *server, worker_rank);
    return std::make_unique<Worker>(std::move(servers), std::move(variables), options);
  });
}

Served serve_parameters(const std::vector<std::shared_ptr<Communicator>>& workers, int server, int servers,
                        const std::vector<Variable>& variables, const Apply& apply,
                        const DataParallelOptions& options) {
  Shared shared;
  std::deque<Service> services;
  or_abort(workers, [&] {
    if (server < 0 || server >= servers)
      throw Error(Category::bad_pipeline,
                  fmt::format("serve_parameters: there is no server {} of {} servers; servers are numbered from 0 to "
                              "servers - 1",
                              server, servers));
    const std::vector<int> owners = place_by_size(variables, servers);
    for (const auto& worker : workers) {
      check_pair("serve_parameters", *worker, server_rank);
      services.emplace_back(worker, server, owners, variables, apply, options, shared);
    }
  });
  std::vector<std::thread> threads;
  threads.reserve(services.size());
  for (Service& service : services) try {
      threads.push_back(start_thread("feedline-server", [&service] { service.run(); }));
    } catch (const std::exception& error) {  // the other workers are served nevertheless
      service.lose(Error(Category::io_error,
                         fmt::format("the thread that serves a worker cannot be started: {}", error.what())));
    }
  for (std::thread& thread : threads) thread.join();
  const Lock lock(shared.mutex);
  return std::move(shared.served);
}

}  // namespace feedline
