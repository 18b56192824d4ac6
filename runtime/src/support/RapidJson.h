//===- RapidJson.h - the JSON library ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_RAPIDJSON_H
#define MOERT_SRC_SUPPORT_RAPIDJSON_H

// Version 1.1.0 compares null + n with null while its stack is empty: harmless,
// but the undefined-behaviour sanitizer stops there.
#ifdef __clang__
#pragma clang attribute push(__attribute__((no_sanitize("pointer-overflow"))), \
                             apply_to = function)
#endif

#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#ifdef __clang__
#pragma clang attribute pop
#endif

#endif // MOERT_SRC_SUPPORT_RAPIDJSON_H
