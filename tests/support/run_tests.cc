// The framework of all tests. Exit code 77 tells Meson that the program skipped all of its cases. A case skips itself
// by feedline::test::skip(reason) (tests/support/skip.h).
#define CATCH_CONFIG_RUNNER
#include "catch.h"
#include "skip.h"

namespace feedline::test {
namespace {
int skipped = 0, ran = 0;
}
void note_skip() { skipped++; }

struct Count : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo&) override { ran++; }
};
CATCH_REGISTER_LISTENER(Count)

int run_tests(int argc, char** argv) {
  Catch::Session session;
  // A name or tag that no case has is a mistake of the command, not a success.
  session.configData().warnings = static_cast<Catch::WarnAbout::What>(Catch::WarnAbout::NoTests);
  const int result = session.run(argc, argv);
  return result == 0 && skipped > 0 && skipped == ran ? 77 : result;
}

}  // namespace feedline::test
