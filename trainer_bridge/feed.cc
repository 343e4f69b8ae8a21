#include "trainer_bridge/feed.h"

#include "ranks/current_error.h"

namespace feedline {

Feed::Feed(const Setup& setup, const flow::Plan* plan, flow::CacheStore* cache, const flow::FeedFacts& facts,
           const flow::Position& position)
    : setup_(setup), plan_(plan), cache_(cache) {
  if (setup.route.graph) make_graph(position);
  if (setup.route.transfer) make_transfer(facts, position);
  if (setup.route.upload) make_upload(facts, position);
  if (transfer_) delivery().on_long_wait([transfer = transfer_.get()] { transfer->end_if_others_begin_anew(); });
}

void Feed::make_graph(const flow::Position& position) {
  graph_ = std::make_unique<flow::Graph>(*plan_,
                                         flow::GraphOptions{.copied_to = setup_.route.graph_devices,
                                                            .io = setup_.options.io,
                                                            .start = {.epoch = position.epoch, .step = position.step},
                                                            .deliver_before_error = setup_.options.deliver_before_error,
                                                            .cache = cache_});
  if (setup_.route.watches_ranks)
    graph_->delivery().watch([communicator = setup_.options.communicator] { return communicator->failure(); });
}

void Feed::make_transfer(const flow::FeedFacts& facts, const flow::Position& position) {
  const Route& route = setup_.route;
  transfer_ = std::make_unique<flow::Transfer>(setup_.carried(route.transfer_packs()),
                                               flow::Transfer::Start{.communicator = setup_.options.communicator,
                                                                     .distribution = setup_.distribution,
                                                                     .facts = facts,
                                                                     .tables = setup_.tables,
                                                                     .graph = graph_.get(),
                                                                     .devices = route.transfer_devices,
                                                                     .parts = route.transfer_parts,
                                                                     .heads_only = route.between_gpus,
                                                                     .threads = setup_.threads(),
                                                                     .position = position});
}

void Feed::make_upload(const flow::FeedFacts& facts, const flow::Position& position) {
  const Route& route = setup_.route;
  const Options& options = setup_.options;
  flow::ExpectedAudit expected = route.transfer ? flow::ExpectedAudit{} : plan_->expected_audit;
  if (expected.passes)
    expected = {
        .sum = {},
        .why_none =
            "on GPUs an epoch is audited only if it ends together with a pass over the data, but this epoch ends "
            "within a pass"};
  const bool alone = !route.transfer && setup_.distribution.ranks() == 1;
  upload_ = std::make_unique<flow::Upload>(
      setup_.spec, flow::Upload::Start{.from = transfer_ ? transfer_->delivery() : graph_->delivery(),
                                       .facts = facts,
                                       .tables = setup_.tables,
                                       .devices = options.devices,
                                       .same_rows = route.same_rows,
                                       .between = options.gpu_communicator,
                                       .distribution = setup_.distribution,
                                       .parts = route.parts_for_each_gpu,
                                       .position = position,
                                       .ledger = flow::EpochLedger(options.devices.size(), expected, alone)});
}

void Feed::run() {
  if (transfer_) transfer_->run();
}

void Feed::stop() noexcept {
  if (upload_) upload_->stop();
  if (transfer_) transfer_->stop();
  if (graph_) graph_->stop();
}

void Feed::end_together() {
  if (!transfer_) return;
  // Ends the wait of a rank that is inside next(): the communicator finds that rank's call different from this barrier,
  // so that next() throws Error.
  if (setup_.route.between_gpus) setup_.options.gpu_communicator->barrier();
  transfer_->end_together();
}

flow::Delivery& Feed::delivery() const noexcept {
  return upload_ ? upload_->delivery() : transfer_ ? transfer_->delivery() : graph_->delivery();
}

flow::Delivery::Outcome Feed::next(int replica, std::optional<std::chrono::steady_clock::time_point> deadline,
                                   Batch& batch, std::optional<Stream> stream, const flow::Delivery::Arrive& check) {
  using Outcome = flow::Delivery::Outcome;
  flow::Delivery::Arrive arrive;
  if (setup_.route.between_gpus) {
    upload_->check(*stream);
    arrive = [&](Batch& come) {
      if (check) check(come);
      upload_->arrive(*stream);
    };
  } else if (stream) {
    arrive = [&](Batch& come) {
      if (check) check(come);
      come.ready_on(*stream);
    };
  }
  Outcome outcome{};
  try {
    check_rows_came();
    outcome = delivery().next(replica, deadline, batch, nullptr, arrive);
  } catch (const std::exception&) {
    tell_failure(current_error());
    throw;
  }
  if (outcome == Outcome::end_of_epoch) check_rows_came();
  return outcome;
}

// Throws Error if a rank has failed, because the rows of the previous batch may then be incomplete.
void Feed::check_rows_came() const {
  if (!setup_.route.between_gpus) return;
  if (const auto error = setup_.options.gpu_communicator->failure()) {
    const auto batch = upload_->arrived();
    throw batch ? flow::in_step(*batch, *error) : *error;
  }
}

// Ends the feeds of the other ranks with `why`, if it has ended this rank's feed.
void Feed::tell_failure(const Error& why) const {
  // A transfer itself sends the Error that ends it to the other ranks.
  const bool mine = transfer_ ? upload_ && upload_->failed() : delivery().failed();
  if (setup_.options.communicator && mine) setup_.options.communicator->abort(why);
  // Other ranks may wait for this rank inside next(), in a call of the gpu_communicator.
  if (setup_.route.between_gpus && (upload_->failed() || upload_->delivery().failed()))
    setup_.options.gpu_communicator->abort(why);
}

}  // namespace feedline
