// Fills a feeder's Report from the counters of its feed.
#pragma once

#include <chrono>

#include "feedline/feeder.h"
#include "flowgraph/feed/delivery.h"
#include "trainer_bridge/feed.h"

namespace feedline {

/// Adds what next() has delivered, and how long its calls took. `start` is when the feeder was made.
void add_delivery(Report& report, const flow::DeliveryReport& delivered, std::chrono::steady_clock::time_point start);

/// Adds which features were missing in how many records.
void add_missing(Report& report, const std::vector<flow::FeatureSpec>& features, const flow::DeliveryReport& delivered);

/// Adds the distribute mode, and for each output the device that makes it.
void add_route(Report& report, const Setup& setup, const flow::FeedFacts& facts);

/// Adds what each of the feed's pieces has done.
void add_feed(Report& report, const Feed& feed);

}  // namespace feedline
