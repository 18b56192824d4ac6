//===- CommandLine.cpp - command lines of the ptx tools ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxCommandLine/CommandLine.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

using namespace moec::ptx;
using moert::Status;

bool moec::ptx::parseNumber(const std::string &text, uint64_t &number) {
  // strtoull accepts a sign and spaces.
  if (text.empty() || !std::isdigit(static_cast<unsigned char>(text[0])))
    return false;
  char *end = nullptr;
  errno = 0;
  number = std::strtoull(text.c_str(), &end, 0);
  return *end == '\0' && errno == 0;
}

/// The number of insertions, deletions and substitutions of characters between
/// two words.
static size_t countEdits(const std::string &from, const std::string &to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < to.size(); ++j) {
      size_t replaced = diagonal + (from[i] != to[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

//===----------------------------------------------------------------------===//
// Declarations
//===----------------------------------------------------------------------===//

void CommandLine::addFlag(const char *name, bool &isGiven) {
  options.push_back({name, Take(), &isGiven});
}

void CommandLine::addText(const char *name, std::string &text) {
  addValue(name, [&text](const std::string &value) {
    text = value;
    return std::string();
  });
}

void CommandLine::addTexts(const char *name, std::vector<std::string> &texts) {
  addValue(name, [&texts](const std::string &value) {
    texts.push_back(value);
    return std::string();
  });
}

void CommandLine::addValue(const char *name, Take take) {
  options.push_back({name, std::move(take)});
}

std::string CommandLine::describeRange(uint64_t least, uint64_t most) {
  // Only a type has so high a limit, which no user means to reach.
  bool isOpen = most >= uint64_t(std::numeric_limits<int32_t>::max());
  return "a number from " + std::to_string(least) +
         (isOpen ? " on" : " to " + std::to_string(most));
}

//===----------------------------------------------------------------------===//
// Parsing
//===----------------------------------------------------------------------===//

Status CommandLine::complain(const std::string &what) const {
  return moert::invalidArgument(what + "; see " + tool + " --help");
}

const CommandLine::Option *CommandLine::find(const std::string &name) const {
  for (const Option &option : options)
    if (option.name == name)
      return &option;
  return nullptr;
}

/// Empty if no option is spelled alike.
std::string CommandLine::findNearest(const std::string &name) const {
  // A swap of two characters counts as two edits.
  size_t fewest = std::max<size_t>(name.size() / 2, 1) + 1;
  std::string nearest;
  for (const Option &option : options)
    if (size_t edits = countEdits(name, option.name); edits < fewest) {
      fewest = edits;
      nearest = option.name;
    }
  return nearest;
}

Status CommandLine::parseOption(const std::string &word) const {
  size_t equals = word.find('=');
  std::string name = word.substr(2, equals - 2);
  const Option *option = find(name);
  if (!option) {
    std::string nearest = findNearest(name);
    return complain("--" + name + " is not an option" +
                    (nearest.empty() ? "" : "; the nearest is --" + nearest));
  }
  bool hasValue = equals != std::string::npos;
  if (option->flag) {
    *option->flag = true;
    return hasValue ? complain(word + ": --" + name + " takes no value")
                    : Status::ok();
  }
  if (!hasValue)
    return complain(word + " needs a value: write " + word + "=VALUE");
  std::string accepted = option->take(word.substr(equals + 1));
  return accepted.empty() ? Status::ok()
                          : complain(word + ": " + accepted + " is accepted");
}

Status CommandLine::parse(int argc, const char *const *argv) const {
  bool hasFile = false;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word.compare(0, 2, "--") == 0) {
      if (Status status = parseOption(word); !status)
        return status;
    } else if (file && !hasFile) {
      *file = word;
      hasFile = true;
    } else {
      return complain("'" + word +
                      (hasFile ? "' is a second file; one is accepted"
                               : "' is not an option; options begin with --"));
    }
  }
  return Status::ok();
}

std::optional<int> CommandLine::run(int argc, const char *const *argv) const {
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--help") == 0) {
      std::fputs(help, stdout);
      return 0;
    }
  Status status = parse(argc, argv);
  return status ? std::nullopt : std::optional(fail(status));
}

int CommandLine::fail(const Status &status) const {
  std::fprintf(stderr, "%s: error: %s\n", tool, status.message().c_str());
  return failure;
}
