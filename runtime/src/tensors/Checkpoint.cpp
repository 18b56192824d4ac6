//===- Checkpoint.cpp - the tensors of a model's folder ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Checkpoint.h"
#include "../support/Text.h"
#include "moert/Device.h"
#include "moert/Gguf.h"

#include "../support/MappedFile.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <unordered_map>

#include <dirent.h>
#include <sys/stat.h>

namespace moert {

/// Indexes of the largest models have about 20 MB.
static constexpr size_t kMaxIndexBytes = 256'000'000;

static constexpr char kIndexName[] = "model.safetensors.index.json";
static constexpr char kSuffix[] = ".safetensors";
static constexpr char kGgufSuffix[] = ".gguf";

static bool isFolder(const std::string &path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

static bool exists(const std::string &path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

static bool endsWith(const std::string &text, const std::string &end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

static std::string join(const std::string &folder, const std::string &file) {
  return (endsWith(folder, "/") ? folder : folder + "/") + file;
}

/// Sorted names of the files in a folder, without hidden ones.
static Result<std::vector<std::string>> listFolder(const std::string &path) {
  DIR *folder = opendir(path.c_str());
  if (!folder)
    return unavailable(path + ": cannot be read: " + strerror(errno));
  std::vector<std::string> names;
  while (dirent *entry = readdir(folder))
    if (entry->d_name[0] != '.')
      names.emplace_back(entry->d_name);
  closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

/// The files of a GGUF model that llama.cpp has split: those of
/// `name-00002-of-00003.gguf` for one of them, the first one first. Just the
/// path for any other name.
static std::vector<std::string> listSplitFiles(const std::string &path) {
  // "-00002-of-00003.gguf"
  constexpr size_t digits = 5, length = 20;
  const std::string middle = "-of-";
  if (path.size() <= length || !endsWith(path, kGgufSuffix))
    return {path};
  std::string tail = path.substr(path.size() - length);
  std::string index = tail.substr(1, digits);
  std::string count = tail.substr(1 + digits + middle.size(), digits);
  auto isNumber = [](const std::string &text) {
    return text.find_first_not_of("0123456789") == std::string::npos;
  };
  if (tail[0] != '-' || tail.substr(1 + digits, middle.size()) != middle ||
      !isNumber(index) || !isNumber(count) || index > count ||
      index == std::string(digits, '0'))
    return {path};
  std::vector<std::string> files;
  for (int i = 1; i <= std::stoi(count); ++i) {
    std::string number = std::to_string(i);
    number.insert(0, digits - number.size(), '0');
    files.push_back(path.substr(0, path.size() - length) + "-" + number +
                    middle + count + kGgufSuffix);
  }
  return files;
}

Result<Checkpoint> Checkpoint::open(const std::string &path) {
  Checkpoint checkpoint;
  checkpoint.openedPath = path;
  if (isFolder(path)) {
    Result<std::string> gguf = findGguf(path);
    if (!gguf)
      return gguf.status();
    if (!gguf->empty())
      return open(*gguf);
    if (Status status = checkpoint.openFolder(); !status)
      return status;
    return checkpoint;
  }
  for (const std::string &file : listSplitFiles(path)) {
    if (file != path && !exists(file))
      return notFound(file +
                      ": is missing; it has tensors of the model that '" +
                      path + "' is a part of");
    if (Status status = checkpoint.openFile(file); !status)
      return status;
  }
  if (const auto *metadata = checkpoint.ggufMetadata()) {
    auto count = metadata->find("split.count");
    if (count != metadata->end() && count->second != "0" &&
        count->second != std::to_string(checkpoint.shards.size()))
      return invalidArgument(
          path + ": 'split.count' is " + count->second +
          ": the model is in so many files; name them as llama.cpp does "
          "(model-00001-of-00003.gguf), or merge them with 'llama-gguf-split "
          "--merge'");
  }
  return checkpoint;
}

Result<std::string> Checkpoint::findGguf(const std::string &folder) {
  Result<std::vector<std::string>> names = listFolder(folder);
  if (!names)
    return names.status();
  std::vector<std::string> models;
  for (const std::string &name : *names) {
    if (name == "config.json" || endsWith(name, kSuffix) || name == kIndexName)
      return std::string();
    if (!endsWith(name, kGgufSuffix) || name.rfind("mmproj", 0) == 0)
      continue;
    // All files of a split model count as its first.
    std::string first = listSplitFiles(join(folder, name)).front();
    if (models.empty() || models.back() != first)
      models.push_back(first);
  }
  if (models.size() > 1)
    return invalidArgument(folder + ": holds several GGUF models, '" +
                           models[0] + "' and '" + models[1] +
                           "'; give the path of one");
  return models.empty() ? std::string() : models.front();
}

Result<Checkpoint>
Checkpoint::fromTensors(std::vector<SafetensorsEntry> tensors,
                        const std::string &name) {
  Checkpoint checkpoint;
  checkpoint.openedPath = name;
  for (const SafetensorsEntry &tensor : tensors)
    if (!checkpoint.fileNumbers.emplace(tensor.name, 0).second)
      return invalidArgument(name + ": tensor '" + printable(tensor.name) +
                             "' is given twice");
  checkpoint.shards.push_back(
      {name, SafetensorsFile::fromEntries(std::move(tensors), {})});
  return checkpoint;
}

bool Checkpoint::isGguf() const { return endsWith(openedPath, kGgufSuffix); }

const std::map<std::string, std::string> *Checkpoint::ggufMetadata() const {
  return isGguf() ? &shards.front().contents->metadata() : nullptr;
}

/// Adds a file with all of its tensors.
Status Checkpoint::openFile(const std::string &path) {
  Result<SafetensorsFile> file = endsWith(path, kGgufSuffix)
                                     ? openGguf(path)
                                     : SafetensorsFile::open(path);
  if (!file)
    return file.status();
  for (const SafetensorsEntry &entry : file->entries()) {
    auto [known, isNew] = fileNumbers.emplace(entry.name, shards.size());
    if (!isNew)
      return invalidArgument(
          openedPath + ": tensor '" + printable(entry.name) + "' is in '" +
          shards[known->second].path + "' and in '" + path + "'; without a " +
          kIndexName + " each name may occur once in the folder's files");
  }
  shards.push_back({path, std::move(*file)});
  return Status::ok();
}

Status Checkpoint::openIndex(const std::string &path) {
  Result<MappedFile> text = MappedFile::open(path);
  if (!text)
    return text.status();
  if (text->bytes() > kMaxIndexBytes)
    return invalidArgument(path + ": has " + std::to_string(text->bytes()) +
                           " bytes; an index of at most " +
                           std::to_string(kMaxIndexBytes) + " is read");
  Result<CheckpointIndex> index = parseCheckpointIndex(
      reinterpret_cast<const char *>(text->data()), text->bytes());
  if (!index) {
    // A message may begin with line and column, as compilers' messages do.
    const std::string &message = index.status().message();
    bool hasPlace = !message.empty() && message[0] >= '0' && message[0] <= '9';
    return invalidArgument(path + (hasPlace ? ":" : ": ") + message);
  }
  indexPath = path;
  std::unordered_map<std::string, size_t> numbers;
  for (const auto &[name, file] : *index) {
    auto [known, isNew] = numbers.emplace(file, shards.size());
    if (isNew)
      shards.push_back({join(openedPath, file), std::nullopt});
    fileNumbers[name] = known->second;
  }
  return Status::ok();
}

Status Checkpoint::openFolder() {
  if (std::string path = join(openedPath, kIndexName); exists(path))
    return openIndex(path);
  if (std::string path = join(openedPath, "model.safetensors"); exists(path))
    return openFile(path);
  Result<std::vector<std::string>> names = listFolder(openedPath);
  if (!names)
    return names.status();
  std::string other;
  for (const std::string &name : *names) {
    if (endsWith(name, kSuffix)) {
      if (Status status = openFile(join(openedPath, name)); !status)
        return status;
    } else if (endsWith(name, ".bin") || endsWith(name, ".pt") ||
               endsWith(name, ".pth") || endsWith(name, kGgufSuffix)) {
      other = name;
    }
  }
  if (!shards.empty())
    return Status::ok();
  if (endsWith(other, kGgufSuffix))
    return notFound(openedPath + ": holds no safetensors; to read '" + other +
                    "', give the file's own path");
  return notFound(openedPath + ": holds no weights in a supported format: " +
                  kIndexName + " and its files, or *" + kSuffix +
                  (other.empty() ? ""
                                 : "; convert '" + other +
                                       "' and its like to safetensors"));
}

Status Checkpoint::load(size_t number) {
  File &file = shards[number];
  if (file.contents)
    return Status::ok();
  if (!exists(file.path))
    return notFound(file.path + ": is missing, and " + indexPath + " names it");
  Result<SafetensorsFile> opened = SafetensorsFile::open(file.path);
  if (!opened)
    return opened.status();
  file.contents = std::move(*opened);
  return Status::ok();
}

Result<const SafetensorsEntry *> Checkpoint::find(const std::string &name) {
  Result<const SafetensorsEntry *> located = locate(name);
  if (!located || !(*located)->device)
    return located;
  auto [known, isNew] = fetched.try_emplace(name);
  Fetched &copy = known->second;
  if (isNew) {
    copy.bytes.reset(new uint8_t[(*located)->bytes]);
    Status status = (*located)->device->copyOut(
        copy.bytes.get(), (*located)->data, (*located)->bytes);
    if (!status) {
      fetched.erase(known);
      return status.withContext("tensor '" + printable(name) + "'");
    }
    copy.entry = **located;
    copy.entry.data = copy.bytes.get();
    copy.entry.device = nullptr;
  }
  return &copy.entry;
}

Result<const SafetensorsEntry *> Checkpoint::locate(const std::string &name) {
  auto known = fileNumbers.find(name);
  if (known == fileNumbers.end())
    return notFound(openedPath + ": no tensor '" + printable(name) + "'");
  if (Status status = load(known->second); !status)
    return status.withContext("tensor '" + printable(name) + "'");
  File &file = shards[known->second];
  const SafetensorsEntry *entry = file.contents->find(name);
  if (!entry)
    return notFound(file.path + ": no tensor '" + printable(name) +
                    "', though " + indexPath +
                    " lists it there; one of the two belongs to another model");
  return entry;
}

const std::string &Checkpoint::fileOf(const std::string &name) const {
  auto known = fileNumbers.find(name);
  assert(known != fileNumbers.end() && "the tensor is one of the checkpoint's");
  return shards[known->second].path;
}

std::vector<std::string> Checkpoint::files() const {
  std::vector<std::string> paths;
  if (!indexPath.empty())
    paths.push_back(indexPath);
  for (const File &file : shards)
    paths.push_back(file.path);
  return paths;
}

} // namespace moert
