// The pieces (graph, transfer, upload) of this rank's Route, which bring batches to next(), beginning at one position
// in the data. A feeder that is moved to another position makes another Feed.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "flowgraph/feed/graph.h"
#include "flowgraph/feed/transfer.h"
#include "flowgraph/feed/upload.h"
#include "flowgraph/plan/feed_facts.h"
#include "flowgraph/plan/plan.h"
#include "trainer_bridge/setup.h"

namespace feedline {

class Feed {
 public:
  /// Makes the pieces in the order in which batches pass through them. Makes no call of a communicator, so it waits for
  /// no other rank. `plan` is null on a rank that does not read; `facts` then come from the rank that reads for it.
  /// `setup`, `plan` and `cache`, which is null if the plan has none, must outlive the feed. Throws Error if memory,
  /// threads or a device cannot be obtained.
  Feed(const Setup& setup, const flow::Plan* plan, flow::CacheStore* cache, const flow::FeedFacts& facts,
       const flow::Position& position);
  /// Destroys the pieces in the opposite order, each before the one from which it takes batches.
  ~Feed() = default;
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  /// Starts the transfer, if there is one. All ranks must have made their feeds before.
  void run();
  /// Makes every next() throw Error stalled, or the Error that has ended the feed before. This holds for calls that
  /// wait now, and for all later calls. Waits for no other rank. A next() that waits inside Options::gpu_communicator
  /// is woken only if that communicator is aborted. May be called from any thread.
  void stop() noexcept;
  /// Ends the transfer, if there is one: returns when all ranks have called it, or after stop(). Throws the Error that
  /// has ended the feed, if there is one.
  void end_together();
  /// Ends the use of Options::gpu_communicator. No other call may run; only the destructor may follow.
  void end_upload() { upload_.reset(); }

  /// Returns the replica's next batch, as Feeder::next() does. With an Options::gpu_communicator, `stream` must be set.
  /// If this rank's feed fails, ends the feeds of the other ranks with the same Error. If `stream` is set, `check` is
  /// called before the batch counts as received; if it throws, the next call gives the same batch.
  flow::Delivery::Outcome next(int replica, std::optional<std::chrono::steady_clock::time_point> deadline, Batch& batch,
                               std::optional<Stream> stream, const flow::Delivery::Arrive& check = {});

  /// Returns the Delivery of the last piece, in which batches wait for next().
  flow::Delivery& delivery() const noexcept;

  // The pieces, null if the route lacks them, and the plan and the cache of the graph.
  const flow::Plan* plan() const noexcept { return plan_; }
  const flow::CacheStore* cache() const noexcept { return cache_; }
  flow::Graph* graph() const noexcept { return graph_.get(); }
  const flow::Transfer* transfer() const noexcept { return transfer_.get(); }
  const flow::Upload* upload() const noexcept { return upload_.get(); }

 private:
  void make_graph(const flow::Position& position);
  void make_transfer(const flow::FeedFacts& facts, const flow::Position& position);
  void make_upload(const flow::FeedFacts& facts, const flow::Position& position);
  void check_rows_came() const;
  void tell_failure(const Error& why) const;

  const Setup& setup_;
  const flow::Plan* const plan_;
  flow::CacheStore* const cache_;
  // Destroyed in the opposite order: each piece takes batches from the one before it.
  std::unique_ptr<flow::Graph> graph_;
  std::unique_ptr<flow::Transfer> transfer_;
  std::unique_ptr<flow::Upload> upload_;
};

}  // namespace feedline
