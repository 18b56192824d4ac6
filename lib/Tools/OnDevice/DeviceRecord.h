//===- DeviceRecord.h - build and device of results -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_ONDEVICE_DEVICERECORD_H
#define MOEC_LIB_TOOLS_ONDEVICE_DEVICERECORD_H

#include "moert/Device.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/JSON.h"

namespace moec {

/// The head of a result file: the build, the device and the time of a
/// measurement.
class DeviceRecord {
public:
  DeviceRecord(std::string commit, const moert::Device &device,
               std::string target);

  const std::string &getCommit() const { return commit; }

protected:
  /// Reads the record in a file that --resume continues; it must have `list`.
  /// Fails if the record is of another build, device or target.
  moert::Result<llvm::json::Object> read(const std::string &path,
                                         llvm::StringRef list) const;
  /// Writes a file for --json atomically: the head, with `benchmark` as the
  /// name of what was run, then the output of `body`.
  moert::Status
  write(const std::string &path, llvm::StringRef benchmark,
        llvm::function_ref<void(llvm::json::OStream &)> body) const;
  /// Writes an element of an array on its own line.
  static void writeLine(llvm::json::OStream &json,
                        llvm::function_ref<void(llvm::json::OStream &)> body);

  std::string commit, device, architecture, driver, target, date;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_ONDEVICE_DEVICERECORD_H
