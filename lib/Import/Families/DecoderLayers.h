//===- DecoderLayers.h - decoder layers with experts ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_FAMILIES_DECODERLAYERS_H
#define MOEC_LIB_IMPORT_FAMILIES_DECODERLAYERS_H

#include "KeyReader.h"

#include <functional>
#include <string>
#include <vector>

namespace moec {

/// The layer rules of a family, applied to one config.json.
class DecoderLayers {
public:
  /// Reads the keys of the rules and reports errors.
  DecoderLayers(const Family &family, KeyReader &reader);

  /// Takes the layers with experts from elsewhere, not from the rules.
  void replace(std::vector<int64_t> layersWithExperts);

  /// None if the file does not state the number of layers.
  std::optional<int64_t> getCount() const { return count; }
  bool hasExperts(int64_t index) const;
  /// The number of a layer among those of multi-token prediction, which follow
  /// the decoder's; none for a decoder layer.
  std::optional<int64_t> getMtpIndex(int64_t index) const;
  /// The layer's word in the list that decides; empty without such a list.
  llvm::StringRef getWord(int64_t index) const;

  /// The layer to import: the requested one, else the first with experts. None
  /// after an error.
  std::optional<int64_t> choose(std::optional<int64_t> wanted,
                                llvm::StringRef fileName,
                                ImportContext &context) const;

private:
  using Rule = std::function<bool(int64_t)>;

  void addRule(const LayerRule &rule, KeyReader &reader);
  void addNumber(const LayerRule &rule, KeyReader &reader);
  /// Applies a rule that lists layers. Returns whether the file has its key.
  bool addNames(const LayerRule &rule, KeyReader &reader);
  /// A list with an element per layer decides alone. Its length is the number
  /// of layers if the file does not state it otherwise. A shorter list than
  /// that is an error.
  void decide(std::vector<bool> flags, const KeyReader::Found &found);

  std::string listLayers() const;
  /// "by 'mlp_only_layers' and 'decoder_sparse_step'": the keys of the rules
  /// that the file has.
  std::string listKeys() const;

  std::optional<int64_t> count;
  int64_t numMtp = 0;
  std::vector<Rule> rules;
  std::optional<Rule> decisive;
  std::vector<std::string> words;
  /// Names of the keys of rules that the file has, as messages show them.
  std::vector<std::string> keys;
};

} // namespace moec

#endif // MOEC_LIB_IMPORT_FAMILIES_DECODERLAYERS_H
