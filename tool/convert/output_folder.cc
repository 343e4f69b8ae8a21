#include "tool/convert/output_folder.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/syscall_hooks.h"
#include "io/file.h"
#include "io/output_file.h"

namespace feedline::tool {
namespace {

namespace fs = std::filesystem;

using HiddenFolderOp = HookedCall<"hidden folder", EACCES>;
using RemoveOp = HookedCall<"remove pipeline", EIO>;

}  // namespace

OutputFolder::OutputFolder(std::string path)
    : path_(std::move(path)), hidden_(path_ + "/.feedline-convert"), lock_(path_) {
  std::error_code error(injected<HiddenFolderOp>(), std::generic_category());
  if (!error) fs::remove_all(hidden_, error);
  if (!error) fs::create_directory(hidden_, error);
  if (error) throw io::io_failure(hidden_, "cannot be removed and created again", error.value());
  io::remove_unfinished(pipeline());
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;  // the next conversion removes what is left
  fs::remove_all(hidden_, ignored);
}

std::string OutputFolder::place(const std::string& name) {
  names_.push_back(name);
  return hidden_ + "/" + name;
}

void OutputFolder::publish() {
  const auto sync = [&] {
    if (const int error = io::sync_folder(path_)) throw io::io_failure(path_, "cannot be synced", error);
  };
  std::error_code error(injected<RemoveOp>(), std::generic_category());
  if (!error) fs::remove(pipeline(), error);
  if (error) throw io::io_failure(pipeline(), "cannot be removed", error.value());
  sync();
  for (const std::string& name : names_)
    if (const int failed = io::rename_file(hidden_ + "/" + name, path_ + "/" + name))
      throw io::io_failure(path_ + "/" + name, "cannot be renamed from its temporary name", failed);
  sync();
}

}  // namespace feedline::tool
