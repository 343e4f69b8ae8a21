#include "io/records/bad_region.h"

namespace feedline::io {

Error BadRegion::error(const std::string& file) const {
  return Error(category,
               message.empty() ? "damaged (this file has too many damaged places to keep a message for each)" : message,
               {file, static_cast<int64_t>(offset), static_cast<int64_t>(record), ""});
}

}  // namespace feedline::io
