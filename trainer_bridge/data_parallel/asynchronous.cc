#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "base/keep_for_ever.h"
#include "base/thread.h"
#include "data_parallel/buckets.h"
#include "feedline/data_parallel.h"
#include "feedline/error.h"

namespace feedline {
namespace {

constexpr int server_rank = 0, worker_rank = 1;

// What a worker says before its gradients, or in place of them.
struct Word {
  enum class What : uint32_t { update, done } what = What::update;
  float loss_scale = 1;
};

// What calls read and write.
struct Exchanged {
  std::vector<Bucket> buckets;
  Word word = {};
};

void tell(Communicator& pair, Word& word) {
  pair.broadcast(std::as_writable_bytes(std::span(&word, 1)), worker_rank, Stream::host);
}

std::vector<Bucket> buckets_of_server(const std::vector<Variable>& variables, const std::vector<int>& owners,
                                      int server, const DataParallelOptions& options) {
  std::vector<Bucket> buckets = make_buckets(variables, owners, options.bucket_bytes);
  std::erase_if(buckets, [&](const Bucket& bucket) { return bucket.owner != server; });
  return buckets;
}

class Worker final : public DataParallel {
 public:
  Worker(std::vector<std::shared_ptr<Communicator>> servers, std::vector<Variable> variables,
         const DataParallelOptions& options)
      : servers_(std::move(servers)),
        variables_(std::move(variables)),
        owners_(place_by_size(variables_, static_cast<int>(servers_.size()))),
        exchanged_(std::make_shared<Exchanged>(Exchanged{make_buckets(variables_, owners_, options.bucket_bytes)})),
        ready_(variables_) {
    receive_values();
  }
  ~Worker() override {
    exchanged_->word.what = Word::What::done;
    for (const auto& server : servers_) try {
        tell(*server, exchanged_->word);
      } catch (const Error&) {
        // It is gone.
      }
    const auto failed = [](const auto& server) { return server->failure().has_value(); };
    if (std::any_of(servers_.begin(), servers_.end(), failed)) keep_for_ever(exchanged_);
  }

  void ready(size_t variable) override { ready_.add(variable); }

  bool step(float loss_scale) override {
    ready_.expect_all();
    ready_.clear();
    bool finite = true;
    for (Bucket& bucket : exchanged_->buckets) {
      for (size_t place = 0; place < bucket.variables.size(); place++)
        bucket.take_gradient(place, variables_[bucket.variables[place]]);
      finite = finite && bucket.divide(loss_scale);
    }
    if (!finite) return false;
    exchanged_->word = {Word::What::update, loss_scale};
    for (const auto& server : servers_) tell(*server, exchanged_->word);
    for (Bucket& bucket : exchanged_->buckets) server_of(bucket).broadcast(bucket.gradient, worker_rank, Stream::host);
    receive_values();
    return true;
  }

  int owner(size_t variable) const override { return owners_.at(variable); }

 private:
  Communicator& server_of(const Bucket& bucket) const { return *servers_[static_cast<size_t>(bucket.owner)]; }

  void receive_values() {
    for (Bucket& bucket : exchanged_->buckets) {
      server_of(bucket).broadcast(bucket.number_bytes(), server_rank, Stream::host);
      bucket.give_values(variables_);
    }
  }

  const std::vector<std::shared_ptr<Communicator>> servers_;
  const std::vector<Variable> variables_;
  const std::vector<int> owners_;
  const std::shared_ptr<Exchanged> exchanged_;
  ReadyVariables ready_;
};

// Serves one worker, in a thread of its own.
class Service {
 public:
  Service(std::shared_ptr<Communicator> worker, std::vector<Bucket> buckets, const std::vector<Variable>& variables,
          const Apply& apply, std::mutex& mutex)
      : worker_(std::move(worker)),
        exchanged_(std::make_shared<Exchanged>(Exchanged{std::move(buckets)})),
        variables_(variables),
        apply_(apply),
        mutex_(mutex) {}

  void run(Served& served) noexcept try {
    send_values([] {});
    for (;;) {
      tell(*worker_, exchanged_->word);
      if (exchanged_->word.what == Word::What::done) return;
      for (Bucket& bucket : exchanged_->buckets) worker_->broadcast(bucket.gradient, worker_rank, Stream::host);
      for (Bucket& bucket : exchanged_->buckets) bucket.divide(exchanged_->word.loss_scale);
      send_values([&] {
        for (Bucket& bucket : exchanged_->buckets) bucket.apply(apply_, variables_);
        served.updates++;
      });
    }
  } catch (const std::exception& error) {
    const auto* own = dynamic_cast<const Error*>(&error);
    const Error why = own ? *own : Error(Category::io_error, error.what());
    worker_->abort(why);
    keep_for_ever(exchanged_);
    const std::lock_guard lock(mutex_);
    served.lost.push_back(why);
  }

 private:
  // What `first` does to them and what is sent then belong together.
  template <typename First>
  void send_values(First first) {
    {
      const std::lock_guard lock(mutex_);
      first();
      for (Bucket& bucket : exchanged_->buckets) bucket.take_values(variables_);
    }
    for (Bucket& bucket : exchanged_->buckets) worker_->broadcast(bucket.number_bytes(), server_rank, Stream::host);
  }

  const std::shared_ptr<Communicator> worker_;
  const std::shared_ptr<Exchanged> exchanged_;  // its own
  const std::vector<Variable>& variables_;
  const Apply& apply_;
  std::mutex& mutex_;  // guards values, what Apply keeps, and Served
};

}  // namespace

std::unique_ptr<DataParallel> asynchronous(std::vector<std::shared_ptr<Communicator>> servers,
                                           std::vector<Variable> variables, const DataParallelOptions& options) {
  return std::make_unique<Worker>(std::move(servers), std::move(variables), options);
}

Served serve_parameters(const std::vector<std::shared_ptr<Communicator>>& workers, int server, int servers,
                        const std::vector<Variable>& variables, const Apply& apply,
                        const DataParallelOptions& options) {
  const std::vector<int> owners = place_by_size(variables, servers);
  const std::vector<Bucket> buckets = buckets_of_server(variables, owners, server, options);
  Served served;
  std::mutex mutex;
  std::vector<std::unique_ptr<Service>> services;
  for (const auto& worker : workers)
    services.push_back(std::make_unique<Service>(worker, buckets, variables, apply, mutex));
  std::vector<std::thread> threads;
  for (const auto& service : services)
    threads.push_back(start_thread("feedline-server", [&served, &service] { service->run(served); }));
  for (std::thread& thread : threads) thread.join();
  return served;
}

}  // namespace feedline
