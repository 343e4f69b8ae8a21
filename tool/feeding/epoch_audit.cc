#include "tool/feeding/epoch_audit.h"

#include <fmt/format.h>

#include "tool/common/terminal.h"

namespace feedline::tool {

using Verdict = EpochAudit::Verdict;

std::string audit_text(const Report& report) {
  const std::string sum = fmt::format("audit {:016x}", report.audit);
  if (!report.last_epoch) return sum + ", no epoch was finished";
  const EpochAudit& audit = *report.last_epoch;
  switch (audit.verdict) {
    case Verdict::holds:
      return fmt::format("{}: epoch {} delivered all of its data exactly once", sum, audit.epoch);
    case Verdict::differs:
      return fmt::format("{}: epoch {} did NOT deliver its data exactly once", sum, audit.epoch);
    case Verdict::open:
      break;
  }
  return fmt::format("{}; the audit of epoch {} was not compared with the indexes: {}", sum, audit.epoch, audit.why);
}

std::optional<std::string> audit_failure(const Report& report) {
  if (report.differing_epochs == 0) return std::nullopt;
  return fmt::format(
      "{} did not deliver each record exactly once: the hashes of the delivered, dropped and bad records do not add up "
      "to the sum in the indexes; check with `feedline index --check FILE...` whether files have changed since they "
      "were indexed; if no file has changed, this is a bug in feedline",
      format_count(report.differing_epochs, "epoch"));
}

}  // namespace feedline::tool
