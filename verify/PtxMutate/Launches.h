//===- Launches.h - recorded launches of a layer ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXMUTATE_LAUNCHES_H
#define MOEC_VERIFY_PTXMUTATE_LAUNCHES_H

#include "PtxSim/Program/PtxText.h"
#include "moec/PtxSim/Simulator.h"
#include "moert/Package.h"

#include <map>
#include <memory>

namespace moec::ptx::mutate {

/// One allocation before a launch.
struct Allocation {
  uint64_t address = 0;
  size_t bytes = 0, alignment = 1;
  /// Whether a parameter points to it. For other allocations only the address
  /// range is kept.
  bool isUsed = false;
  std::vector<uint8_t> data;
  /// One flag per byte.
  std::vector<uint8_t> initialized;
};

/// One launch of a kernel, with all the memory it reads.
struct Launch {
  std::string kernel, inputs;
  moert::LaunchDims dims;
  /// Extra CTAs without work that run beside the launch's own.
  int64_t moreCtas = 0;
  std::vector<uint8_t> params;
  std::vector<Allocation> memory;
};

/// The kernels of a layer, each as a module of its own, and their launches for
/// some inputs.
struct Recording {
  std::map<std::string, std::shared_ptr<const RawModule>> modules;
  std::vector<Launch> launches;
};

struct Grids {
  /// Most CTAs of a kernel that queries its grid size.
  int64_t most = 0;
  /// Extra CTAs per kernel when its mutants run.
  int64_t more = 0;
};

/// Runs a package's first GPU program on inputs from a safetensors file, and
/// records its launches.
moert::Status record(const moert::Package &package, const std::string &inputs,
                     int64_t tokens, const Grids &grids, Recording &recording);

} // namespace moec::ptx::mutate

#endif // MOEC_VERIFY_PTXMUTATE_LAUNCHES_H
