//===- Launches.h - launches of a layer, to be run again --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_MUTATE_LAUNCHES_H
#define MOEC_LIB_PTX_MUTATE_LAUNCHES_H

#include "../Sim/Program/PtxText.h"
#include "moec/Ptx/Sim/Simulator.h"
#include "moert/Package.h"

#include <map>
#include <memory>

namespace moec::ptx::mutate {

/// Memory as a launch finds it.
struct Allocation {
  uint64_t address = 0;
  size_t bytes = 0, alignment = 1;
  /// Whether the launch knows it. Of others only the place is kept.
  bool isUsed = false;
  std::vector<uint8_t> data;
  /// A flag per byte.
  std::vector<uint8_t> initialized;
};

/// One launch of a kernel, with all that it reads.
struct Launch {
  std::string kernel, inputs;
  moert::LaunchDims dims;
  /// CTAs without work that run beside those.
  int64_t moreCtas = 0;
  std::vector<uint8_t> params;
  std::vector<Allocation> memory;
};

/// The kernels of a layer, each parsed as a module of its own, and their
/// launches for some inputs.
struct Recording {
  std::map<std::string, std::shared_ptr<const RawModule>> modules;
  std::vector<Launch> launches;
};

struct Grids {
  /// The most CTAs of a kernel that asks for the size of its grid.
  int64_t most = 0;
  /// How many more of each kernel run when its mutants do.
  int64_t more = 0;
};

/// Runs the first program of a package that is for a GPU, on inputs from a file
/// of safetensors.
moert::Status record(const moert::Package &package, const std::string &inputs,
                     int64_t tokens, const Grids &grids, Recording &recording);

} // namespace moec::ptx::mutate

#endif // MOEC_LIB_PTX_MUTATE_LAUNCHES_H
