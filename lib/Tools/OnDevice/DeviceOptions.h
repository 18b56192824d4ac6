//===- DeviceOptions.h - what moe-bench and gpu-test are asked --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_ONDEVICE_DEVICEOPTIONS_H
#define MOEC_LIB_TOOLS_ONDEVICE_DEVICEOPTIONS_H

#include "../ToolOptions.h"

namespace moec {

/// Options of commands that run many things on a device and keep a record.
struct DeviceOptions : private ForeignOptionsRemoved {
  /// Where descriptions of a command differ.
  struct Words {
    llvm::StringLiteral program;
    /// What --device takes, and what it says.
    const char *devices, *device;
    /// What --data, --list, --json and --threads say.
    const char *data, *list, *json, *threads;
    /// What --time-limit says, and the seconds without it; 0 for any number.
    const char *timeLimit;
    double seconds;
  };
  explicit DeviceOptions(const Words &words);

  llvm::cl::OptionCategory category{"Options"};
  llvm::cl::opt<std::string> device, target, data, json;
  llvm::cl::opt<bool> list;
  llvm::cl::opt<double> timeLimit;
  llvm::cl::opt<int> threads;

  /// Prints an error; false, for the caller to return.
  bool complain(const llvm::Twine &message) const;
  /// The folder of data, and a file there.
  std::string getDataFolder() const;
  std::string getDataFile(llvm::StringRef name) const;

protected:
  /// Parses the command line under a text for --help; false, with a message, if
  /// it makes no sense.
  bool parseCommandLine(int argc, char **argv, llvm::StringRef overview);
  /// Whether a file that an option names can be written in the end: a run is
  /// too dear to find out there. True where there is none; else false, with a
  /// message.
  bool canWrite(OutputCheck &check, llvm::StringRef option,
                const std::string &path) const;

private:
  llvm::StringLiteral name;
  std::string program;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_ONDEVICE_DEVICEOPTIONS_H
