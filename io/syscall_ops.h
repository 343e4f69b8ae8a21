// The operations of io/ that a test can make fail (base/syscall_hooks.h). Ask the hook right before the call that it
// is named after, and treat its answer as the call's errno.
#pragma once

#include <cerrno>

namespace feedline::io {

// Files, for everything in io/. An operation that only one source file makes is declared there.
struct OpenOp {
  static constexpr const char* name = "open";
  static constexpr int error = EMFILE;
};
struct StatOp {  // stat, fstat, statx
  static constexpr const char* name = "stat";
  static constexpr int error = EIO;
};
struct ReadOp {  // read, pread
  static constexpr const char* name = "read";
  static constexpr int error = EIO;
};
/// A read that returns fewer bytes than asked for: no error, so its callers ask for less instead.
struct ShortReadOp {
  static constexpr const char* name = "read short";
  static constexpr int error = 1;
};
/// A read that a signal interrupted before it began.
struct InterruptedReadOp {
  static constexpr const char* name = "read interrupted";
  static constexpr int error = EINTR;
};

}  // namespace feedline::io
