#include "flowgraph/error_log.h"

#include "flowgraph/audit.h"

namespace feedline::flow {
namespace {

uint64_t hash(const Place& place) noexcept {
  return mix64(mix64(std::hash<std::string>{}(place.file)) ^ static_cast<uint64_t>(place.record));
}

}  // namespace

uint64_t ErrorLog::note(const std::vector<Error>& errors) {
  const std::lock_guard lock(mutex_);
  uint64_t fresh = 0;
  for (const Error& error : errors) {
    const bool full = seen_.size() >= told_apart;
    if (full ? seen_.contains(hash(error.place())) : !seen_.insert(hash(error.place())).second) continue;
    fresh++;
    if (first_.size() < kept) first_.push_back(error);
  }
  total_ += fresh;
  return fresh;
}

std::vector<Error> ErrorLog::first() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

}  // namespace feedline::flow
