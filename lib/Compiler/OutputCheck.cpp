//===- OutputCheck.cpp - checks of output paths ---------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/OutputFile.h"

#include "../../runtime/src/support/OutputTarget.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace moec;

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

namespace {

llvm::Error refuse(llvm::StringRef option, llvm::StringRef file,
                   const llvm::Twine &why) {
  return llvm::createStringError(option + " " + file + ": " + why);
}

/// Whether files can be created in a folder, or in its nearest existing parent.
llvm::Error checkFolderIsWritable(llvm::StringRef option, llvm::StringRef file,
                                  llvm::StringRef folder) {
  llvm::SmallString<256> nearest(folder.empty() ? "." : folder);
  while (!fs::exists(nearest)) {
    path::remove_filename(nearest);
    if (nearest.empty())
      nearest = ".";
  }
  std::string shown = nearest.str().str();
  if (!fs::is_directory(nearest))
    return refuse(option, file,
                  "cannot be written: " + shown +
                      " is a file, not a folder; give another path");
  if (std::error_code error = fs::access(nearest, fs::AccessMode::Write))
    return refuse(option, file,
                  "cannot be written: folder " + shown + ": " +
                      error.message() + "; give another path");
  return llvm::Error::success();
}

} // namespace

void OutputCheck::addInput(llvm::StringRef file) {
  auto add = [&](llvm::StringRef name) {
    fs::UniqueID id;
    if (!fs::getUniqueID(name, id))
      inputs.push_back({name.str(), id});
  };
  if (file.empty() || file == "-")
    return;
  if (!fs::is_directory(file))
    return add(file);
  std::error_code error;
  for (fs::directory_iterator entry(file, error), end; !error && entry != end;
       entry.increment(error))
    if (!fs::is_directory(entry->path()))
      add(entry->path());
}

const OutputCheck::Input *OutputCheck::find(llvm::StringRef file) const {
  fs::UniqueID id;
  if (fs::getUniqueID(file, id))
    return nullptr;
  const auto *found =
      llvm::find_if(inputs, [&](const Input &input) { return input.id == id; });
  return found == inputs.end() ? nullptr : found;
}

llvm::Error OutputCheck::check(llvm::StringRef option, llvm::StringRef file,
                               Kind kind) const {
  if (file.empty())
    return llvm::createStringError(option +
                                   " needs a file name; - is standard output");
  if (const Input *input = find(file))
    return refuse(
        option, file,
        input->path == file
            ? llvm::Twine(
                  "is an input, which would be overwritten; give another name")
            : "is the same file as the input " + input->path +
                  ", which would be overwritten; give another name");
  moert::Result<moert::OutputTarget> target = moert::resolveOutput(file.str());
  if (!target)
    return llvm::createStringError(option + " " + target.status().message());
  // Open descriptors are written in place.
  if (target->descriptor >= 0)
    return llvm::Error::success();
  fs::file_status status;
  if (!fs::status(file, status) && fs::exists(status)) {
    if (fs::is_directory(status))
      return refuse(option, file, "is a folder; give a file name");
    if (!fs::is_regular_file(status)) {
      if (kind == Kind::Text)
        return llvm::Error::success();
      return refuse(option, file,
                    "exists and is not a regular file; give another name");
    }
    // A rename would replace a read-only file.
    if (std::error_code error = fs::access(file, fs::AccessMode::Write))
      return refuse(option, file,
                    "cannot be written: " + error.message() +
                        "; give another name");
  }
  return checkFolderIsWritable(option, file, path::parent_path(target->path));
}

llvm::Error OutputCheck::checkFolder(llvm::StringRef option,
                                     llvm::StringRef folder,
                                     llvm::StringRef prefix) const {
  if (folder.empty())
    return llvm::createStringError(option + " needs a folder name");
  if (llvm::Error error = checkFolderIsWritable(option, folder, folder))
    return error;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (path::filename(entry->path()).starts_with(prefix))
      if (const Input *input = find(entry->path()))
        return refuse(option, folder,
                      "would overwrite the input " + input->path +
                          "; give another folder");
  return llvm::Error::success();
}

llvm::Error moec::makeFoldersOf(llvm::StringRef file) {
  llvm::StringRef folder = path::parent_path(file);
  if (folder.empty())
    return llvm::Error::success();
  return llvm::errorCodeToError(fs::create_directories(folder));
}
