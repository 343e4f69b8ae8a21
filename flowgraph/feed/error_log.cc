#include "flowgraph/feed/error_log.h"

#include "base/audit.h"

namespace feedline::flow {
namespace {

uint64_t hash(const Place& place) noexcept {
  const uint64_t record = mix64(std::hash<std::string>{}(place.file)) ^ static_cast<uint64_t>(place.record);
  return mix64(mix64(record) ^ static_cast<uint64_t>(place.offset));  // adjacent bad regions have the same `record`
}

}  // namespace

void ErrorLog::note(const Error& error) {
  const Lock lock(mutex_);
  const uint64_t key = hash(error.place());
  if (seen_.size() < told_apart ? !seen_.insert(key).second : seen_.contains(key)) return;
  if (first_.size() < kept) first_.push_back(error);
  total_++;
}

std::vector<Error> ErrorLog::first() const {
  const Lock lock(mutex_);
  return first_;
}

}  // namespace feedline::flow
