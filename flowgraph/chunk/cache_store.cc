#include "flowgraph/chunk/cache_store.h"

#include <fmt/format.h>

#include "base/log.h"
#include "feedline/error.h"
#include "io/cache/disk_entries.h"
#include "io/cache/memory_entries.h"

namespace feedline::flow {

CacheStore::CacheStore(const CachePlan& plan) : memory_(plan.store_bytes()) {
  if (!plan.why_off().empty()) {
    log_warning(fmt::format("cache: the cache is off: {}", plan.why_off()));
    return;
  }
  if (plan.spec().where == CacheWhere::memory) {
    store_ = std::make_unique<io::MemoryEntries>(plan.layout().entries, memory_.bytes());
    return;
  }
  try {
    if (!io::EntryFile::layout_of(plan.path(), plan.content()))
      io::EntryFile::remove_unused(plan.path(), plan.prefix());
    store_ = std::make_unique<io::DiskEntries>(plan.path(), plan.content(), plan.layout(), memory_.bytes());
  } catch (const Error& error) {
    log_warning(fmt::format("cache: the cache is off: {}", error.what()));
  }
}

}  // namespace feedline::flow
