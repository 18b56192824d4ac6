//===- moejit.hpp - the compiler for C++ ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// moejit.h as moert.hpp has moert.h: handles that free themselves, no
// exceptions.
//
//   moejit::capi::Compiler compiler;
//   moert::capi::Device device;
//   moert::capi::Layer layer;
//   compiler.create();
//   moejit::capi::createHost(device);
//   if (moert::capi::Error error = compiler.load("config.json", device, layer))
//     fprintf(stderr, "%s\n", error.message());
//
//===----------------------------------------------------------------------===//

#ifndef MOEJIT_MOEJIT_HPP
#define MOEJIT_MOEJIT_HPP

#include "moejit/moejit.h"
#include "moert/moert.hpp"

namespace moejit::capi {

using moert::capi::Error;

/// The CPU of this process; `threads` 0: one per core.
inline Error createHost(moert::capi::Device &device, int threads = 0) {
  return device.set(
      [&](auto made) { return moejit_device_create_host(threads, made); });
}

/// From descriptions of layers to layers that run.
class Compiler
    : public moert::capi::Handle<moejit_compiler, &moejit_compiler_free> {
public:
  Error create(const moejit_options *options = nullptr) {
    return set(
        [&](auto made) { return moejit_compiler_create(options, made); });
  }
  /// Compiles for the device and loads.
  Error load(const moejit_source &source, const moert::capi::Device &device,
             moert::capi::Layer &layer, moejit_report *report = nullptr) {
    return layer.set([&](auto made) {
      return moejit_load_layer(get(), &source, device.get(), nullptr, made,
                               report);
    });
  }
  /// Compiles and loads the layer of a file or folder. `maxTokens`: the most
  /// tokens of a call; 0 for the description's own limit.
  Error load(const char *path, const moert::capi::Device &device,
             moert::capi::Layer &layer, int64_t maxTokens = 0) {
    moejit_source source = {};
    source.size = sizeof(source);
    source.path = path;
    source.max_tokens = maxTokens;
    return load(source, device, layer);
  }
};

} // namespace moejit::capi

#endif // MOEJIT_MOEJIT_HPP
