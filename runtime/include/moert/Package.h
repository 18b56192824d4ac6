//===- Package.h - a compiled layer as a file -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_PACKAGE_H
#define MOERT_PACKAGE_H

#include "moert/Device.h"
#include "moert/Executor.h"
#include "moert/Plan.h"
#include "moert/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moert {

/// All kernels of a plan, assembled for one architecture.
struct PackageImage {
  /// "sm_80", "sm_90a". Code for the plan's target, assembled for this one.
  std::string target;
  ModuleImage::Kind kind = ModuleImage::Kind::Ptx;
  /// Files, each with one or more of the kernels.
  std::vector<std::vector<uint8_t>> modules;

  /// The image in the form that a device loads.
  ModuleImage load() const;
};

/// The layer with kernels scheduled for one target.
struct PackageProgram {
  Plan plan;
  std::vector<PackageImage> images;
};

/// A compiled layer, a file NAME.moepkg (runtime/schema/package.fbs): one
/// FlatBuffer and its SHA-256. The digest detects damage, not forgery. All
/// programs have the same input and output tensors.
struct Package {
  static constexpr uint32_t kFormatVersion = 11;

  /// The compiler that wrote it.
  std::string producer;
  /// The layer as JSON (docs/use/layers.md), or empty.
  std::string spec;
  /// The `model_type` of the config.json that the layer came from, or empty.
  /// Checkpoints of such models have their own names for the tensors.
  std::string modelType;
  std::vector<PackageProgram> programs;
  /// The digest of all inputs of compilation, by which the compiler's cache
  /// finds the package; empty outside of the cache.
  std::string cacheKey;

  /// Reads and verifies: digest, structure, version, then verifyPackage(). A
  /// package that fails is rejected as a whole.
  static Result<Package> open(const std::string &path);
  static Result<Package> fromMemory(const void *data, size_t size);
};

/// Checks everything about a package that a loader relies on. A failure names
/// the field, such as "programs[0].images[1].target".
Status verifyPackage(const Package &package);

/// The contents of the file.
Result<std::vector<uint8_t>> packPackage(const Package &package);

/// Writes the file whole or not at all.
Status writePackage(const std::string &path, const Package &package);

struct PackageChoice {
  size_t program = 0;
  size_t image = 0;
};

/// The best image for a device of `architecture` ("sm_90"): a cubin for it;
/// else PTX of the highest runnable target without suffix; else runnable PTX
/// with a suffix. Among equals the first, and one with a suffix before one
/// without. Cubins are skipped if the device takes no machine code.
Result<PackageChoice> chooseImage(const Package &package,
                                  const std::string &architecture,
                                  bool takesMachineCode = true);

/// An executor for the image that chooseImage() picks for the device.
Result<std::unique_ptr<Executor>> createExecutor(const Package &package,
                                                 Device &device,
                                                 ExecutorOptions options = {});

} // namespace moert

#endif // MOERT_PACKAGE_H
