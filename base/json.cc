#include "base/json.h"

#include <set>
#include <string_view>

namespace feedline {
namespace {

Json known(int64_t number) { return number < 0 ? Json() : Json(number); }
Json known(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

Json parse_json(std::string_view text) {
  constexpr int deepest = 16;
  return Json::parse(text, [](int depth, Json::parse_event_t, const Json&) {
    if (depth > deepest)
      throw Error(Category::io_error,
                  "the JSON is nested too deep (more than 16 levels) for a document that feedline has written");
    return true;
  });
}

Json error_json(const Error& error) {
  const Place& place = error.place();
  return {{"category", name(error.category())}, {"file", known(place.file)},       {"offset", known(place.offset)},
          {"record", known(place.record)},      {"feature", known(place.feature)}, {"message", error.message()}};
}

Json errors_json(const std::vector<Error>& errors) {
  Json list = Json::array();
  std::set<std::string_view> told;
  for (const Error& error : errors)
    if (told.insert(error.what()).second) list.push_back(error_json(error));
  return list;
}

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string document_text(const Json& document) {
  Json versioned = {{"feedline_json", document_version}};
  versioned.update(document);
  return json_text(versioned, 2);
}

}  // namespace feedline
