//===- CommandLine.h - command lines of the ptx tools -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Parses the command lines of ptx-sim, ptx-mutate and ptx-conform, which link
// no LLVM and so have no llvm/Support/CommandLine.h. Options are spelled
// `--NAME` or `--NAME=VALUE`.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PTXCOMMANDLINE_COMMANDLINE_H
#define MOEC_PTXCOMMANDLINE_COMMANDLINE_H

#include "moert/Status.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace moec::ptx {

/// Parses a number without a sign, decimal or with `0x`. False for any other
/// text, and beyond 64 bits.
bool parseNumber(const std::string &text, uint64_t &number);

class CommandLine {
public:
  /// Takes a value; returns what is accepted in its place, or nothing if it is
  /// right.
  using Take = std::function<std::string(const std::string &value)>;

  /// `failure` is the exit code for errors.
  CommandLine(const char *tool, const char *help, int failure)
      : tool(tool), help(help), failure(failure) {}

  void addFlag(const char *name, bool &isGiven);
  void addText(const char *name, std::string &text);
  /// An option that may be repeated.
  void addTexts(const char *name, std::vector<std::string> &texts);
  template <typename T>
  void addNumber(const char *name, T &number, uint64_t least = 0,
                 uint64_t most = uint64_t(std::numeric_limits<T>::max())) {
    addValue(name, [=, &number](const std::string &value) {
      uint64_t parsed = 0;
      if (!parseNumber(value, parsed) || parsed < least || parsed > most)
        return describeRange(least, most);
      number = T(parsed);
      return std::string();
    });
  }
  /// An option whose value `take` checks; may be repeated.
  void addValue(const char *name, Take take);
  /// The only argument that is no option.
  void addFile(std::string &path) { file = &path; }

  /// Sets what was added, up to the first argument that is wrong.
  moert::Status parse(int argc, const char *const *argv) const;

  /// Prints the help if `--help` is an argument, else parses. Returns the exit
  /// code if the tool is done, after help or an error.
  std::optional<int> run(int argc, const char *const *argv) const;
  /// An error of usage, with a reference to `--help`.
  moert::Status complain(const std::string &what) const;
  /// Prints a failure and returns the exit code.
  int fail(const moert::Status &status) const;

private:
  struct Option {
    std::string name;
    Take take;
    bool *flag = nullptr;
  };

  static std::string describeRange(uint64_t least, uint64_t most);
  const Option *find(const std::string &name) const;
  std::string findNearest(const std::string &name) const;
  moert::Status parseOption(const std::string &word) const;

  const char *tool, *help;
  int failure;
  std::vector<Option> options;
  std::string *file = nullptr;
};

} // namespace moec::ptx

#endif // MOEC_PTXCOMMANDLINE_COMMANDLINE_H
