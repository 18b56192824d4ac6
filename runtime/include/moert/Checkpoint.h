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
#include <optional>
#include <string>
#include <vector>

namespace moert {

/// The file of each tensor, relative to the folder.
using CheckpointIndex = std::map<std::string, std::string>;

/// Parses the text of a `model.safetensors.index.json`. Fails on what is not
/// JSON, without a `weight_map` of strings, with a tensor twice, and on a file
/// that would lie outside the folder; messages say where.
Result<CheckpointIndex> parseCheckpointIndex(const char *text, size_t bytes);

/// The tensors of one file, safetensors or GGUF, or of a folder that keeps them
/// in several. With an index a file is opened, and verified, when the first of
/// its tensors is asked for: of a model's many files, those that hold one layer
/// are enough. Not to be used by several threads at once.
class Checkpoint {
public:
  /// A file, or a folder with `model.safetensors.index.json`, else
  /// `model.safetensors`, else any number of `*.safetensors` whose tensors have
  /// different names.
  static Result<Checkpoint> open(const std::string &path);

  /// What `open` was given.
  const std::string &path() const { return openedPath; }

  /// Whether it is a GGUF file, whose tensors have names of their own.
  bool isGguf() const;
  /// The metadata of a GGUF file, as Gguf.h says; null for other formats.
  const std::map<std::string, std::string> *ggufMetadata() const;

  /// The names of all tensors, in alphabetical order, each with a number of its
  /// file.
  const std::map<std::string, size_t> &tensors() const { return fileNumbers; }
  bool contains(const std::string &name) const {
    return fileNumbers.count(name) > 0;
  }

  /// The tensor called `name`. Valid as long as the checkpoint lives.
  Result<const SafetensorsEntry *> find(const std::string &name);

  /// The path of the file that has (or should have) the tensor, which is one of
  /// the checkpoint's.
  const std::string &fileOf(const std::string &name) const;

  /// Every file that this reads or could read, the index included.
  std::vector<std::string> files() const;

private:
  struct File {
    std::string path;
    /// Once it has been opened.
    std::optional<SafetensorsFile> contents;
  };

  Status openFile(const std::string &path);
  Status openIndex(const std::string &path);
  Status openFolder();
  Status load(size_t file);

  std::string openedPath;
  /// Empty where there is none.
  std::string indexPath;
  std::vector<File> shards;
  std::map<std::string, size_t> fileNumbers;
};

} // namespace moert

#endif // MOERT_CHECKPOINT_H
