#include "property/feeds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "feedline/feeder.h"
#include "property/data_files.h"

namespace feedline::test {
namespace {

/// The result of one step: the records of its rows (-1: filler), or the end of an epoch.
struct Given {
  uint64_t epoch = 0;
  int64_t step = 0;
  bool ends_epoch = false;
  std::vector<int64_t> rows;
};

struct Fed {
  std::vector<Given> given;
  std::string error;  // the category of the error that ended the feed
  std::string wrong;  // a fault that must never occur
};

struct How {
  int rank = 0, world = 1, replicas = 1, threads = 1;
  bool compressed = false;
  bool cached = false;
  std::string memory_limit = {};
  std::string index_dir = {};  // empty: the folder's own index folder
};

class Trial {
 public:
  Trial(const Case& c, const std::string& folder, std::string& told) : case_(c), folder_(folder), told_(told) {}
  Verdict run();

 private:
  std::string index_dir() const { return fmt::format("index-{}", case_.stride); }
  Pipeline pipeline(const How& how) const {
    return parse_pipeline(text_of(case_, how.compressed, how.threads, how.memory_limit,
                                  how.index_dir.empty() ? index_dir() : how.index_dir) +
                              (how.cached ? case_.cache : ""),
                          folder_);
  }
  std::unique_ptr<Feeder> feeder(const How& how) const {
    Options options{.rank = how.rank, .world_size = how.world};
    options.devices.assign(static_cast<size_t>(how.replicas), host());
    return std::make_unique<Feeder>(pipeline(how), options);
  }
  void take(Feeder& feeder, int64_t steps, Fed& fed) const;
  Fed feed(const How& how) const;
  Fed feed_in_two(const How& how) const;
  Fed feed_ranks(How how) const;
  std::vector<int64_t> comparable(const Given& given) const;
  bool same(const std::string& what, const Fed& got);

  const Case& case_;
  const std::string& folder_;
  std::string& told_;
  Fed wanted_;
};

void Trial::take(Feeder& feeder, int64_t steps, Fed& fed) const {
  try {
    for (int64_t taken = 0; taken < steps; taken++) {
      Given given{.epoch = feeder.epoch(), .step = 0, .ends_epoch = false, .rows = {}};
      for (int replica = 0; replica < feeder.replicas(); replica++) {
        const Batch batch = feeder.next(replica);
        if (!batch) {
          given.ends_epoch = true;
          continue;
        }
        given.step = static_cast<int64_t>(batch.step());
        const auto ids = batch.at("id").as<const int64_t>();
        const auto valid = batch.at("@valid").as<const uint8_t>();
        for (size_t row = 0; row < ids.size(); row++) {
          given.rows.push_back(valid[row] ? ids[row] : -1);
          if (valid[row] && !is_record(batch, static_cast<int64_t>(row), ids[row], case_.variable))
            fed.wrong = fmt::format("row {} of step {} of epoch {} has the id {} and other bytes", row, given.step,
                                    given.epoch, ids[row]);
        }
      }
      fed.given.push_back(std::move(given));
    }
  } catch (const Error& error) {
    fed.error = std::string(name(error.category()));
    if (error.category() == Category::internal_error || error.category() == Category::stalled) fed.wrong = error.what();
  } catch (const std::exception& error) {
    fed.wrong = error.what();
  }
  if (const Report report = feeder.report(); report.differing_epochs > 0)
    fed.wrong = fmt::format("{} epochs were not their data, once", report.differing_epochs);
}

Fed Trial::feed(const How& how) const {
  Fed fed;
  const auto feeding = feeder(how);
  take(*feeding, case_.steps, fed);
  return fed;
}

// Feeds a part, and the rest with another feeder that resumes from the state.
Fed Trial::feed_in_two(const How& how) const {
  Fed fed;
  std::string state;
  {
    const auto first = feeder(how);
    take(*first, case_.resume, fed);
    if (!fed.error.empty() || !fed.wrong.empty()) return fed;
    state = first->get_state();
  }
  const auto second = feeder(how);
  second->set_state(state);
  take(*second, case_.steps - case_.resume, fed);
  return fed;
}

// Feeds all ranks, one at a time, and joins their parts of each step.
Fed Trial::feed_ranks(How how) const {
  how.world = case_.world;
  Fed all;
  for (how.rank = 0; how.rank < how.world; how.rank++) {
    Fed part = feed(how);
    if (!part.wrong.empty()) return part;
    if (how.rank == 0) {
      all = std::move(part);
      continue;
    }
    if (part.given.size() != all.given.size() || part.error != all.error) {
      all.wrong = fmt::format("rank 0 takes {} steps and ends with '{}', rank {} {} with '{}'", all.given.size(),
                              all.error, how.rank, part.given.size(), part.error);
      return all;
    }
    for (size_t s = 0; s < all.given.size(); s++)
      all.given[s].rows.insert(all.given[s].rows.end(), part.given[s].rows.begin(), part.given[s].rows.end());
  }
  return all;
}

// Leaves out filler of a shorter last batch: each rank has a share of it, and a rank without a share has one row of
// filler.
std::vector<int64_t> Trial::comparable(const Given& given) const {
  std::vector<int64_t> rows = given.rows;
  const int64_t frames = case_.windows ? case_.size : 1;
  if (case_.policy == "PARTIAL" &&
      static_cast<int64_t>(wanted_.given.empty() ? 0 : rows.size()) != case_.global_batch * frames)
    std::erase(rows, -1);
  return rows;
}

bool Trial::same(const std::string& what, const Fed& got) {
  if (!got.wrong.empty()) {
    told_ += fmt::format("{}: {}\n", what, got.wrong);
    return false;
  }
  for (size_t s = 0; s < std::min(wanted_.given.size(), got.given.size()); s++) {
    const Given &a = wanted_.given[s], &b = got.given[s];
    const std::vector<int64_t> rows_a = comparable(a), rows_b = comparable(b);
    if (a.epoch == b.epoch && a.step == b.step && a.ends_epoch == b.ends_epoch && rows_a == rows_b) continue;
    const auto at = std::mismatch(rows_a.begin(), rows_a.end(), rows_b.begin(), rows_b.end());
    const auto row = at.first - rows_a.begin();
    const auto some = [&](const std::vector<int64_t>& rows) {
      const auto begin = std::min<size_t>(static_cast<size_t>(row), rows.size());
      return std::span(rows).subspan(begin, std::min<size_t>(8, rows.size() - begin));
    };
    told_ += fmt::format(
        "{}: call {} gave step {} of epoch {}{}, {} rows, from row {} on {}; wanted: step {} of epoch {}{}, "
        "{} rows, {}\n",
        what, s, b.step, b.epoch, b.ends_epoch ? " (its end)" : "", rows_b.size(), row, some(rows_b), a.step, a.epoch,
        a.ends_epoch ? " (its end)" : "", rows_a.size(), some(rows_a));
    return false;
  }
  if (wanted_.given.size() == got.given.size() && wanted_.error == got.error) return true;
  told_ += fmt::format("{}: {} calls and then '{}'; wanted: {} and '{}'\n", what, got.given.size(), got.error,
                       wanted_.given.size(), wanted_.error);
  return false;
}

Verdict Trial::run() {
  try {
    wanted_ = feed({});
  } catch (const Error& error) {
    told_ += error.what();
    return error.category() == Category::bad_pipeline ? Verdict::refused : Verdict::differs;
  }
  const auto fails = [&](const std::string& what, auto feed_so) {
    try {
      return !same(what, feed_so());
    } catch (const Error& error) {
      if (error.message().starts_with("cache: limit")) return false;  // too small for one stretch of records
      told_ += fmt::format("{}: cannot begin: {}\n", what, error.what());
      return true;
    }
  };
  if (fails("one rank, one thread", [&] { return wanted_; })) return Verdict::differs;
  if (fails("more threads", [&] { return feed({.threads = case_.threads}); })) return Verdict::differs;
  if (!case_.cache.empty()) {
    if (fails("cached", [&] { return feed({.threads = case_.threads, .cached = true}); })) return Verdict::differs;
    if (case_.world > 1 && fails("cached, ranks", [&] { return feed_ranks({.cached = true}); }))
      return Verdict::differs;
  }
  if (case_.replicas > 1 && fails("more replicas", [&] { return feed({.replicas = case_.replicas}); }))
    return Verdict::differs;
  // If damage is only found while reading, each rank finds its own part of it.
  if (case_.world > 1 && fails("ranks", [&] { return feed_ranks({.threads = case_.threads}); }))
    return Verdict::differs;
  if (case_.resume > 0 && fails("gone on with", [&] { return feed_in_two({.threads = case_.threads}); }))
    return Verdict::differs;

  // The smallest limit that the plan advises, for one rank and for several.
  for (const int world : {1, case_.world}) {
    How small{.memory_limit = "1MiB"};
    const auto advised = [&]() -> Fed {
      // A filter and a window's key are evaluated by feeds of their own, each with its own limit.
      for (int refusals = 0;; refusals++) try {
          return world > 1 ? feed_ranks(small) : feed(small);
        } catch (const Error& error) {
          const std::string text = error.what(), before = "at least \"";
          const size_t at = text.find(before);
          if (at == std::string::npos || refusals == 3) throw;
          const size_t begin = at + before.size();
          small.memory_limit = text.substr(begin, text.find('"', begin) - begin);
        }
    };
    if (fails(fmt::format("the smallest memory.limit, {} ranks", world), advised)) return Verdict::differs;
    if (case_.world == 1) break;
  }

  const bool sound = std::all_of(case_.sets.begin(), case_.sets.end(), [](int set) { return set < sound_sets; });
  const bool in_file_order = case_.mode == "NONE" && case_.cycle_length == 1;
  if (in_file_order && sound) {
    if (fails("gzip", [&] { return feed({.threads = case_.threads, .compressed = true}); })) return Verdict::differs;
    if (case_.world > 1 && fails("gzip, ranks", [&] { return feed_ranks({.threads = 1, .compressed = true}); }))
      return Verdict::differs;
    if (!case_.cache.empty() && fails("gzip, cached", [&] { return feed({.compressed = true, .cached = true}); }))
      return Verdict::differs;
    if (case_.resume > 0 && fails("gzip, gone on with", [&] { return feed_in_two({.compressed = true}); }))
      return Verdict::differs;
  }
  return Verdict::same;
}

}  // namespace

Verdict try_case(const Case& c, const std::string& folder, std::string& told) { return Trial(c, folder, told).run(); }

void make_indexes(const std::string& folder) {
  for (const uint64_t stride : {0, 512, 4096}) {
    Case c;
    c.sets = {hidden_damage};
    c.stride = stride;
    const Feeder feeder(parse_pipeline(text_of(c, false, 1, "", fmt::format("index-{}", stride)), folder));
  }
}

}  // namespace feedline::test
