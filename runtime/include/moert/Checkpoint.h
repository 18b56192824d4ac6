//===- Checkpoint.h - the tensors of a model's folder -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_CHECKPOINT_H
#define MOERT_CHECKPOINT_H

#include "moert/Safetensors.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moert {

/// The file of each tensor, relative to the folder.
using CheckpointIndex = std::map<std::string, std::string>;

/// Parses the text of a `model.safetensors.index.json`. Rejects text that is
/// not JSON, a missing `weight_map` of strings, duplicate tensors, and files
/// outside the folder; messages give the location.
Result<CheckpointIndex> parseCheckpointIndex(const char *text, size_t bytes);

/// The tensors of one file, safetensors or GGUF, or of a folder of several
/// files. With an index a file is opened and verified when its first tensor is
/// asked for, so that one layer needs only the files that hold it. Not
/// thread-safe.
class Checkpoint {
public:
  /// Opens a file, all files of a split GGUF model (`-00001-of-00003.gguf`) by
  /// the path of one, or a folder with `model.safetensors.index.json`, else
  /// `model.safetensors`, else any number of `*.safetensors` with disjoint
  /// tensor names. A folder of one GGUF model is that file (findGguf()).
  static Result<Checkpoint> open(const std::string &path);

  /// The only GGUF file of a folder without config.json and safetensors, or the
  /// first of the only split one; empty if there is none. Files of vision
  /// (`mmproj*`) are none. Several are an error.
  static Result<std::string> findGguf(const std::string &folder);

  /// Wraps tensors in memory, which outlives the checkpoint; `name` takes the
  /// place of a path in messages. Names must be distinct.
  static Result<Checkpoint> fromTensors(std::vector<SafetensorsEntry> tensors,
                                        const std::string &name);

  /// The argument of `open`, or the name of tensors in memory.
  const std::string &path() const { return openedPath; }

  /// Whether it is a GGUF file, whose tensors have different names.
  bool isGguf() const;
  /// The metadata of a GGUF file (see Gguf.h); null for other formats.
  const std::map<std::string, std::string> *ggufMetadata() const;

  /// The names of all tensors in alphabetical order, each with its file's
  /// number.
  const std::map<std::string, size_t> &tensors() const { return fileNumbers; }
  bool contains(const std::string &name) const {
    return fileNumbers.count(name) > 0;
  }

  /// The tensor called `name`, in host memory: a device's is copied. Valid as
  /// long as the checkpoint lives.
  Result<const SafetensorsEntry *> find(const std::string &name);
  /// Like find(), but leaves the tensor in the memory of its device.
  Result<const SafetensorsEntry *> locate(const std::string &name);

  /// The path of the file that has, or should have, the tensor, which must be
  /// one of the checkpoint's.
  const std::string &fileOf(const std::string &name) const;

  /// Every file that is read or could be read, including the index.
  std::vector<std::string> files() const;

private:
  struct File {
    std::string path;
    /// Set once the file has been opened.
    std::optional<SafetensorsFile> contents;
  };

  Status openFile(const std::string &path);
  Status openIndex(const std::string &path);
  Status openFolder();
  Status load(size_t file);

  std::string openedPath;
  /// Empty if there is none.
  std::string indexPath;
  std::vector<File> shards;
  std::map<std::string, size_t> fileNumbers;
  /// Copies of tensors that are on a device, and their bytes.
  struct Fetched {
    SafetensorsEntry entry;
    std::unique_ptr<uint8_t[]> bytes;
  };
  std::map<std::string, Fetched> fetched;
};

} // namespace moert

#endif // MOERT_CHECKPOINT_H
