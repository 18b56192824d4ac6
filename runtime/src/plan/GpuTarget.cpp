//===- GpuTarget.cpp - architectures of NVIDIA GPUs -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/GpuTarget.h"

namespace moert {

std::optional<GpuTarget> GpuTarget::parse(std::string_view name) {
  if (name.substr(0, 3) != "sm_")
    return std::nullopt;
  name.remove_prefix(3);
  GpuTarget target;
  if (!name.empty() && (name.back() == 'a' || name.back() == 'f')) {
    target.suffix = name.back();
    name.remove_suffix(1);
  }
  if (name.size() < 2 || name.size() > 3 || name[0] == '0')
    return std::nullopt;
  int number = 0;
  for (char digit : name) {
    if (digit < '0' || digit > '9')
      return std::nullopt;
    number = number * 10 + (digit - '0');
  }
  target.major = number / 10;
  target.minor = number % 10;
  return target;
}

std::string GpuTarget::str() const {
  std::string text = "sm_" + std::to_string(number());
  if (suffix)
    text += suffix;
  return text;
}

bool GpuTarget::runsOn(const GpuTarget &device) const {
  if (suffix == 'a')
    return number() == device.number();
  if (suffix == 'f')
    return machineCodeRunsOn(device);
  return number() <= device.number();
}

bool GpuTarget::machineCodeRunsOn(const GpuTarget &device) const {
  if (suffix == 'a')
    return number() == device.number();
  return major == device.major && minor <= device.minor;
}

} // namespace moert
