// The pieces that bring batches to next(), from one position on: graph, transfer and upload, as far as this rank's
// route has them. A feeder that is set to another position makes another Feed.
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
  /// no other rank. `plan` is null on a rank that does not read; `facts` are those of its reader then. Keeps references
  /// to `setup` and `plan`, which must outlive the feed. Throws Error if memory, threads or a device cannot be
  /// obtained.
  Feed(const Setup& setup, const flow::Plan* plan, const flow::FeedFacts& facts, const flow::Position& position);
  /// Takes the pieces down in the opposite order, each before the one that it takes batches from.
  ~Feed() = default;
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  /// Begins the transfer, if there is one. All ranks must have made their feeds.
  void run();
  /// Wakes every next(), and waits for no other rank. May be called from any thread.
  void stop() noexcept;
  /// If rows travel: returns when all ranks have called it, or after stop(). Throws the error that has ended the feed.
  void end_together();
  /// Ends the use of Options::gpu_communicator. No other call may run, and none but the destructor may follow.
  void end_upload() { upload_.reset(); }

  /// Does what Feeder::next does. With an Options::gpu_communicator a stream must be given. If this rank has failed,
  /// the feeds of the other ranks end with the same Error.
  flow::Delivery::Outcome next(int replica, std::optional<std::chrono::steady_clock::time_point> deadline, Batch& batch,
                               std::optional<Stream> stream);

  /// Returns where batches wait for next(): the last piece's delivery.
  flow::Delivery& delivery() const noexcept;

  // The pieces; null if the route has none. `plan` is that of the graph.
  const flow::Plan* plan() const noexcept { return plan_; }
  flow::Graph* graph() const noexcept { return graph_.get(); }
  const flow::Transfer* transfer() const noexcept { return transfer_.get(); }
  const flow::Upload* upload() const noexcept { return upload_.get(); }

 private:
  void make_graph(const flow::Position& position);
  void make_transfer(const flow::FeedFacts& facts, const flow::Position& position);
  void make_upload(const flow::FeedFacts& facts, const flow::Position& position);
  void check_rows_came() const;
  void tell_failure(const std::exception& error) const;

  const Setup& setup_;
  const flow::Plan* const plan_;
  // They are destroyed in the opposite order.
  std::unique_ptr<flow::Graph> graph_;
  std::unique_ptr<flow::Transfer> transfer_;
  std::unique_ptr<flow::Upload> upload_;
};

}  // namespace feedline
