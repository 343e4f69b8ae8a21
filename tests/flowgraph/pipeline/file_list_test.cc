#include "flowgraph/pipeline/file_list.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <clocale>
#include <filesystem>

#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::flow;

namespace {

std::string error_of(const FilePatterns& patterns, Category category = Category::bad_pipeline) {
  try {
    list_files(patterns);
  } catch (const Error& error) {
    CHECK(error.category() == category);
    return error.message();
  }
  return "no error";
}

struct Files {
  test::TempDir folder;
  Files() {
    for (const char* sub : {"data", "data/inner", "other", "[odd] *"})
      std::filesystem::create_directory(folder.file(sub));
    for (const char* name : {"data/b-1.rec", "data/b-0.rec", "data/B-2.rec", "data/a.rec", "data/inner/b-9.rec",
                             "other/b-0.rec", "[odd] */x[1].rec"})
      folder.write(name, "");
  }
  FileList list(std::vector<std::string> files, std::vector<std::string> exclude = {}) const {
    return list_files({"source", folder.path(), std::move(files), std::move(exclude)});
  }
  std::vector<std::string> names(std::vector<std::string> files, std::vector<std::string> exclude = {}) const {
    std::vector<std::string> names;
    for (const std::string& file : list(std::move(files), std::move(exclude)).files) {
      REQUIRE(file.starts_with(folder.path() + "/"));
      names.push_back(file.substr(folder.path().size() + 1));
    }
    return names;
  }
};
using Names = std::vector<std::string>;

}  // namespace

TEST_CASE_METHOD(Files, "patterns in their order, each sorted by byte, every file once") {
  CHECK(names({"data/b-*.rec"}) == Names{"data/b-0.rec", "data/b-1.rec"});
  CHECK(names({"data/*"}) == Names{"data/B-2.rec", "data/a.rec", "data/b-0.rec", "data/b-1.rec"});  // without folders
  CHECK(names({"data/b-1.rec", "data/[ab]*"}) == Names{"data/b-1.rec", "data/a.rec", "data/b-0.rec"});
  CHECK(names({"*/b-0.rec"}) == Names{"data/b-0.rec", "other/b-0.rec"});
  CHECK(names({"./data//b-0.rec", "data/b-0.rec", "other/../data/b-?.rec"}) == Names{"data/b-0.rec", "data/b-1.rec"});
  CHECK(names({folder.file("data/a.rec")}) == Names{"data/a.rec"});
}

TEST_CASE_METHOD(Files, "a file that several patterns name is warned of") {
  CHECK(list({"data/*"}).warnings.empty());
  CHECK(list({"data/a.rec", "data/b*"}).warnings.empty());
  CHECK(list({"data/b-1.rec", "data/a.rec", "data/[ab]*"}).warnings ==
        Names{"source.files: '" + folder.file("data/a.rec") +
              "' and 1 other file are named more than once, but fed only once"});
  CHECK(list({"data/a.rec", "./data/a.rec", "*/a.rec"}).warnings ==
        Names{"source.files: '" + folder.file("data/a.rec") + "' is named more than once, but fed only once"});
  CHECK(list({"data/a.rec", "data/*"}, {"a.rec"}).warnings.empty());
}

TEST_CASE_METHOD(Files, "names with glob's letters in them") {
  CHECK(names({"[odd] */x[1].rec"}) == Names{"[odd] */x[1].rec"});
  CHECK(list_files({"source", folder.file("[odd] *"), {"x*"}, {}}).files == Names{folder.file("[odd] */x[1].rec")});
}

TEST_CASE_METHOD(Files, "a link is followed, and a .. after one is resolved by the file system") {
  std::filesystem::create_directory_symlink(folder.file("data/inner"), folder.file("link"));
  CHECK(names({"link/*.rec"}) == Names{"link/b-9.rec"});
  CHECK(names({"link/../a.rec"}) == Names{"link/../a.rec"});  // this is data/a.rec; there is no "a.rec"
}

TEST_CASE_METHOD(Files, "exclude") {
  CHECK(names({"data/*"}, {"data/b-*"}) == Names{"data/B-2.rec", "data/a.rec"});
  CHECK(names({"*/*.rec"}, {"b-0.rec"}) == Names{"[odd] */x[1].rec", "data/B-2.rec", "data/a.rec", "data/b-1.rec"});
  CHECK(names({"data/*"}, {"*/b-0.rec", folder.file("data/a*")}) == Names{"data/B-2.rec", "data/b-1.rec"});
  CHECK(list({"data/*"}, {"c*"}).warnings ==
        Names{"source.exclude: no file matches 'c*'; correct or remove this pattern"});
  CHECK(error_of({"source", folder.path(), {"data/*"}, {std::string("a*\0b", 4)}})
            .ends_with("is not a pattern for files, because it has a NUL character"));
  CHECK(error_of({"source", folder.path(), {"data/*"}, {"*"}}) ==
        "source.exclude: its patterns exclude every file; correct or remove one of them");
}

TEST_CASE_METHOD(Files, "wildcards are for characters of UTF-8, in each locale") {
  folder.write("data/na\xc3\xafve.rec", "");
  folder.write("data/c\xff.rec", "");  // is not UTF-8, so its bytes are matched
  const std::string before = setlocale(LC_CTYPE, nullptr);
  for (const char* locale : {"C", "C.UTF-8"}) {
    REQUIRE(setlocale(LC_CTYPE, locale) != nullptr);
    INFO(locale);
    CHECK(names({"data/na?ve.rec"}) == Names{"data/na\xc3\xafve.rec"});
    CHECK(names({"data/na[\xc3\xaf]ve.rec"}) == Names{"data/na\xc3\xafve.rec"});
    CHECK(names({"data/c?.rec"}) == Names{"data/c\xff.rec"});
    CHECK(names({"data/[cn]*"}, {"na?ve.rec"}) == Names{"data/c\xff.rec"});
  }
  setlocale(LC_CTYPE, before.c_str());
}

TEST_CASE_METHOD(Files, "what matches nothing is an error with the whole pattern and what is there") {
  const auto said = [&](const std::string& pattern) { return error_of({"source[1]", folder.path(), {pattern}, {}}); };
  const std::string at = "source[1].files: no file matches '" + folder.path() + "/";
  CHECK(said("data/b_*.rec") == at + "data/b_*.rec'; there is '" + folder.file("data/b-0.rec") + "'");
  CHECK(said("data/a.rek") == at + "data/a.rek'; there is '" + folder.file("data/a.rec") + "'");
  CHECK(said("data/quite-different") == at + "data/quite-different'");
  CHECK(said("dat/*.rec") ==
        at + "dat/*.rec'; there is no folder '" + folder.file("dat") + "'; there is '" + folder.file("data") + "'");
  CHECK(said("no/such/place/*") == at + "no/such/place/*'; there is no folder '" + folder.file("no") + "'");
  CHECK(said("data/inner/*/x") == at + "data/inner/*/x'");
  std::filesystem::create_directory(folder.file("empty"));
  CHECK(said("empty/*") == at + "empty/*'; the folder is empty");
  CHECK(said("data/a.rec/*") == at + "data/a.rec/*'; there is no folder '" + folder.file("data/a.rec") +
                                    "'; there is '" + folder.file("data/a.rec") + "'");
  CHECK(said("data") == "source[1].files: '" + folder.file("data") + "' is a folder; name the files in it: '" +
                            folder.file("data/*") + "'");
  CHECK(said("") == "source[1].files: '' is not a file name, because it is empty or has a NUL character");
}

TEST_CASE_METHOD(Files, "a pattern that was meant in another way") {
  const auto said = [&](const std::string& pattern) {
    const std::string message = error_of({"source", folder.path(), {pattern}, {}});
    const size_t at = message.rfind("'; ");
    return at == std::string::npos ? message : message.substr(at + 3);
  };
  for (const std::string scheme : {"gs://", "s3://", "https://"})
    CHECK(said(scheme + "bucket/x-*") == "files of '" + scheme +
                                             "' cannot be read, only local files; mount or copy the files, and write "
                                             "their local path");
  CHECK(said("file:///data/x").ends_with("write only the path, without 'file://'"));
  for (const char* pattern : {"~/data/*", "$HOME/x"})
    CHECK(said(pattern) == "'~' and variables are not expanded; write the whole path");
  // The folder is there, but its name is a pattern that it does not match itself.
  const std::string hint = "'" + folder.file("[[]odd] [*]/*.tfrecord") + "'";
  CHECK(said("[odd] */*.tfrecord").ends_with(hint));
  CHECK(names({"[[]odd] [*]/*.rec"}) == Names{"[odd] */x[1].rec"});
}

TEST_CASE_METHOD(Files, "patterns leave out indexes and what killed commands have left, names do not") {
  const Names ours = {"data/.a.rec.feedline-index", "data/a.rec.feedline-index",
                      "data/a.rec.feedline-index.7-0.feedline-part", "data/a.rec.4711-12.feedline-part"};
  const Names others = {"data/a.rec.part", "data/a.rec.7.part", "data/a.rec.x-1.feedline-part",
                        "data/b-7-0.feedline-part"};
  for (const Names& files : {ours, others})
    for (const std::string& name : files) folder.write(name, "");
  CHECK(names({"data/*part*", "data/a.rec*"}) == Names{"data/a.rec.7.part", "data/a.rec.part",
                                                       "data/a.rec.x-1.feedline-part", "data/b-7-0.feedline-part",
                                                       "data/a.rec"});
  CHECK(names({"data/a.rec.4711-12.feedline-part"}) == Names{"data/a.rec.4711-12.feedline-part"});
}

TEST_CASE_METHOD(Files, "** matches one level of folders, and says so") {
  const FileList found = list({"**/b-*.rec"});
  CHECK(found.files.size() == 3);
  REQUIRE(found.warnings.size() == 1);
  CHECK(found.warnings[0].starts_with("source.files: '**' in '**/b-*.rec' matches one level of folders, as '*' does;"));
  CHECK(list({"data/a**"}).warnings.empty());
  std::filesystem::create_directories(folder.file("deep/inner"));
  CHECK(error_of({"source", folder.path(), {"deep/**"}, {}}, Category::bad_pipeline)
            .ends_with(
                "; '**' matches one level of folders, as '*' does; write a pattern for each level, such as 'd/*' and "
                "'d/*/*'"));
}

TEST_CASE_METHOD(Files, "a folder that cannot be listed is not an empty one") {
  for (SyscallHook* hook : SyscallHook::all())
    if (std::string(hook->name()) == "list_files") hook->fail_nth_call(1);
  CHECK(error_of({"source", folder.path(), {"data/*"}, {}}, Category::io_error) ==
        "source.files: cannot list '" + folder.file("data") + "': Permission denied");
}

TEST_CASE_METHOD(Files, "a path that the system does not tell about is not left out") {
  std::filesystem::create_symlink("inner", folder.file("data/link"));
  std::filesystem::create_symlink("nowhere", folder.file("data/lost.rec"));
  for (const char* pattern : {"*/a.rec", "data/li*/*", "data/lo*"}) {
    INFO(pattern);
    list_files({"source", folder.path(), {pattern}, {}});
    for (SyscallHook* hook : SyscallHook::all())
      if (std::string(hook->name()) == "list_files: type") hook->fail_nth_call(1);
    CHECK(error_of({"source", folder.path(), {pattern}, {}}, Category::io_error).find("Input/output error") !=
          std::string::npos);
  }
  // A link that leads nowhere is listed, so that opening it is an error.
  CHECK(list_files({"source", folder.path(), {"data/lo*"}, {}}).files ==
        std::vector<std::string>{folder.file("data/lost.rec")});
}

// The tests list ten thousand files. A hundred thousand take 0.3 s: file_list_test "[.speed]".
namespace {
double list_many(int count) {
  const test::TempDir folder;
  std::filesystem::create_directory(folder.file("d"));
  for (int i = 0; i < count; i++) {
    char name[32];
    std::snprintf(name, sizeof name, "/d/%06d.rec", static_cast<int>(int64_t{i} * 7919 % count));
    REQUIRE(mknod((folder.path() + name).c_str(), S_IFREG | 0600, 0) == 0);
  }
  const auto start = std::chrono::steady_clock::now();
  const FileList list = list_files({"source", folder.path(), {"d/*.rec", "d/0*"}, {"d/000000.rec"}});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  CHECK(list.files.size() == static_cast<size_t>(count) - 1);
  CHECK(list.files.front().ends_with("/d/000001.rec"));
  CHECK(std::is_sorted(list.files.begin(), list.files.end()));
  return seconds.count();
}
}  // namespace

TEST_CASE("ten thousand files") { list_many(10'000); }

TEST_CASE("a hundred thousand files", "[.speed]") { WARN("listed in " << list_many(100'000) << " s"); }
