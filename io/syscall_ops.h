// Operations of io/ that a test can make fail (base/syscall_hooks.h). A call site asks the hook right before the call
// that the operation is named after, and treats a non-zero answer as the errno of that call.
#pragma once

#include <cerrno>

namespace feedline::io {

// The operations that several files of io/ make. An operation that only one source file makes is declared in that file.
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
/// A read that returns fewer bytes than were asked for. Such a read is not a failure, so no errno stands for it. If a
/// test injects it, the caller asks the system for fewer bytes instead.
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
