//===- DeviceRecord.cpp - build and device of results -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceRecord.h"

#include "../Run/OpenDevice.h"
#include "moec/Compiler/OutputFile.h"
#include "moec/Support/ReadBytes.h"

using namespace moec;
using moert::Result;
using moert::Status;

DeviceRecord::DeviceRecord(std::string commit, const moert::Device &device,
                           std::string target)
    : commit(std::move(commit)), device(device.name()),
      architecture(device.architecture()), driver(getDriverVersion()),
      target(std::move(target)), date(getUtcTime()) {}

Result<llvm::json::Object> DeviceRecord::read(const std::string &path,
                                              llvm::StringRef list) const {
  llvm::Expected<std::string> text = readBytes(path, kMaxRecordBytes);
  if (!text)
    return moert::notFound("--resume: " + path + ": " +
                           llvm::toString(text.takeError()));
  llvm::Expected<llvm::json::Value> document = llvm::json::parse(*text);
  if (!document)
    return moert::invalidArgument("--resume: " + path + ": " +
                                  llvm::toString(document.takeError()));
  llvm::json::Object *object = document->getAsObject();
  if (!object || !object->getArray(list) ||
      object->getString("device") != llvm::StringRef(device) ||
      object->getString("commit") != llvm::StringRef(commit) ||
      object->getString("target") != llvm::StringRef(target))
    return moert::invalidArgument(
        "--resume: " + path + " is not a record of this build on this device");
  return std::move(*object);
}

Status DeviceRecord::write(
    const std::string &path, llvm::StringRef benchmark,
    llvm::function_ref<void(llvm::json::OStream &)> body) const {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::json::OStream json(os);
  json.object([&] {
    json.attribute("benchmark", benchmark);
    json.attribute("commit", commit);
    json.attribute("device", device);
    json.attribute("architecture", architecture);
    json.attribute("driver", driver);
    json.attribute("target", target);
    json.attribute("date", date);
    body(json);
  });
  text += '\n';
  if (mlir::failed(writeOutputFile(path, text)))
    return moert::unavailable("--json: " + path + " cannot be written");
  return Status::ok();
}

void DeviceRecord::writeLine(
    llvm::json::OStream &json,
    llvm::function_ref<void(llvm::json::OStream &)> body) {
  json.rawValue([&](llvm::raw_ostream &line) {
    line << '\n';
    llvm::json::OStream one(line);
    body(one);
  });
}
