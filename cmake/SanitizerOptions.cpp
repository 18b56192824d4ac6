//===- SanitizerOptions.cpp - options of the sanitizers ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Linked into each program of the presets `asan` and `tsan`. LLVM's packages
// are built without sanitizers and share inlined classes with our code, so what
// the sanitizer learns of a container or of a bump allocator by one side does
// not hold for the other.
//
//===----------------------------------------------------------------------===//

extern "C" const char *__asan_default_options() {
  return "detect_container_overflow=0:allow_user_poisoning=0:"
         "detect_stack_use_after_return=1:strict_string_checks=1";
}

extern "C" const char *__ubsan_default_options() {
  return "print_stacktrace=1";
}

// The loader frees thread-local memory of a library that was opened, in an
// order that ThreadSanitizer does not see.
extern "C" const char *__tsan_default_suppressions() {
  return "race:ld-linux\n";
}
