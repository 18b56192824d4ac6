//===- DeviceOptions.h - options of moe-bench and gpu-test ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_ONDEVICE_DEVICEOPTIONS_H
#define MOEC_LIB_TOOLS_ONDEVICE_DEVICEOPTIONS_H

#include "../ToolOptions.h"

namespace moec {

/// Options of commands that run many cases on a device and keep a record.
struct DeviceOptions : private ForeignOptionsRemoved {
  /// Texts of --help that differ between commands.
  struct Words {
    llvm::StringLiteral program;
    /// Value name and description of --device.
    const char *devices, *device;
    /// Descriptions of --data, --list, --json and --threads.
    const char *data, *list, *json, *threads;
    /// Description of --time-limit, and its default in seconds; 0 for no limit.
    const char *timeLimit;
    double seconds;
  };
  explicit DeviceOptions(const Words &words);

  llvm::cl::OptionCategory category{"Options"};
  llvm::cl::opt<std::string> device, target, data, json;
  llvm::cl::opt<bool> list;
  llvm::cl::opt<double> timeLimit;
  llvm::cl::opt<int> threads;

  /// Prints an error; returns false, so that the caller can return the result.
  bool complain(const llvm::Twine &message) const;
  /// The data folder, and a file in it.
  std::string getDataFolder() const;
  std::string getDataFile(llvm::StringRef name) const;

protected:
  /// Parses the command line; `overview` heads --help. Returns false, with a
  /// message, if the command line makes no sense.
  bool parseCommandLine(int argc, char **argv, llvm::StringRef overview);
  /// Checks before the run whether the file that an option names can be
  /// written. True for an empty path; else false, with a message.
  bool canWrite(OutputCheck &check, llvm::StringRef option,
                const std::string &path) const;

private:
  llvm::StringLiteral name;
  std::string program;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_ONDEVICE_DEVICEOPTIONS_H
