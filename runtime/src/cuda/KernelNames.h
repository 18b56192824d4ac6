//===- KernelNames.h - names of kernels in code files -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_CUDA_KERNELNAMES_H
#define MOERT_SRC_CUDA_KERNELNAMES_H

#include "moert/Device.h"

#include <string>
#include <vector>

namespace moert::cuda {

/// The names of the kernels in a cubin (an ELF file) or in PTX; none if `file`
/// is neither. Names from a cubin may include functions that are not kernels.
std::vector<std::string> findKernelNames(ModuleImage::Kind kind,
                                         const std::string &file);

} // namespace moert::cuda

#endif // MOERT_SRC_CUDA_KERNELNAMES_H
