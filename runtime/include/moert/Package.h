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
  /// "sm_80", "sm_90a". Code of the plan's target, assembled for this one.
  std::string target;
  ModuleImage::Kind kind = ModuleImage::Kind::Ptx;
  /// Files, each with one or more of the kernels.
  std::vector<std::vector<uint8_t>> modules;

  /// What a device loads.
  ModuleImage load() const;
};

/// The layer with kernels that were scheduled for one target.
struct PackageProgram {
  Plan plan;
  std::vector<PackageImage> images;
};

/// A compiled layer, a file NAME.moepkg (runtime/schema/package.fbs): one
/// FlatBuffer and its SHA-256. The digest finds damage; it does not tell who
/// wrote the file. All programs take and give the same tensors.
struct Package {
  static constexpr uint32_t kFormatVersion = 10;

  /// Which compiler wrote it.
  std::string producer;
  /// The layer as JSON (docs/layers.md), or empty.
  std::string spec;
  /// The `model_type` of the config.json that the layer came from, or empty:
  /// checkpoints of such models have names of their own for its tensors.
  std::string modelType;
  std::vector<PackageProgram> programs;
  /// The digest of everything that the package was made from, by which the
  /// compiler's cache finds it; empty outside of the cache.
  std::string cacheKey;

  /// Reads and verifies: digest, structure, version, then verifyPackage().
  /// Nothing of a package that fails is used.
  static Result<Package> open(const std::string &path);
  static Result<Package> fromMemory(const void *data, size_t size);
};

/// Checks everything about a package that a loader relies on. A failure names
/// the field, as in "programs[0].images[1].target".
Status verifyPackage(const Package &package);

/// The contents of the file.
Result<std::vector<uint8_t>> packPackage(const Package &package);

/// Writes the file whole or not at all.
Status writePackage(const std::string &path, const Package &package);

struct PackageChoice {
  size_t program = 0;
  size_t image = 0;
};

/// What a device of `architecture` ("sm_90") runs: a cubin for it; else PTX of
/// the highest target without suffix that it runs; else PTX with a suffix that
/// it runs. Of equals the first, and a suffix goes before none. Cubins are
/// passed over where the device takes no machine code.
Result<PackageChoice> chooseImage(const Package &package,
                                  const std::string &architecture,
                                  bool takesMachineCode = true);

/// An executor for what chooseImage() answers for the device.
Result<std::unique_ptr<Executor>> createExecutor(const Package &package,
                                                 Device &device,
                                                 ExecutorOptions options = {});

} // namespace moert

#endif // MOERT_PACKAGE_H
