//===- TensorStream.h - weights that come one by one ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fills a layer with tensors that arrive in any order, under the names of a
// checkpoint. A tensor of an expert goes to its place at once. One whose place
// or values depend on others (column orders, nested scales, matrices of several
// schemes) is kept until these are there, and small ones outside the experts
// until the end, when the names of all are checked as those of a file.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_TENSORSTREAM_H
#define MOEC_LIB_TOOLS_RUN_TENSORSTREAM_H

#include "LoadTensors.h"
#include "moec/Checkpoint/PartIndex.h"

#include <map>
#include <set>

namespace moec {

/// The prefix of the names of each tensor of the layer in a checkpoint.
using PrefixMap = std::map<std::string, std::string>;
moert::Result<PrefixMap> findPrefixes(const moert::Checkpoint &checkpoint,
                                      const LayerRequest &request);

class TensorStream {
public:
  /// All arguments outlive the stream. `source` stands for a path in messages.
  TensorStream(std::vector<HostTensor> &tensors, const LayerRequest &request,
               TensorMemory &memory, std::string source)
      : tensors(tensors), request(request), memory(memory),
        source(std::move(source)), index(request) {}

  /// Takes a tensor. Its memory may be reused when the call returns. A failure
  /// leaves the stream as it was.
  moert::Status add(const moert::SafetensorsEntry &entry);
  /// Whether all elements of all weights have come, so that finish() should
  /// succeed.
  bool isFull() const;
  /// Checks that all tensors have come, and places those that were kept.
  /// May be called again after a failure, with more tensors.
  moert::Status finish(PrefixMap &prefixes);

  /// Bytes of tensors that are kept.
  size_t getKeptBytes() const;

private:
  /// A tensor that was given.
  struct Given {
    /// Describes the tensor; `data` is null unless it is kept.
    moert::SafetensorsEntry entry;
    std::vector<uint8_t> bytes;
  };
  /// Where a tensor was placed: the parts of the layer's tensors.
  struct Placed {
    std::string tensor, name;
    int64_t slot = 0;
    bool operator<(const Placed &other) const {
      return std::tie(tensor, name, slot) <
             std::tie(other.tensor, other.name, other.slot);
    }
  };

  bool isPlacedAtOnce(llvm::ArrayRef<PartPlace> places) const;
  moert::Status place(llvm::ArrayRef<PartPlace> places,
                      std::vector<moert::SafetensorsEntry> entries);
  moert::Status keep(const moert::SafetensorsEntry &entry);
  moert::Status placeGroups(llvm::ArrayRef<PartPlace> places);
  moert::Status placeGroup(const PartPlace &place);
  moert::Status checkPrefix(llvm::ArrayRef<PartPlace> places);
  PartGroup getGroup(const PartPlace &place) const;
  void release();

  std::vector<HostTensor> &tensors;
  const LayerRequest &request;
  TensorMemory &memory;
  const std::string source;
  PartIndex index;
  /// All tensors of the layer or of no layer, by name.
  std::map<std::string, Given> given;
  std::map<Placed, const CheckpointPart *> placed;
  /// Rows that have come, by the layer's tensor.
  std::map<std::string, int64_t> elements;
  /// The prefix of the experts' names, once known.
  std::optional<std::string> prefix;
};

/// Loads the given tensors and leaves all other values of the weights as they
/// are. Names have the prefixes that the weights were loaded with; tensors of
/// other modules are ignored. Tensors that depend on each other must come
/// together.
moert::Status loadSome(std::vector<HostTensor> &tensors,
                       moert::Checkpoint &checkpoint,
                       const LayerRequest &request, const PrefixMap &prefixes,
                       TensorMemory &memory);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_TENSORSTREAM_H
