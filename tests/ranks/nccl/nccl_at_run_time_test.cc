// Which NCCL library a program finds that is not linked with one. Each case is a process of its own.
#include <dlfcn.h>
#include <nccl.h>

#include "feedline/error.h"
#include "support/catch.h"
#include "support/process.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("the system's NCCL is loaded when it is first called") {
  CHECK(in_child([] {
          if (dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD)) return 1;  // nothing has loaded it yet
          return std::string(ncclGetErrorString(ncclSuccess)) == "no error" ? 0 : 2;
        }) == 0);
}

TEST_CASE("the NCCL that the process has already is used, and what it lacks is an error") {
  CHECK(in_child([] {
          if (!dlopen(OTHER_NCCL, RTLD_NOW | RTLD_LOCAL)) return 1;
          if (std::string(ncclGetErrorString(ncclSuccess)) != "the framework's") return 2;
          try {
            ncclGroupStart();
          } catch (const Error& error) {
            const bool says_why =
                error.message() == "libnccl.so.2 does not have the function ncclGroupStart; install NCCL 2.14 or newer";
            return error.category() == Category::device_error && says_why ? 0 : 3;
          }
          return 4;
        }) == 0);
}
