#include "base/syscall_hooks.h"

#include <algorithm>
#include <cstring>

namespace feedline {
namespace {

std::vector<SyscallHook*>& all_hooks() {
  static std::vector<SyscallHook*> hooks;
  return hooks;
}

}  // namespace

SyscallHook::SyscallHook(const char* name, int error) : name_(name), error_(error) { all_hooks().push_back(this); }

std::vector<SyscallHook*> SyscallHook::all() {
  std::vector<SyscallHook*> hooks = all_hooks();
  std::sort(hooks.begin(), hooks.end(),
            [](const SyscallHook* a, const SyscallHook* b) { return std::strcmp(a->name_, b->name_) < 0; });
  return hooks;
}

int SyscallHook::count_down() noexcept {
  int64_t left = armed_.load();
  while (left > 0)
    if (armed_.compare_exchange_weak(left, left - 1)) return left == 1 ? error_ : 0;
  return 0;
}

}  // namespace feedline
