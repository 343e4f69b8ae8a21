#include "feedline/feeder.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "feedline/tcp_communicator.h"
#include "python/src/gpu_communicator.h"
#include "python/src/module.h"
#include "python/src/tensor.h"

namespace nb = nanobind;

namespace feedline::python {
namespace {

// How long a thread waits before it looks whether a signal has come, such as that of Ctrl-C.
constexpr std::chrono::milliseconds interruptible{50};

struct Interrupted {};

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

/// Runs `body` on another thread, while the calling thread, which must hold the GIL, looks for signals. If the handler
/// of a signal raises an exception, calls `stop`, waits for `body` to end, and raises that exception.
template <typename Stop, typename Body>
void run_interruptibly(Stop stop, Body body) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr failure;
  std::thread thread;
  try {
    thread = start_thread("feedline-call", [&] {
      try {
        body();
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      done = true;
      changed.notify_one();
    });
  } catch (const std::system_error& refused) {
    throw Error(Category::io_error, refused.what());
  }
  std::optional<nb::python_error> raised;
  for (bool ended = false; !ended;) {
    {
      nb::gil_scoped_release released;
      std::unique_lock lock(mutex);
      ended = changed.wait_for(lock, interruptible, [&] { return done; });
    }
    if (!raised && PyErr_CheckSignals() != 0) {
      raised.emplace();  // takes the pending exception
      stop();
    }
  }
  {
    nb::gil_scoped_release released;
    thread.join();
  }
  if (raised) throw std::move(*raised);
  if (failure) std::rethrow_exception(failure);
}

/// Keeps a Python object for threads that do not hold the GIL.
class Callable {
 public:
  explicit Callable(nb::object object)
      : object_(new nb::object(std::move(object)), [](nb::object* kept) {
          nb::gil_scoped_acquire gil;
          delete kept;
        }) {}
  template <typename Result, typename... Args>
  Result call(Args&&... args) const {
    nb::gil_scoped_acquire gil;
    if constexpr (std::is_void_v<Result>)
      (*object_)(std::forward<Args>(args)...);
    else
      return nb::cast<Result>((*object_)(std::forward<Args>(args)...));
  }

 private:
  std::shared_ptr<nb::object> object_;
};

Exchange exchange_of(nb::object function) {
  return [function = Callable(std::move(function))](std::string_view mine) {
    nb::gil_scoped_acquire gil;
    std::vector<std::string> all;
    for (nb::handle theirs : nb::list(function.call<nb::object>(nb::bytes(mine.data(), mine.size())))) {
      const auto bytes = nb::cast<nb::bytes>(theirs);
      all.emplace_back(bytes.c_str(), bytes.size());
    }
    return all;
  };
}

class PyFeeder {
 public:
  PyFeeder(const Pipeline& pipeline, Options options, std::optional<TcpOptions> tcp, bool nccl, nb::object exchange,
           nb::object progress)
      : nccl_(nccl), has_ranks_(tcp.has_value()) {
    std::stop_source stop;
    options.on_progress = [stop, told = progress.is_none() ? std::optional<Callable>() : Callable(progress)](
                              uint64_t done, uint64_t total) {
      if (stop.stop_requested()) throw Interrupted();
      if (told) told->call<void>(done, total);
    };
    const Exchange meet = exchange.is_none() ? Exchange() : exchange_of(exchange);
    Using made;  // if anything below throws, destroys the feeder without the GIL
    run_interruptibly([&] { stop.request_stop(); },
                      [&] {
                        if (tcp) {
                          tcp->stop = stop.get_token();
                          options.communicator = tcp_communicator(*tcp, meet);
                          if (nccl)
                            options.gpu_communicator =
                                gpu_communicator(tcp_communicator(*tcp, meet), options.devices.front());
                        } else {
                          options.exchange = meet;
                        }
                        devices_ = options.devices;
                        made.feeder = std::make_shared<Feeder>(pipeline, std::move(options));
                      });
    for (const ElementSpec& element : made->elements())
      for (const std::string& tensor : element.tensors()) keys_.push_back(nb::str(tensor.c_str(), tensor.size()));
    taken_.resize(devices_.size());
    feeder_ = made.feeder;
  }
  ~PyFeeder() {
    close();
    nb::gil_scoped_release released;  // freeing the last batches waits for the GPU
    taken_.clear();
  }
  PyFeeder(const PyFeeder&) = delete;

  /// A use of the feeder. It keeps the feeder alive even if close() is called meanwhile, in a signal's handler or on
  /// another thread. The last use to end destroys the feeder, without the GIL, because that waits for the feeder's
  /// threads.
  struct Using {
    std::shared_ptr<Feeder> feeder;
    Using() = default;
    explicit Using(std::shared_ptr<Feeder> used) : feeder(std::move(used)) {}
    Using(Using&&) = default;
    ~Using() {
      if (!feeder) return;
      nb::gil_scoped_release released;
      feeder.reset();
    }
    Feeder* operator->() const { return feeder.get(); }
    Feeder& operator*() const { return *feeder; }
  };

  /// Ends the feed. Calls that are under way throw Error stalled.
  void close() {
    const Using last(std::exchange(feeder_, nullptr));
    if (!last.feeder) return;
    nb::gil_scoped_release released;
    last->stop();
  }

  /// Throws Error stalled after close().
  Using use() const {
    if (!feeder_) throw Error(Category::stalled, "the loader was closed; make a new Loader");
    return Using(feeder_);
  }

  /// Returns the replica's next batch as (epoch, step, rows, valid rows, {name: Tensor}), or None at the end of the
  /// epoch. If the program keeps so many batches that the feed would have no buffer left to fill, the batch comes in
  /// memory of its own, which is not one of the feed's buffers. With NCCL, rows arrive on `stream`, which is the number
  /// of a stream as in DLPack.
  nb::object next(int replica, int64_t stream) {
    const Busy busy(*this);
    const Using feeder = use();
    if (replica < 0 || static_cast<size_t>(replica) >= devices_.size())
      throw Error(Category::bad_pipeline, "there is no replica " + std::to_string(replica) +
                                              "; the replicas are 0 to " + std::to_string(devices_.size() - 1));
    Batch given;
    if (nccl_) {
      Next result = Next::not_ready;
      run_interruptibly([&] { feeder->stop(); },
                        [&] { result = take(*feeder, replica, Stream::dlpack(stream), given); });
      if (result == Next::end_of_epoch) return nb::none();
    }
    while (!given) {
      Next result = Next::not_ready;
      {
        nb::gil_scoped_release released;
        result = take(*feeder, replica, std::nullopt, given);
      }
      if (result == Next::end_of_epoch) return nb::none();
      if (result == Next::not_ready) check_signals();
    }
    const auto shared = std::make_shared<SharedBatch>(std::move(given), devices_[static_cast<size_t>(replica)]);
    const Batch& batch = shared->batch;
    nb::dict tensors;
    for (size_t t = 0; t < batch.tensors().size(); t++)
      tensors[name_of(batch.tensors()[t].name, t)] = nb::cast(Tensor(shared, batch.tensors()[t]));
    return nb::make_tuple(batch.epoch(), batch.step(), batch.rows(), batch.valid_count(), tensors);
  }

  /// Moves the feed to a different position in the data, by a call of `call` with the feeder. If ranks move together,
  /// the call may wait for the other ranks. If the handler of a signal raises an exception meanwhile, the feed ends.
  template <typename Call>
  void move(Call call) {
    const Busy busy(*this);
    const Using feeder = use();
    if (has_ranks_) {
      run_interruptibly([&] { feeder->stop(); }, [&] { call(*feeder); });
    } else {
      nb::gil_scoped_release released;
      call(*feeder);
    }
    for (Batch& batch : taken_) batch = Batch();
  }

  /// Returns the ordinal of a replica's device: the number of its GPU or, on the host, the number of the replica.
  int device(int replica) const { return devices_.at(static_cast<size_t>(replica)).ordinal; }

  uint64_t copied() const noexcept { return copied_; }

 private:
  // Marks the feeder as busy during a call. Throws Error bad_pipeline if it is busy already: a signal's handler or
  // another thread may make a call while the first call waits without the GIL. The mark is read and written only with
  // the GIL.
  class Busy {
   public:
    explicit Busy(PyFeeder& of) : of_(of) {
      if (std::exchange(of_.busy_, true))
        throw Error(Category::bad_pipeline,
                    "another call of the loader has not ended: the call runs on a different thread, or a signal "
                    "handler has interrupted it; until the call ends, only close() may be called");
    }
    ~Busy() { of_.busy_ = false; }
    Busy(const Busy&) = delete;

   private:
    PyFeeder& of_;
  };

  // Takes the next batch, or a copy of it if the feed would have no buffer left. If the copy fails for lack of memory,
  // the next call tries again.
  Next take(Feeder& feeder, int replica, std::optional<Stream> arrives_on, Batch& given) {
    Batch& taken = taken_[static_cast<size_t>(replica)];
    bool must_copy = true;
    if (!taken) {
      must_copy = feeder.spare_batches(replica) <= 1;
      if (arrives_on) {
        taken = feeder.next(replica, *arrives_on);
        if (!taken) return Next::end_of_epoch;
      } else if (const Next result = feeder.next(replica, interruptible, taken); result != Next::batch) {
        return result;
      }
    }
    given = must_copy ? taken.copy() : std::exchange(taken, Batch());
    taken = Batch();
    copied_ += must_copy;
    return Next::batch;
  }

  // Returns the name of tensor `t` of a batch. Tensors come in the order of elements(), so keys_ has their names
  // already.
  nb::str name_of(const std::string& name, size_t t) {
    if (t < keys_.size() && name == keys_[t].c_str()) return keys_[t];
    return nb::str(name.c_str(), name.size());
  }

  const bool nccl_, has_ranks_;
  bool busy_ = false;
  std::shared_ptr<Feeder> feeder_;
  std::vector<DeviceId> devices_;
  std::vector<Batch> taken_;  // for each replica: empty, or the next batch if it could not be copied
  std::vector<nb::str> keys_;
  std::atomic<uint64_t> copied_ = 0;  // counted without the GIL
};

template <typename Call>
auto without_gil(const PyFeeder& self, Call call) {
  const PyFeeder::Using feeder = self.use();
  nb::gil_scoped_release released;
  return call(*feeder);
}

nb::list elements(const PyFeeder& self) {
  constexpr const char* kinds[] = {"dense", "padded", "ragged", "nested"};
  nb::list all;
  const auto feeder = self.use();
  for (const ElementSpec& element : feeder->elements()) {
    nb::list shape, tensors;
    for (const int64_t axis : element.shape) shape.append(axis);
    for (const std::string& tensor : element.tensors()) tensors.append(tensor);
    all.append(nb::make_tuple(element.name, kinds[static_cast<size_t>(element.kind)], std::string(name(element.dtype)),
                              nb::tuple(shape), nb::tuple(tensors)));
  }
  return all;
}

}  // namespace

void add_feeder(nb::module_& module) {
  nb::class_<PyFeeder>(module, "Feeder")
      .def(
          "__init__",
          [](PyFeeder* self, const Pipeline& pipeline, const std::string& devices, int rank, int world_size,
             int threads, uint64_t start_epoch, const std::string& backend, std::optional<bool> direct,
             bool deliver_before_error, int data_parallel_rank, int data_parallel_size, const std::string& monitor,
             const std::string& monitor_token, nb::object tcp, bool nccl, nb::object exchange, nb::object progress) {
            Options options;
            {
              nb::gil_scoped_release released;  // it may log
              options.devices = parse_devices(devices);
            }
            options.rank = rank;
            options.world_size = world_size;
            options.threads = threads;
            options.epoch = start_epoch;
            options.deliver_before_error = deliver_before_error;
            options.data_parallel_rank = data_parallel_rank;
            options.data_parallel_size = data_parallel_size;
            options.monitor = monitor;
            options.monitor_token = monitor_token;
            options.io.backend = backend == "uring"   ? BackendKind::uring
                                 : backend == "pread" ? BackendKind::pread
                                                      : BackendKind::automatic;
            options.io.direct = !direct ? Toggle::automatic : *direct ? Toggle::on : Toggle::off;
            std::optional<TcpOptions> meeting;
            if (!tcp.is_none()) {
              meeting.emplace();
              meeting->address = nb::cast<std::string>(tcp[0]);
              meeting->port = nb::cast<uint16_t>(tcp[1]);
              meeting->start_timeout = std::chrono::milliseconds(nb::cast<int64_t>(tcp[2]));
              meeting->timeout = std::chrono::milliseconds(nb::cast<int64_t>(tcp[3]));
              meeting->token = nb::cast<std::string>(tcp[4]);
              meeting->open = nb::cast<bool>(tcp[5]);
              meeting->rank = rank;
              meeting->world_size = world_size;
            }
            new (self) PyFeeder(pipeline, std::move(options), std::move(meeting), nccl, std::move(exchange),
                                std::move(progress));
          },
          nb::arg("pipeline"), nb::kw_only(), nb::arg("devices"), nb::arg("rank"), nb::arg("world_size"),
          nb::arg("threads"), nb::arg("start_epoch"), nb::arg("backend"), nb::arg("direct").none(),
          nb::arg("deliver_before_error"), nb::arg("data_parallel_rank"), nb::arg("data_parallel_size"),
          nb::arg("monitor"), nb::arg("monitor_token"), nb::arg("tcp").none(), nb::arg("nccl"),
          nb::arg("exchange").none(), nb::arg("progress").none())
      .def("next", &PyFeeder::next, nb::arg("replica"), nb::arg("stream") = 1)
      .def("close", &PyFeeder::close)
      .def("device", &PyFeeder::device)
      .def("get_state",
           [](const PyFeeder& self, uint64_t epoch, int64_t step) {
             return without_gil(self, [&](Feeder& f) { return f.get_state(epoch, step); });
           })
      .def("set_state", [](PyFeeder& self, const std::string& state,
                           bool accept_changes) { self.move([&](Feeder& f) { f.set_state(state, accept_changes); }); })
      .def("set_epoch", [](PyFeeder& self, uint64_t epoch) { self.move([&](Feeder& f) { f.set_epoch(epoch); }); })
      .def("set_weights",
           [](PyFeeder& self, const std::vector<double>& weights) {
             self.move([&](Feeder& f) { f.set_weights(weights); });
           })
      .def("steps_per_epoch",
           [](const PyFeeder& self) { return without_gil(self, [](Feeder& f) { return f.steps_per_epoch(); }); })
      .def("samples_per_epoch",
           [](const PyFeeder& self) { return without_gil(self, [](Feeder& f) { return f.samples_per_epoch(); }); })
      .def("replicas", [](const PyFeeder& self) { return self.use()->replicas(); })
      .def("files",
           [](const PyFeeder& self) {
             nb::list files;
             const auto feeder = self.use();
             for (const std::string& file : feeder->files())
               files.append(
                   nb::steal(PyUnicode_DecodeFSDefaultAndSize(file.data(), static_cast<Py_ssize_t>(file.size()))));
             return files;
           })
      .def("monitor_address", [](const PyFeeder& self) { return self.use()->monitor_address(); })
      .def("plan_text", [](const PyFeeder& self) { return without_gil(self, [](Feeder& f) { return f.plan_text(); }); })
      .def("report_json",
           [](const PyFeeder& self) { return without_gil(self, [](Feeder& f) { return to_json(f.report()); }); })
      .def("batches_copied", &PyFeeder::copied)
      .def("elements", elements);
}

}  // namespace feedline::python
