#include "trainer_bridge/monitor/page.h"

#include <string_view>

#include "base/json.h"
#include "feedline/counters.h"
#include "trainer_bridge/page_text.h"

namespace feedline {

std::string monitor_page() {
  Json counters = Json::array();
  for_each_counter({}, [&](const CounterInfo& info, auto) {
    counters.push_back({{"name", info.name}, {"unit", info.unit}, {"help", info.help}});
  });
  constexpr std::string_view none = "[]</script>";
  std::string text(page_text);
  return text.insert(text.find(none) + 1, counters.dump().substr(1, counters.dump().size() - 2));
}

}  // namespace feedline
