//===- ArgumentNames.h - options of commands as arguments of C --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The names that messages give to settings. The compiler names a setting by
// the option of the commands ("--max-tokens=8"). The C API names its fields and
// functions instead ("moejit_source.max_tokens = 8"). Python makes its keywords
// of the latter (python/moec/argument_names.py).
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_JIT_ARGUMENTNAMES_H
#define MOEC_LIB_JIT_ARGUMENTNAMES_H

#include "llvm/ADT/StringRef.h"

#include <string>

namespace moec::capi {

/// The argument that chooses the decoder layer in a call.
enum class LayerArgument {
  /// `moejit_source.layer`.
  Source,
  /// `decoder_layer`, of calls that load weights.
  DecoderLayer,
};

/// Returns a message with the names of the C API. Options that the C API does
/// not have stay as they are.
std::string nameForC(llvm::StringRef message,
                     LayerArgument layer = LayerArgument::Source);

} // namespace moec::capi

#endif // MOEC_LIB_JIT_ARGUMENTNAMES_H
