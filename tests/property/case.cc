#include "property/case.h"

#include <fmt/format.h>

#include <algorithm>

#include "property/data_files.h"

namespace feedline::test {

Case draw_case(std::mt19937_64& random) {
  const auto below = [&](uint64_t n) { return random() % n; };
  const auto chance = [&](int percent) { return below(100) < static_cast<uint64_t>(percent); };
  const auto any = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[below(sizeof...(values))];
  };
  using Text = std::string;

  Case c;
  const bool damaged = chance(15);
  const auto one_set = [&]() -> int {
    return damaged ? any(int{known_damage}, int{hidden_damage}) : static_cast<int>(below(sound_sets));
  };
  c.sets = {one_set()};
  if (chance(20)) c.sets.push_back(one_set());
  c.skip_record = damaged && chance(75);
  if (damaged && !c.skip_record) std::fill(c.sets.begin(), c.sets.end(), static_cast<int>(known_damage));
  c.mode = any(Text("NONE"), Text("NONE"), Text("BLOCK"), Text("BUFFER"), Text("GLOBAL"));
  if (chance(25)) {
    c.sets.resize(2 + below(2));
    for (int& set : c.sets) set = damaged ? c.sets.front() : static_cast<int>(below(sound_sets));
    for (size_t s = 0; s < c.sets.size(); s++) c.weights.push_back(any(0.5, 1.0, 2.0, 5.0));
    c.stop = any(Text("FIRST_DATASET_EXHAUSTED"), Text("ALL_DATASETS_EXHAUSTED"),
                 Text("CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED"), Text("CYCLE_FOREVER"));
  }
  c.stride = any(uint64_t{0}, uint64_t{0}, uint64_t{512}, uint64_t{4096});
  if (chance(30)) c.part = any(Text("range: '10%:80%'"), Text("range: '5:333'"), Text("num_shards: 3 shard_id: 1"));
  if (chance(25)) c.filter = any(Text("mod(id, 3) != 1"), Text("mod(id, 97) == 5"), Text("mod(id, 40) > 3"));
  if (chance(30)) {
    c.windows = true;
    c.size = any(1, 2, 5, 30, 80);
    c.shift = any(1, 2, 7, 10);
    c.frame_stride = any(1, 1, 1, 3);
    c.drop_remainder = chance(70);
    c.across_files = chance(30);
    c.key = chance(20);
  }
  if (c.mode != "BLOCK" && c.mode != "GLOBAL" && !c.mixture() && chance(35)) {
    c.cycle_length = any(2, 3, 6, 16);
    c.block_length = any(1, 2, 16);
  }
  if (c.mode == "BLOCK" || c.mode == "BUFFER") c.buffer_size = any(10, 50, 200, 3000);
  if (c.mode == "BLOCK") c.block_size = any(Text(""), Text("16KiB"), Text("64KiB"));
  if (c.mode == "BUFFER") c.shuffle_files = chance(30);
  if (chance(25)) c.repeat = 3;
  if (c.mixture() ? c.stop == "CYCLE_FOREVER" : chance(20)) c.epoch_steps = any(1, 7, 25);
  if (c.epoch_steps > 0) c.repeat = 1;
  c.global_batch = any(8, 24, 48, 96, 200, 480);
  c.policy = any(Text("DROP"), Text("PARTIAL"), Text("PAD"));
  c.variable = !c.windows && chance(40);
  if (c.variable) c.max_values = any(0, 0, 4, 20, 100, 500, 3000);
  c.host_prefetch = any(0, 1, 2, 4);  // 0: as many as fit
  c.world = any(1, 2, 4);
  c.replicas = any(1, 1, 2);
  c.threads = any(2, 8);
  c.resume = chance(50) ? static_cast<int64_t>(1 + below(30)) : 0;
  if (chance(40))
    c.cache = fmt::format("cache {{ {} limit: '{}' }}\n", any(Text("where: MEMORY"), Text("where: DISK dir: 'kept'")),
                          any(Text("200KiB"), Text("1MiB"), Text("64MiB")));
  return c;
}

std::string text_of(const Case& c, bool compressed, int threads, const std::string& memory_limit,
                    const std::string& index_dir) {
  std::string text;
  const std::string stride = c.stride ? fmt::format(" stride: '{}'", c.stride) : "";
  for (size_t s = 0; s < c.sets.size(); s++) {
    text += fmt::format("source {{ files: '{}' index {{ dir: '{}'{} }}", pattern_of(c.sets[s], compressed), index_dir,
                        stride);
    if (s == 0 && !c.part.empty()) text += " " + c.part;
    if (c.mixture()) text += fmt::format(" weight: {}", c.weights[s]);
    text += " }\n";
  }
  text += "feature { name: 'id' dtype: INT64 }\nfeature { name: 'h' dtype: BYTES length: 16 }\n";
  if (c.key && c.windows) text += "feature { name: 'clip' dtype: INT64 }\n";
  if (c.variable) {
    const std::string most = c.max_values > 0 ? fmt::format(" max_values: {}", c.max_values) : "";
    text += fmt::format("feature {{ name: 'b' dtype: BYTES kind: VARIABLE{} }}\n", most);
    text += fmt::format("feature {{ name: 'v' dtype: INT64 kind: VARIABLE{} }}\n", most);
  }
  if (!c.filter.empty()) text += fmt::format("filter: '{}'\n", c.filter);
  if (c.windows)
    text += fmt::format("window {{ size: {} shift: {} stride: {} drop_remainder: {} across_files: {}{} }}\n", c.size,
                        c.shift, c.frame_stride, c.drop_remainder, c.across_files, c.key ? " key: 'clip'" : "");
  if (c.cycle_length > 1)
    text += fmt::format("interleave {{ cycle_length: {} block_length: {} }}\n", c.cycle_length, c.block_length);
  if (c.mixture()) text += fmt::format("mixture {{ stop: {} }}\n", c.stop);
  if (c.mode != "NONE") {
    text += fmt::format("shuffle {{ mode: {}", c.mode);
    if (c.buffer_size > 0) text += fmt::format(" buffer_size: {}", c.buffer_size);
    if (!c.block_size.empty()) text += fmt::format(" block_size: '{}'", c.block_size);
    if (c.shuffle_files) text += " shuffle_files: true";
    text += " }\n";
  }
  if (c.epoch_steps > 0) text += fmt::format("epoch {{ steps: {} }}\n", c.epoch_steps);
  if (c.repeat > 1) text += fmt::format("epoch {{ repeat: {} }}\n", c.repeat);
  text += fmt::format("batch {{ global_batch_size: {} last_batch_policy: {} }}\n", c.global_batch, c.policy);
  if (c.skip_record) text += "errors { on_error: SKIP_RECORD }\n";
  text += fmt::format("parallelism {{ threads: {} host_prefetch: {} }}\n", threads, c.host_prefetch);
  if (!memory_limit.empty()) text += fmt::format("memory {{ limit: '{}' }}\n", memory_limit);
  return text;
}

std::string how_of(const Case& c) {
  return fmt::format("{} ranks of {} replicas, {} threads, {} steps{}", c.world, c.replicas, c.threads, c.steps,
                     c.resume ? fmt::format(", gone on with after {} of them", c.resume) : "") +
         (c.cache.empty() ? "" : ", " + c.cache.substr(0, c.cache.size() - 1));
}

std::vector<Case> simpler_cases(const Case& c) {
  std::vector<Case> all;
  const auto add = [&](bool applies, auto change) {
    if (!applies) return;
    Case simpler = c;
    change(simpler);
    all.push_back(std::move(simpler));
  };
  add(c.sets.size() > 1 && !c.mixture(), [](Case& s) { s.sets.resize(1); });
  add(c.mixture(), [](Case& s) {
    s.sets.resize(1);
    s.weights.clear();
    if (s.stop == "CYCLE_FOREVER") s.epoch_steps = 0;
  });
  add(c.mixture() && c.sets.size() > 2, [](Case& s) {
    s.sets.pop_back();
    s.weights.pop_back();
  });
  add(c.windows, [](Case& s) { s.windows = s.key = false; });
  add(c.windows && c.key, [](Case& s) { s.key = false; });
  add(c.windows && c.across_files, [](Case& s) { s.across_files = false; });
  add(c.windows && !c.drop_remainder, [](Case& s) { s.drop_remainder = true; });
  add(c.windows && c.frame_stride > 1, [](Case& s) { s.frame_stride = 1; });
  add(!c.filter.empty(), [](Case& s) { s.filter.clear(); });
  add(!c.part.empty(), [](Case& s) { s.part.clear(); });
  add(c.stride > 0, [](Case& s) { s.stride = 0; });
  add(c.cycle_length > 1, [](Case& s) { s.cycle_length = 1; });
  add(c.mode != "NONE", [](Case& s) {
    s.mode = "NONE";
    s.buffer_size = 0;
    s.block_size.clear();
    s.shuffle_files = false;
  });
  add(!c.block_size.empty(), [](Case& s) { s.block_size.clear(); });
  add(c.shuffle_files, [](Case& s) { s.shuffle_files = false; });
  add(c.repeat > 1, [](Case& s) { s.repeat = 1; });
  add(c.epoch_steps > 0 && c.stop != "CYCLE_FOREVER", [](Case& s) { s.epoch_steps = 0; });
  add(c.variable, [](Case& s) { s.variable = false; });
  add(c.max_values > 0, [](Case& s) { s.max_values = 0; });
  add(c.policy != "DROP", [](Case& s) { s.policy = "DROP"; });
  add(c.host_prefetch != 2, [](Case& s) { s.host_prefetch = 2; });
  add(c.replicas > 1, [](Case& s) { s.replicas = 1; });
  add(c.world > 1, [](Case& s) { s.world = 1; });
  add(c.world > 2, [](Case& s) { s.world = 2; });
  add(c.resume > 0, [](Case& s) { s.resume = 0; });
  add(!c.cache.empty(), [](Case& s) { s.cache.clear(); });
  add(c.steps > 5, [](Case& s) { s.steps /= 2; });
  return all;
}

}  // namespace feedline::test
