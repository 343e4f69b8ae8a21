#include "trainer_bridge/monitor/rank_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/machine.h"
#include "base/rank_message.h"
#include "base/thread.h"
#include "feedline/error.h"
#include "trainer_bridge/monitor/http_client.h"

namespace feedline {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto patience = 500ms;  // the time limit of a request
constexpr auto interest = 5s;     // how long after a call of json() the monitors are still asked

constexpr const char* not_yet = "this rank has not answered yet; look again";

Json row_of(int rank, const HttpAddress* address, Json report, Json trouble) {
  return {{"rank", rank},
          {"address", address ? Json(address->text()) : Json()},
          {"report", std::move(report)},
          {"trouble", std::move(trouble)}};
}

}  // namespace

std::string monitor_places(const HttpAddress& address) {
  std::vector<std::string> of_this_machine, of_all_machines;
  if (!address.path.empty()) {
    of_this_machine = {address.text()};
  } else if (address.ip.is_loopback()) {
    of_this_machine = {address.ip.text()};
  } else if (const std::string host = address.ip.host(); host != "0.0.0.0" && host != "::") {
    of_all_machines = {address.ip.text()};
  } else {
    const auto at_port = [&](const std::string& ip) { return net::resolve(ip, address.ip.port()).front().text(); };
    of_this_machine = {at_port("127.0.0.1")};
    try {
      for (const std::string& own : net::addresses_of_this_machine()) of_all_machines.push_back(at_port(own));
    } catch (const Error&) {  // the monitor is then found only on this machine
    }
  }
  MessageWriter message;
  message.put_text(boot_id());
  for (const auto* texts : {&of_this_machine, &of_all_machines}) {
    message.put<uint64_t>(texts->size());
    for (const std::string& text : *texts) message.put_text(text);
  }
  return message.take();
}

std::vector<HttpAddress> places_in(std::string_view message, int rank) {
  MessageReader reader(message, rank);
  const bool same_machine = reader.get_text() == boot_id();
  std::vector<HttpAddress> places;
  for (const bool is_local : {true, false})
    for (auto count = reader.get<uint64_t>(); count > 0; count--)
      if (const std::string_view text = reader.get_text(); !is_local || same_machine)
        places.push_back(parse_http_address(fmt::format("the monitor of rank {}", rank), text));
  reader.end();
  return places;
}

Json shown_report(std::string_view document, int rank) {
  const Json all = parse_json(document);
  if (all.at("rank") != rank)
    throw Error(Category::io_error, "the monitor of a different rank answers at this address");
  Json report;
  for (const char* key : {"epoch", "step", "epoch_steps", "steps", "records", "wall_s", "next_wait_ratio",
                          "bad_records", "differing_epochs", "verdict", "error"})
    report[key] = all.at(key);
  return report;
}

RankReports::RankReports(int rank, const std::vector<std::string>& places, std::string token)
    : token_(std::move(token)) {
  for (int other = 0; other < static_cast<int>(places.size()); other++) {
    if (other == rank) continue;
    const std::string& message = places[static_cast<size_t>(other)];
    std::vector<HttpAddress> found = message.empty() ? std::vector<HttpAddress>() : places_in(message, other);
    const char* const trouble = message.empty() ? "this rank has no monitor; give every rank a monitor"
                                : found.empty()
                                    ? "only the machine of this rank can reach the rank's monitor; give the monitor of "
                                      "every rank an address that other machines can reach, and a token"
                                    : not_yet;
    others_.push_back({other, std::move(found), row_of(other, nullptr, nullptr, trouble)});
  }
  thread_ = start_thread("feedline-report", [this] { run(); });
}

RankReports::~RankReports() {
  {
    const Lock lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

Json RankReports::json(Clock::time_point now) {
  const Lock lock(mutex_);
  if (std::exchange(wanted_until_, now + interest) < now) {
    for (Other& other : others_)
      if (!other.places.empty()) other.row = row_of(other.rank, nullptr, nullptr, not_yet);  // the old row may be stale
    wake_.notify_all();
  }
  Json rows = Json::array();
  for (const Other& other : others_) rows.push_back(other.row);
  return rows;
}

void RankReports::run() {
  Lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&]() FEEDLINE_REQUIRES(mutex_) { return ending_ || Clock::now() < wanted_until_; });
    for (Other& other : others_) {
      if (ending_) return;
      if (other.places.empty()) continue;
      lock.unlock();
      Json row = ask(other);
      lock.lock();
      other.row = std::move(row);
    }
    if (wake_.wait_for(lock, 1s, [&]() FEEDLINE_REQUIRES(mutex_) { return ending_; })) return;
  }
}

// Asks at the first address in other.places. A machine may have several addresses. A different machine may have some of
// the same addresses, and a different rank may listen there: so shown_report() checks the rank in the report. If an
// address does not answer, the next round asks at the next one.
Json RankReports::ask(Other& other) const {
  const HttpAddress place = other.places.front();
  std::string trouble;
  try {
    Json report = shown_report(http_get(place, "/report.json", token_, Clock::now() + patience), other.rank);
    return row_of(other.rank, &place, std::move(report), nullptr);
  } catch (const Error& error) {
    trouble = error.message();
  } catch (const Json::exception&) {
    trouble =
        "the program at this address is not a monitor of this version of feedline; check the address, and run the same "
        "version everywhere";
  } catch (const std::exception& error) {  // the system is short of memory
    trouble = error.what();
  }
  if (!trouble.starts_with("401"))  // if the monitor refuses the token, it does so at its other addresses, too
    std::rotate(other.places.begin(), other.places.begin() + 1, other.places.end());
  return row_of(other.rank, nullptr, nullptr, fmt::format("{}: {}", place.text(), trouble));
}

}  // namespace feedline
