//===- CommandLine.cpp - command lines of all commands ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

/// True if long options have two dashes, as documented. Only then LLVM does not
/// look for groups of letters in them: it would take an unknown
/// `--hidden-states=FILE` for `-h`, print the help and succeed.
static bool useTwoDashes(ArrayRef<char *> words) {
  return none_of(words.drop_front(), [](StringRef word) {
    return word.size() > 2 && word.starts_with("-") && !word.starts_with("--");
  });
}

/// The name of the first option with the value "", as in `--inputs=` and
/// `--inputs ""`; empty if there is none.
static StringRef findEmpty(ArrayRef<char *> words) {
  for (size_t i = 1; i < words.size(); ++i) {
    StringRef word = words[i];
    if (word == "--")
      return {};
    StringRef name = word.ltrim('-');
    // Short options, such as -o, have messages of their own.
    if (name.size() < 2 || name.size() == word.size())
      continue;
    if (name.consume_back("="))
      return name;
    const cl::Option *option = cl::getRegisteredOptions().lookup(name);
    if (option && option->getValueExpectedFlag() == cl::ValueRequired &&
        i + 1 < words.size() && StringRef(words[++i]).empty())
      return name;
  }
  return {};
}

bool moec::parseCommandLine(int argc, char **argv, StringRef tool,
                            StringRef overview) {
  ArrayRef words(argv, size_t(argc));
  // With an error stream given, parsing errors are returned; by default LLVM
  // would end the process.
  if (!cl::ParseCommandLineOptions(argc, argv, overview, &errs(),
                                   /*VFS=*/nullptr, /*EnvVar=*/nullptr,
                                   useTwoDashes(words)))
    return false;
  StringRef empty = findEmpty(words);
  if (empty.empty())
    return true;
  errs() << tool << ": error: --" << empty
         << " has an empty value; give one, or leave the option out\n";
  return false;
}
