//===- DeviceRecord.h - where results come from -----------------*- C++ -*-===//
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

/// The head of a file of results: which build measured on which device, when.
class DeviceRecord {
public:
  DeviceRecord(std::string commit, const moert::Device &device,
               std::string target);

  const std::string &getCommit() const { return commit; }

protected:
  /// The record in a file that --resume goes on with, which has `list`; a
  /// failure if it is of another build, device or target.
  moert::Result<llvm::json::Object> read(const std::string &path,
                                         llvm::StringRef list) const;
  /// Writes a file for --json, whole or not at all: the head, with `benchmark`
  /// as what was run, then what `body` adds to it.
  moert::Status
  write(const std::string &path, llvm::StringRef benchmark,
        llvm::function_ref<void(llvm::json::OStream &)> body) const;
  /// An element of an array, on a line of its own.
  static void writeLine(llvm::json::OStream &json,
                        llvm::function_ref<void(llvm::json::OStream &)> body);

  std::string commit, device, architecture, driver, target, date;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_ONDEVICE_DEVICERECORD_H
