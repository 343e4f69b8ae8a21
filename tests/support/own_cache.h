// A cache folder of the test's own, for the indexes and filter results that feedline stores outside the data's folder.
#pragma once

#include <cstdlib>
#include <string>

namespace feedline::test {

struct OwnCache {
  explicit OwnCache(const std::string& path) { setenv("XDG_CACHE_HOME", path.c_str(), 1); }
  ~OwnCache() { unsetenv("XDG_CACHE_HOME"); }
  OwnCache(const OwnCache&) = delete;
  OwnCache& operator=(const OwnCache&) = delete;
};

}  // namespace feedline::test
