// Declares operations of io/ that a test can make fail (base/syscall_hooks.h). Right before the system call that an
// operation is named after, a call site asks the operation's hook, and treats a non-zero answer as the errno of the
// call.
#pragma once

#include <cerrno>

#include "base/syscall_hooks.h"

namespace feedline::io {

// The operations that several files of io/ make. An operation that only one source file makes is declared in that file.
using OpenOp = HookedCall<"open", EMFILE>;
using StatOp = HookedCall<"stat", EIO>;  // stat, fstat, statx
using ReadOp = HookedCall<"read", EIO>;  // read, pread
/// A read that returns fewer bytes than were asked for. Such a read is not a failure, so no errno stands for it. If a
/// test injects it, the caller asks the system for fewer bytes instead.
using ShortReadOp = HookedCall<"read short", 1>;
/// A read that a signal interrupted before it began.
using InterruptedReadOp = HookedCall<"read interrupted", EINTR>;

}  // namespace feedline::io
