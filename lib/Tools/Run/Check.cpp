//===- Check.cpp - comparison with the reference ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Check.h"

#include "../Progress.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"

#include <cstdlib>

using namespace moec;
using moert::Result;
using moert::Status;

Status moec::writeResult(const std::string &path, const RunResult &result) {
  std::vector<moert::SafetensorsTensor> entries = {result.output.getEntry()};
  for (const HostTensor &tensor : result.details)
    entries.push_back(tensor.getEntry());
  return moert::writeSafetensors(path, entries);
}

ReferenceCheck::~ReferenceCheck() {
  for (const std::string &path : {inputs, specFile})
    if (!path.empty())
      (void)llvm::sys::fs::remove(path);
}

Result<std::string> ReferenceCheck::makeTemporary(llvm::StringRef stem,
                                                  llvm::StringRef suffix) {
  llvm::SmallString<128> path;
  if (std::error_code error =
          llvm::sys::fs::createTemporaryFile("moec-" + stem, suffix, path))
    return moert::unavailable("cannot make a temporary file for the check: " +
                              error.message());
  return path.str().str();
}

Status ReferenceCheck::setSpec(const std::string &spec) {
  if (spec.empty())
    return moert::invalidArgument("--check: the package was made from IR and "
                                  "has no spec; give --spec=FILE.json");
  Result<std::string> path = makeTemporary("spec", "json");
  if (!path)
    return path.status();
  specFile = *path;
  std::error_code error;
  llvm::raw_fd_ostream os(specFile, error);
  os << spec;
  os.close();
  if (!error)
    error = os.error();
  os.clear_error();
  return error ? moert::unavailable(specFile +
                                    ": cannot be written: " + error.message())
               : Status::ok();
}

Status ReferenceCheck::setInputs(llvm::ArrayRef<const HostTensor *> tensors) {
  if (inputs.empty()) {
    Result<std::string> path = makeTemporary("inputs", "safetensors");
    if (!path)
      return path.status();
    inputs = *path;
  }
  std::vector<moert::SafetensorsTensor> entries;
  for (const HostTensor *tensor : tensors)
    if (tensor->role != moert::TensorRole::Output)
      entries.push_back(tensor->getEntry());
  return moert::writeSafetensors(inputs, entries);
}

/// The folder that holds `python/moec/reference`, if this program is in a
/// checkout's build folder or in a bundle.
static std::string findRoot() {
  static int anchor;
  llvm::SmallString<256> root(
      llvm::sys::fs::getMainExecutable(nullptr, &anchor));
  // From the program's own folder up to that of a checkout at most.
  constexpr int maxLevels = 4;
  for (int level = 0; level < maxLevels && !root.empty(); ++level) {
    llvm::sys::path::remove_filename(root);
    llvm::SmallString<256> reference(root);
    llvm::sys::path::append(reference, "python", "moec", "reference");
    if (llvm::sys::fs::is_directory(reference))
      return root.str().str();
  }
  return {};
}

static void addToPythonPath(const std::string &folder) {
  std::string path = folder;
  if (auto before = llvm::sys::Process::GetEnv("PYTHONPATH"))
    path += ":" + *before;
  ::setenv("PYTHONPATH", path.c_str(), /*overwrite=*/1);
}

Status ReferenceCheck::findReference() {
  constexpr llvm::StringLiteral remedy =
      "; run scripts/setup to make the environment (.venv), or set MOEC_PYTHON "
      "to an interpreter with the packages of python/requirements.txt, and "
      "PYTHONPATH to the folder python";
  std::string root = findRoot();
  if (!root.empty())
    addToPythonPath(root + "/python");
  std::string own = root + "/.venv/bin/python";
  std::string name;
  if (auto given = llvm::sys::Process::GetEnv("MOEC_PYTHON"))
    name = *given;
  else
    name = !root.empty() && llvm::sys::fs::can_execute(own) ? own : "python3";
  llvm::ErrorOr<std::string> found = llvm::sys::findProgramByName(name);
  if (!found)
    return moert::unavailable("the check needs Python, and '" + name +
                              "' is not a program" + remedy.str());
  python = *found;
  std::optional<llvm::StringRef> silent[] = {
      llvm::StringRef(), llvm::StringRef(), llvm::StringRef()};
  if (llvm::sys::ExecuteAndWait(python, {python, "-c", "import moec.reference"},
                                std::nullopt, silent) != 0)
    return moert::unavailable("the check needs the reference, and '" + python +
                              "' cannot import moec.reference" + remedy.str());
  return Status::ok();
}

bool ReferenceCheck::compare(const RunResult &result) {
  auto complain = [](const Status &status) {
    llvm::errs() << "moe-run: error: " << status.message() << "\n";
    return false;
  };
  Result<std::string> outputs = makeTemporary("outputs", "safetensors");
  if (!outputs)
    return complain(outputs.status());
  Status written = writeResult(*outputs, result);
  std::vector<std::string> args = {
      python,      "-m",     "moec.reference", "check",
      "--spec",    specFile, "--inputs",       inputs,
      "--outputs", *outputs, "--first-token",  std::to_string(firstToken)};
  llvm::SmallVector<llvm::StringRef> refs(args.begin(), args.end());
  std::string error;
  int exitCode = 1;
  if (written) {
    llvm::outs().flush();
    Progress progress("moe-run", "the float64 reference computes");
    exitCode =
        llvm::sys::ExecuteAndWait(python, refs, std::nullopt, {}, 0, 0, &error);
  }
  (void)llvm::sys::fs::remove(*outputs);
  if (!written)
    return complain(written);
  if (!error.empty() || exitCode < 0)
    return complain(
        moert::unavailable("the reference could not run: " + error));
  if (exitCode > 1)
    return complain(
        moert::unavailable("the reference could not check this layer"));
  return exitCode == 0;
}
