// Entries in memory and on a disk: a drawn sequence of calls, failures and changes of the file beside a std::map and a
// plain reading of the entry file. What is found must be what was kept, or, where lengths, places and sums were forged,
// what the file says.
// covers: io/cache/disk_entries.cc io/cache/entry_file.cc io/cache/memory_entries.cc
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mul_div.h"
#include "base/syscall_hooks.h"
#include "draw.h"
#include "entry_file_bytes.h"
#include "feedline/error.h"
#include "feedline/log.h"
#include "io/cache/disk_entries.h"
#include "io/cache/memory_entries.h"
#include "require.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace feedline;
using test::Draw;
using test::ExactBlock;
using test::OutputBlock;
using test::require;
using FileBytes = test::EntryFileBytes;

constexpr uint64_t page = FileBytes::page, row_bytes = FileBytes::row_bytes, most_bytes = 700;

/// Memory for an entry that is read from a disk: mostly enough for any.
struct Scratch {
  explicit Scratch(Draw& draw)
      : block(std::string(draw.below(4) > 0 ? most_bytes : draw.near(64) % most_bytes, '\x5a')) {}
  std::span<std::byte> bytes() { return {block.data(), block.size()}; }
  ExactBlock block;
};

/// What all stores were given, and what must be found in them.
struct Model {
  std::map<uint64_t, std::string> kept;
  uint64_t data_bytes, used = 0;
  uint32_t puts = 0;

  struct Put {
    uint64_t size;
    bool claimed = false, given_up = false, kept = false;
  };
  /// Claims an entry for a size near a bound, and keeps it or gives it up. `takes_at_claim`: the place is taken then, and
  /// not when it is kept.
  Put put(Draw& draw, io::EntryStore& store, uint64_t entry, bool takes_at_claim, std::span<std::byte> scratch) {
    const uint64_t bounds[] = {64, scratch.size(), data_bytes - used};
    Put put{.size = 1 + draw.near(draw.one_of(bounds)) % most_bytes};
    const std::span<std::byte> place = store.claim(entry, put.size, scratch);
    put.claimed = !place.empty();
    if (!put.claimed) return put;
    require(place.size() == put.size, "a place of another size than was asked for");
    require(!store.has(entry) && store.find(entry, {}).empty(), "an entry is found before it is kept");
    std::string bytes(put.size, static_cast<char>(++puts));
    bytes.front() = static_cast<char>(puts >> 8);
    std::memcpy(place.data(), bytes.data(), put.size);
    put.given_up = draw.below(8) == 1;
    const uint64_t before = store.kept_entries();
    put.given_up ? store.give_up(entry) : store.keep(entry, place);
    put.kept = store.kept_entries() > before;
    if (takes_at_claim || put.kept) used = std::min(data_bytes, used + round_up(put.size, io::entry_alignment));
    if (put.kept) kept[entry] = std::move(bytes);
    return put;
  }
};

bool same(std::span<const std::byte> found, std::string_view wanted) {
  return std::ranges::equal(found, std::as_bytes(std::span(wanted)));
}

void run_in_memory(Draw& draw) {
  const uint64_t entries = 1 + draw.below(6), data_bytes = draw.near(64 * entries) % 4096;
  const OutputBlock memory(io::MemoryEntries::table_bytes(entries) + data_bytes);
  std::ranges::fill(memory.span(), std::byte{0});
  io::MemoryEntries store(entries, memory.span());
  require(store.entries() == entries, "the store has another number of entries");
  Model model{.kept = {}, .data_bytes = data_bytes};
  std::set<uint64_t> given_up;
  while (!draw.empty()) {
    const uint64_t entry = draw.below(entries), room = data_bytes - model.used;
    const bool is_free = !model.kept.contains(entry) && !given_up.contains(entry);
    const Model::Put put = model.put(draw, store, entry, true, {});
    require(put.claimed == (is_free && put.size <= room), "an entry is claimed without room, or not with it");
    require(put.kept == (put.claimed && !put.given_up), "what was claimed is not kept");
    if (put.given_up) given_up.insert(entry);
  }
  for (uint64_t entry = 0; entry < entries; entry++) {
    const auto wanted = model.kept.find(entry);
    require(store.has(entry) == (wanted != model.kept.end()), "another entry is valid than was kept");
    require(same(store.find(entry, {}), wanted == model.kept.end() ? "" : wanted->second),
            "other bytes than were kept");
  }
}

/// A file of entries and two users of it, as two processes would be.
class OnDisk {
 public:
  explicit OnDisk(Draw& draw) : draw_(draw) {
    static const test::TempDir folder;
    static constexpr uint64_t few[] = {3, 1, 127, 128, 129},
                              many[] = {2047, 2048, 2049};  // at pages and reads of the table
    path_ = folder.file("x.feedline-cache");
    std::filesystem::remove(path_);
    wanted_ = {draw.below(16) == 1 ? draw.one_of(many) : draw.one_of(few), draw.near(256) % 4096};
  }

  void run() {
    open(0);
    for (int i = 0; i < 24 && !draw_.empty(); i++) step();
    disarm();
    for (auto& user : users_) user.reset();
    open(0);  // what was kept is still there
    if (users_[0]) check(*users_[0]);
  }

 private:
  struct User {
    User(const std::string& path, uint64_t content, const io::EntryLayout& wanted, uint64_t bytes_of_sync)
        : memory(std::string(wanted.entries, '\0')),
          store(path, content, wanted, {memory.data(), memory.size()}, bytes_of_sync) {}
    ExactBlock memory;
    io::DiskEntries store;
    std::set<uint64_t> own, given_up, lost;  // entries that it has kept, has given up, and has perhaps found damaged
  };

  void disarm() {
    if (hook_) hook_->fail_nth_call(0);
  }
  bool armed() const { return hook_ && hook_->pending(); }

  FileBytes now() const { return {test::read_file(path_)}; }
  bool is_open() const { return users_[0] || users_[1]; }

  void begin_anew() {
    disarm();
    for (auto& user : users_) user.reset();
    std::filesystem::remove(path_);
    model_ = {.kept = {}, .data_bytes = 0};
    exact_ = true;
    forged_ = false;
  }

  void open(size_t number) {
    const FileBytes before = now();
    const bool alone = !is_open(), armed = this->armed();
    const auto there = before.layout(content_);
    const bool refuses = !there && (!alone || before.is_foreign());
    if (alone && !there && !refuses) model_ = {.kept = {}, .data_bytes = 0}, exact_ = !armed, forged_ = false;
    try {
      users_[number].emplace(path_, content_, wanted_, draw_.below(8) == 1 ? 100 : io::DiskEntries::usual_sync);
    } catch (const Error& error) {
      require(error.category() == Category::io_error && (refuses || armed), error.what());
      // If another user is there, its thread may be making entries valid.
      if (refuses && alone && !armed) require(now().bytes == before.bytes, "a file that is refused is changed");
      return begin_anew();
    }
    const FileBytes after = now();
    const auto layout = after.layout(content_);
    require(layout.has_value() && (armed || !refuses), "a file without its header is used");
    if (!armed) require(layout == there.value_or(wanted_), "a file of another layout than was wanted or there");
    layout_ = *layout;
    require(users_[number]->store.entries() == std::min(layout_.entries, wanted_.entries), "another number of entries");
    if (alone && !armed) check_recovered(there ? before : FileBytes(), after);
    model_.data_bytes = layout_.data_bytes;
  }

  // Only entries that are valid are left, and nothing is written over them.
  void check_recovered(const FileBytes& before, const FileBytes& after) {
    uint64_t next = 0;
    for (uint64_t entry = 0; entry < layout_.entries; entry++) {
      const uint64_t row = FileBytes::row(entry);
      const auto offset = before.at<uint64_t>(row + 8), size = before.at<uint64_t>(row + 16);
      const bool is_valid = before.at<uint32_t>(row) == 2 && before.at<uint32_t>(row + 24) == before.row_sum(entry) &&
                            size <= layout_.data_bytes && offset <= layout_.data_bytes - size;
      if (is_valid) next = std::max(next, round_up(offset + size, io::entry_alignment));
      const std::string was(before.bytes, std::min(row, before.bytes.size()), row_bytes);
      const bool is_empty = before.at<uint32_t>(row) == 0;
      if (before.bytes.size() >= row + row_bytes && (is_valid || is_empty))
        require(after.bytes.substr(row, row_bytes) == was, "a row that is valid or empty is changed");
      else if (row < after.bytes.size())  // what is beyond the end of a file that was cut reads as zeros
        require(after.bytes.find_first_not_of('\0', row) >= std::min(row + row_bytes, after.bytes.size()),
                "a row that is not valid is left");
    }
    require(after.at<uint64_t>(FileBytes::next_at) == std::min(next, layout_.data_bytes),
            "the place of the next entry is wrong");
    if (exact_) require(after.at<uint64_t>(FileBytes::next_at) == model_.used, "room is lost");
  }

  // Looks at what a user finds of each entry.
  void check(User& user) {
    const FileBytes file = now();
    for (uint64_t entry = 0; entry < user.store.entries(); entry++) {
      if (entry > 4 && entry + 4 < user.store.entries() && !model_.kept.contains(entry)) continue;
      Scratch scratch(draw_);
      const bool failing = armed();
      const auto found = user.store.find(entry, scratch.bytes());
      const auto wanted = file.entry(entry, layout_);
      const auto kept = model_.kept.find(entry);
      if (!found.empty()) {
        require(found.data() == scratch.block.data() && wanted && same(found, *wanted),
                "other bytes than the file has");
        require(forged_ || (kept != model_.kept.end() && same(found, kept->second)), "other bytes than were kept");
        require(failing || user.store.has(entry), "an entry is found, but is not there");
        continue;
      }
      if (failing) continue;
      const bool fits = wanted && !wanted->empty() && wanted->size() <= scratch.block.size();
      const bool is_valid = file.at<uint32_t>(FileBytes::row(entry)) == 2;
      if (fits && !user.given_up.contains(entry) && !user.lost.contains(entry))
        require(!is_valid, "a valid entry is not found");
      if (exact_ && user.own.contains(entry)) require(wanted && !fits, "an entry that was kept is not found");
      if (!wanted) user.lost.insert(entry);
    }
  }

  void put(User& user) {
    const uint64_t entries = user.store.entries(), entry = draw_.coin() ? draw_.below(4) : draw_.near(entries);
    if (entry >= entries) return;
    Scratch scratch(draw_);
    const uint64_t room = model_.data_bytes - model_.used;
    const bool is_free = !model_.kept.contains(entry) && !user.given_up.contains(entry);
    const uint64_t most =
        std::max(std::filesystem::file_size(path_), FileBytes::table_bytes(layout_.entries) + layout_.data_bytes);
    const Model::Put put = model_.put(draw_, user.store, entry, false, scratch.bytes());
    require(std::filesystem::file_size(path_) <= most, "the file grows beyond its layout");
    if (exact_) {
      require(put.claimed == (is_free && put.size <= scratch.block.size()), "an empty entry cannot be claimed");
      require(put.kept == (put.claimed && !put.given_up && put.size <= room), "an entry with room is not kept");
    }
    if (put.kept) user.own.insert(entry);
    if (put.claimed && !put.kept) user.given_up.insert(entry);
  }

  // Keeps neighbouring entries at once. What is kept of them is what was empty, as far as there is room. Draws nothing,
  // so that inputs that were found before mean what they did.
  void put_run(User& user) {
    const uint32_t puts = model_.puts;
    const uint64_t entries = user.store.entries(), first = entries > 0 ? puts * 7 % entries : 0;
    std::vector<uint64_t> sizes;
    std::string bytes;
    for (uint64_t i = std::min<uint64_t>(puts % 8 == 7 ? 66 : 2, entries - first); i > 0; i--) {
      sizes.push_back(1 + model_.puts * 29 % most_bytes);
      bytes.append(sizes.back(), static_cast<char>(++model_.puts));
    }
    ExactBlock block(bytes);
    const uint64_t kept = user.store.kept_entries();
    user.store.keep_run(first, sizes, {block.data(), block.size()});
    require(block.text() == bytes, "bytes are changed that are kept");
    uint64_t found = 0;
    size_t at = 0;
    const FileBytes file = now();
    for (uint64_t i = 0; i < sizes.size(); at += sizes[i++]) {
      if (model_.kept.contains(first + i) || user.given_up.contains(first + i)) continue;
      const auto entry = file.entry(first + i, layout_);
      if (!entry || *entry != std::string_view(bytes).substr(at, sizes[i])) {
        user.given_up.insert(first + i);
        continue;
      }
      found++;
      user.own.insert(first + i);
      model_.kept[first + i] = *entry;
    }
    require(found == user.store.kept_entries() - kept || !exact_, "other entries are in the file than were kept");
    model_.used = std::min(layout_.data_bytes, file.at<uint64_t>(FileBytes::next_at));
  }

  // Looks for neighbouring entries at once, and finds what find() finds. Draws nothing, as put_run().
  void check_run(User& user) {
    const uint64_t entries = user.store.entries(), first = entries > 0 ? model_.puts * 3 % entries : 0;
    if (armed()) return;
    const bool is_alone = !users_[0] || !users_[1];  // otherwise entries may become valid meanwhile
    const FileBytes file = now();
    std::vector<uint64_t> sizes;
    uint64_t bytes = 0;
    for (uint64_t entry = first; entry < entries && sizes.size() < 70; entry++) {
      const auto there = file.entry(entry, layout_);
      sizes.push_back(there && !there->empty() && entry % 32 != 31 ? there->size() : 5);
      bytes += sizes.back();
    }
    ExactBlock together(std::string(bytes, '\x5a'));
    const size_t count = user.store.find_run(first, sizes, {together.data(), together.size()});
    require(count <= sizes.size(), "more entries are found than were asked for");
    size_t at = 0;
    for (size_t i = 0; i < sizes.size() && i <= count; at += sizes[i++]) {
      ExactBlock one(std::string(sizes[i], '\x5a'));
      const auto found = user.store.find(first + i, {one.data(), one.size()});
      if (i == count) require(found.size() != sizes[i] || !is_alone, "find_run() stops at an entry that is there");
      if (i < count) require(same(found, together.text().substr(at, sizes[i])), "other bytes than find() has found");
    }
  }

  // Changes the file as a disk or another program may, and corrects the sums or not.
  void change_file() {
    FileBytes file = now();
    exact_ = false;
    const bool corrects = draw_.coin();
    forged_ |= corrects;
    const uint64_t entry = draw_.coin() ? draw_.below(4) : draw_.near(layout_.entries) % (layout_.entries + 1);
    const uint64_t row = FileBytes::row(entry), table = FileBytes::table_bytes(layout_.entries);
    switch (draw_.below(8)) {
      case 0:  // any byte of the header, the row or the data
      {
        const uint64_t bounds[] = {0, row, table};
        const uint64_t at = draw_.one_of(bounds) + draw_.below(140);
        file.set(at, static_cast<uint8_t>(file.at<uint8_t>(at) ^ draw_.any<uint8_t>()));
        break;
      }
      case 1:
        file.set(row + 8, draw_.near(layout_.data_bytes));
        break;
      case 2:
        file.set(row + 16, draw_.near(draw_.coin() ? layout_.data_bytes : file.at<uint64_t>(row + 16)));
        break;
      case 3:
        file.set(row, static_cast<uint32_t>(draw_.near(2)));
        break;
      case 4:
        file.set(16, draw_.near(layout_.entries));
        break;
      case 5:
        file.set(draw_.coin() ? 24 : FileBytes::next_at, draw_.near(layout_.data_bytes));
        break;
      case 6: {
        const uint64_t ends[] = {page, table, file.bytes.size(), 8, 136};
        file.bytes.resize(draw_.near(draw_.one_of(ends)) % (file.bytes.size() + page));
        break;
      }
      default:  // the row of another entry
        if (const uint64_t from = FileBytes::row(draw_.below(4)); std::max(row, from) + row_bytes <= file.bytes.size())
          file.bytes.replace(row, row_bytes, file.bytes.substr(from, row_bytes));
    }
    if (corrects) {
      // The bytes that the row says, as far as there are any.
      const auto offset = file.at<uint64_t>(row + 8), size = file.at<uint64_t>(row + 16);
      const std::string_view data = std::string_view(file.bytes).substr(std::min(table, file.bytes.size()));
      if (offset <= data.size() && size <= data.size() - offset)
        file.set(row + 4, test::sum_of(data.substr(offset, size)));
      file.set(row + 24, file.row_sum(entry));
      file.set(32, file.header_sum());
    }
    std::ofstream(path_, std::ios::binary).write(file.bytes.data(), static_cast<std::streamsize>(file.bytes.size()));
  }

  void step() {
    const size_t number = draw_.below(2);
    auto& user = users_[number];
    switch (draw_.below(8)) {
      case 0:
      case 1:
      case 2:
        if (user && model_.puts % 4 == 3) put_run(*user);
        if (user) put(*user);
        break;
      case 3:
        if (user) check(*user);
        if (user) check_run(*user);
        break;
      case 4:
        user.reset();
        break;
      case 5:
        user.reset();
        if (!is_open()) {
          content_ = draw_.coin() ? draw_.below(3) : content_;
          if (draw_.below(4) == 3) wanted_ = {1 + draw_.near(layout_.entries) % 200, draw_.near(256) % 4096};
        }
        open(number);
        break;
      case 6:
        change_file();
        break;
      default:
        if (draw_.coin()) return fail_a_call();
        disarm();
        require(io::EntryFile::layout_of(path_, content_) == now().layout(content_),
                "another layout than the file says");
        check_free_bytes();
        io::EntryFile::remove_unused(std::filesystem::path(path_).parent_path() / "y", "x");
        require(std::filesystem::exists(path_) == is_open(),
                "a file that is used is removed, or one that is not is left");
        if (!is_open()) begin_anew();
    }
  }

  void check_free_bytes() {
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    struct stat file {};
    const bool counts = !is_open() && ::stat(path_.c_str(), &file) == 0;
    require(io::EntryFile::free_bytes(folder / "none" / "y", "x") > 0, "a folder that can be made has no room");
    require(io::EntryFile::free_bytes(folder / "y", "x") >= (counts ? 512 * static_cast<uint64_t>(file.st_blocks) : 0),
            "an unused file counts as used");
    if (!counts) return;
    try {
      io::EntryFile::free_bytes(path_ + "/y", "x");
      require(false, "a file has room for other files");
    } catch (const Error& error) {
      require(error.category() == Category::io_error, error.what());
    }
  }

  void fail_a_call() {
    static constexpr const char* names[] = {"read from a cache", "write to a cache",       "fdatasync of a cache",
                                            "lock of a cache",   "write short to a cache", "open a cache",
                                            "start thread"};
    const size_t name = draw_.below(std::size(names));
    exact_ = false;
    disarm();
    hook_ = test::find_hook(names[name]);
    hook_->fail_nth_call(1 + static_cast<int64_t>(draw_.below(4)));
  }

  Draw& draw_;
  std::string path_;
  uint64_t content_ = 1;
  io::EntryLayout wanted_, layout_;  // what users want, and what the file has
  std::array<std::optional<User>, 2> users_;
  Model model_{.kept = {}, .data_bytes = 0};
  SyscallHook* hook_ = nullptr;  // of the call that was made to fail
  bool exact_ = true;            // nobody has changed the file, and no call has failed
  bool forged_ = false;          // the file was changed, and its sums are right
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static const LogSink quiet = set_log_sink([](LogLevel, std::string_view) {});
  Draw draw(data, size);
  draw.below(4) == 0 ? run_in_memory(draw) : OnDisk(draw).run();
  return 0;
}
