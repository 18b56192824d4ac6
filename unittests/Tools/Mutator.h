//===- Mutator.h - mutates texts --------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_TOOLS_MUTATOR_H
#define MOEC_UNITTESTS_TOOLS_MUTATOR_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace moec::testing {

/// Mutates texts reproducibly: bytes, slices, numbers and words of a
/// dictionary. Readers must not crash on the result; sanitizers check that.
class Mutator {
public:
  Mutator(uint64_t seed, llvm::ArrayRef<llvm::StringRef> words)
      : state(seed), words(words) {}

  std::string mutate(llvm::StringRef text) {
    std::string result = text.str();
    for (uint64_t edits = 1 + pick(3); edits > 0 && !result.empty(); --edits)
      edit(result);
    return result;
  }

private:
  uint64_t pick(uint64_t count) {
    // SplitMix64.
    uint64_t z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (z ^ (z >> 31)) % count;
  }

  void edit(std::string &text) {
    size_t at = pick(text.size());
    size_t length = 1 + pick(16);
    switch (pick(8)) {
    case 0:
      text[at] = char(pick(256));
      return;
    case 1:
      text.erase(at, length);
      return;
    case 2:
      text.insert(pick(text.size()), text.substr(at, length));
      return;
    case 3:
      if (!words.empty())
        text.insert(at, words[pick(words.size())].str());
      return;
    case 4:
      if (pick(4) == 0)
        text.resize(at);
      return;
    default:
      return editNumber(text, at);
    }
  }

  /// Replaces the next number, which reaches deeper code than noise does.
  void editNumber(std::string &text, size_t at) {
    constexpr llvm::StringLiteral numbers[] = {"0",
                                               "1",
                                               "-1",
                                               "2",
                                               "3",
                                               "7",
                                               "64",
                                               "255",
                                               "2147483647",
                                               "2147483648",
                                               "4294967296",
                                               "1e9",
                                               "0.5",
                                               "1048576",
                                               "9223372036854775807",
                                               "-9223372036854775808",
                                               "99999999999999999999999"};
    while (at < text.size() && !llvm::isDigit(text[at]))
      ++at;
    size_t end = at;
    while (end < text.size() && llvm::isDigit(text[end]))
      ++end;
    text.replace(at, end - at, numbers[pick(std::size(numbers))].str());
  }

  uint64_t state;
  llvm::ArrayRef<llvm::StringRef> words;
};

} // namespace moec::testing

#endif // MOEC_UNITTESTS_TOOLS_MUTATOR_H
