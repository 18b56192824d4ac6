//===- GpuTarget.h - architectures of NVIDIA GPUs ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_GPUTARGET_H
#define MOERT_GPUTARGET_H

#include <optional>
#include <string>
#include <string_view>

namespace moert {

/// "sm_80", "sm_90a", "sm_100f".
struct GpuTarget {
  int major = 0;
  int minor = 0;
  /// 0: runs on this and all later architectures. 'a': on this one only. 'f':
  /// on this one and later ones of the same major number.
  char suffix = 0;

  static std::optional<GpuTarget> parse(std::string_view name);

  std::string str() const;
  int number() const { return major * 10 + minor; }
  /// Whether kernels can wait for the launches before them (griddepcontrol), as
  /// dependent launches must.
  bool hasDependentLaunches() const { return major >= 9; }

  /// Whether PTX for this target runs on a device of this compute capability.
  bool runsOn(const GpuTarget &device) const;
  /// Whether machine code, which is not translated, does.
  bool machineCodeRunsOn(const GpuTarget &device) const;
};

} // namespace moert

#endif // MOERT_GPUTARGET_H
