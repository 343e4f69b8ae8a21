#include "flowgraph/pipeline/resolve_cache.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/absolute_path.h"
#include "base/byte_size.h"
#include "feedline/error.h"
#include "feedline_pipeline.pb.h"
#include "io/read/source.h"

namespace feedline::flow {
namespace {

[[noreturn]] void refuse_cache(const std::string& what) { throw Error(Category::bad_pipeline, "cache: " + what); }

uint64_t limit_of(const config::Cache& cache) {
  if (cache.limit().empty())
    refuse_cache("limit: it is missing; say how many bytes the cache may take, such as \"20GiB\"");
  try {
    if (const uint64_t limit = parse_byte_size(cache.limit())) return limit;
  } catch (const Error& error) {
    refuse_cache("limit: " + error.message());
  }
  refuse_cache("limit: 0 bytes is not a valid size; write a size above 0, or remove the cache");
}

}  // namespace

void resolve_cache(const Pipeline& pipeline, PipelineSpec& spec) {
  if (!pipeline.message().has_cache()) return;
  const config::Cache& cache = pipeline.message().cache();
  CacheSpec& of = spec.cache.emplace();
  of.where = static_cast<CacheWhere>(cache.where());
  of.what = static_cast<CacheWhat>(cache.what());
  of.limit = limit_of(cache);
  if (!cache.dir().empty() && of.where == CacheWhere::memory)
    refuse_cache("dir: it has no effect without where: DISK; remove 'dir', or write where: DISK");
  if (cache.dir().find('\0') != std::string::npos)
    refuse_cache(fmt::format("dir: '{}' is not a folder name, because it has a NUL character", cache.dir()));
  if (!io::scheme_of(cache.dir()).empty())
    refuse_cache(
        fmt::format("dir: '{}' is not a folder on this machine; write the path of a local folder", cache.dir()));
  if (!cache.dir().empty()) {
    const std::filesystem::path dir = std::filesystem::path(pipeline.folder()) / cache.dir();
    of.dir = absolute_path(dir).lexically_normal().string();
  }
}

void check_cache_keeps(const PipelineSpec& spec) {
  if (!spec.cache || spec.cache->what == CacheWhat::records) return;
  const char* const what = spec.cache->what == CacheWhat::decoded ? "DECODED" : "RESIZED";
  std::string why;
  for (const OutputSpec& output : spec.outputs) {
    const std::optional<KeptStep> step = output.kept_step();
    if (!step || output.internal) continue;
    if (step->why_not.empty()) return;
    why += fmt::format("; output '{}': {}", output.name, step->why_not);
  }
  if (why.empty()) why = "; no output is a picture";
  refuse_cache(
      fmt::format("what: {}: no output can be kept in the cache{}; write a different 'what', or remove the "
                  "cache",
                  what, why));
}

}  // namespace feedline::flow
