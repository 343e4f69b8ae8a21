#include "tool/common/files.h"

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "base/byte_size.h"
#include "io/index/count_records.h"
#include "io/index/index_store.h"
#include "io/read/source.h"
#include "tool/common/terminal.h"

namespace feedline::tool {
namespace {

constexpr std::array compression_names = {"auto", "none", "gzip", "zlib"};

const char* name(Compression compression) { return compression_names[static_cast<size_t>(compression)]; }

bool is_too_long(const FileSummary::Damage& found) { return found.error.category() == Category::record_too_large; }

FileSummary scan_file(const std::string& file, const FileArgs& args, Progress& progress,
                      const std::function<void(const Record&)>& on_record) {
  FileSummary summary;
  summary.file = file;
  try {
    RecordReader reader(file, {.compression = args.compression, .record_limit = args.record_limit});
    summary.size = reader.file_size();
    summary.compression = reader.compression();
    uint64_t reported = 0;
    const auto report = [&] {
      progress.add(reader.file_position() - reported);
      reported = reader.file_position();
    };
    Record record;
    for (ReadResult result; (result = reader.next(record)) != ReadResult::end;) {
      if (result == ReadResult::error) {
        summary.damage.push_back({reader.error(), reader.skipped().length});
        continue;
      }
      const uint64_t bytes = record.payload.size();
      summary.record_min = summary.records ? std::min(summary.record_min, bytes) : bytes;
      summary.record_max = std::max(summary.record_max, bytes);
      summary.records++;
      summary.payload_bytes += bytes;
      on_record(record);
      if (reader.file_position() - reported >= uint64_t{4} << 20) report();
    }
    report();
  } catch (const Error& error) {  // the file cannot be opened, or reading it failed
    summary.damage.push_back({error, 0});
  }
  return summary;
}

FileSummary verify_file(const std::string& file, const FileArgs& args, Progress& progress) {
  FileSummary summary;
  summary.file = file;
  try {
    summary.size = size_of({file});
    // The stride (bytes between two entries of the index) is large, because no entry is used.
    const io::CountOptions options{
        .compression = args.compression, .record_limit = args.record_limit, .stride = uint64_t{1} << 20};
    const io::FileIndex index = io::count_records(file, options, [&](uint64_t bytes) { progress.add(bytes); });
    summary.take(index);
  } catch (const Error& error) {  // the file cannot be opened, or reading it failed
    summary.damage.push_back({error, 0});
  }
  return summary;
}

}  // namespace

bool FileSummary::exceeds_limit() const noexcept { return std::ranges::any_of(damage, is_too_long); }

void FileSummary::take(const io::FileIndex& index) {
  compression = index.compression;
  records = index.records;
  payload_bytes = index.payload_bytes;
  record_min = index.smallest_record;
  record_max = index.largest_record;
  for (const io::BadRegion& region : index.bad) damage.push_back({region.error(file), region.length});
}

uint64_t size_of(const std::vector<std::string>& files) {
  std::atomic<uint64_t> total = 0;
  tbb::parallel_for(size_t{0}, files.size(), [&](size_t i) {  // in parallel: a remote store answers slowly
    try {
      total += io::all_files().stat(files[i]).size;
    } catch (const Error&) {  // reported later, when the file is opened
    }
  });
  return total;
}

Json to_json(const FileSummary& summary) {
  Json errors = Json::array();
  for (const auto& [error, skipped_bytes] : summary.damage) {
    Json entry = error_json(error);
    entry.erase("file");
    entry.erase("feature");
    entry["skipped_bytes"] = skipped_bytes;
    errors.push_back(std::move(entry));
  }
  return {{"file", summary.file},
          {"compression", summary.opened() ? Json(name(summary.compression)) : Json()},
          {"records", summary.records},
          {"payload_bytes", summary.payload_bytes},
          {"errors", std::move(errors)}};
}

std::vector<FileSummary> scan_files(const FileArgs& args, const std::function<void(size_t, const Record&)>& on_record) {
  Progress progress("reading", size_of(args.files));
  std::vector<FileSummary> summaries(args.files.size());
  tbb::parallel_for(size_t{0}, args.files.size(), [&](size_t i) {
    summaries[i] = scan_file(args.files[i], args, progress, [&](const Record& record) { on_record(i, record); });
  });
  return summaries;
}

std::vector<FileSummary> verify_files(const FileArgs& args) {
  Progress progress("verifying", size_of(args.files));
  std::vector<FileSummary> summaries(args.files.size());
  tbb::parallel_for(size_t{0}, args.files.size(),
                    [&](size_t i) { summaries[i] = verify_file(args.files[i], args, progress); });
  return summaries;
}

std::string describe(const FileSummary& summary) {
  if (!summary.opened()) return fmt::format("{}: cannot be read", summary.file);
  std::string text = fmt::format("{}: {}, {}", summary.file, format_count(summary.records, "record"),
                                 format_byte_size(summary.payload_bytes));
  if (summary.compression != Compression::none) {
    text += fmt::format(" in {} of {}", format_byte_size(summary.size), name(summary.compression));
  }
  if (summary.records) text += fmt::format(", {} bytes each", format_range(summary.record_min, summary.record_max));
  if (!std::ranges::all_of(summary.damage, is_too_long)) text += ", damaged";
  return text + (summary.exceeds_limit() ? ", has records longer than --record-limit" : "");
}

size_t print_damage(const std::vector<FileSummary>& summaries) {
  size_t damaged = 0;
  for (const FileSummary& summary : summaries) {
    const Place place = Place::of_file(summary.file);
    for (const auto& [error, skipped_bytes] : summary.damage) {
      const std::string lost = skipped_bytes ? fmt::format(" ({} skipped)", format_byte_size(skipped_bytes)) : "";
      print_error("{}{}", error.at(place).what(), lost);
    }
    damaged += !summary.damage.empty();
  }
  return damaged;
}

}  // namespace feedline::tool
