// The precompiled header of flowgraph: the headers that nearly every file of it includes. Every file must still include
// what it uses; `meson setup -Db_pch=false` makes a build that shows which files do not.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
