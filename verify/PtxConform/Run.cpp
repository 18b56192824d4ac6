//===- Run.cpp - runs forms on a device -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxConform/Run.h"

namespace moec::conform {

using namespace moert;

static Result<TensorMap> encodeMap(Device &device, const TensorMapSpec &spec,
                                   void *data) {
  TensorMapRecipe recipe;
  recipe.data = data;
  recipe.dtype = spec.dtype;
  recipe.shape = spec.shape;
  recipe.strideBytes = spec.strideBytes;
  recipe.box = spec.box;
  recipe.swizzleBytes = spec.swizzleBytes;
  return device.encodeTensorMap(recipe);
}

static Result<Outcome> launch(Device &device, const Form &form, Kernel &kernel,
                              uint64_t seed) {
  Outcome outcome;
  outcome.before = form.fill(seed);
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<uint64_t> slots;
  for (const Bytes &bytes : outcome.before) {
    Result<std::unique_ptr<Buffer>> buffer =
        device.allocate(bytes.size(), /*alignment=*/256);
    if (!buffer)
      return buffer.status();
    buffers.push_back(std::move(*buffer));
    void *data = buffers.back()->data();
    slots.push_back(reinterpret_cast<uintptr_t>(data));
    if (Status status = device.copyIn(data, bytes.data(), bytes.size());
        !status)
      return status;
  }
  std::vector<TensorMap> maps;
  for (const TensorMapSpec &spec : form.maps) {
    Result<TensorMap> map =
        encodeMap(device, spec, buffers[spec.buffer]->data());
    if (!map)
      return map.status();
    maps.push_back(*map);
  }
  Result<std::unique_ptr<Stream>> stream = device.createStream();
  if (!stream)
    return stream.status();
  LaunchDims dims = {form.grid, form.block, form.shared};
  LaunchArgs args = {slots.data(), slots.size(), maps.data(), maps.size()};
  Status status = device.launch(**stream, kernel, dims, args);
  if (status)
    status = device.synchronize(**stream);
  outcome.after.resize(buffers.size());
  for (size_t i = 0; i < buffers.size() && status; ++i) {
    if (!form.buffers[i].isOutput)
      continue;
    outcome.after[i].resize(form.buffers[i].bytes);
    status = device.copyOut(outcome.after[i].data(), buffers[i]->data(),
                            form.buffers[i].bytes);
  }
  if (!status)
    return status;
  return outcome;
}

static Result<std::vector<Outcome>>
launchAll(Device &device, const Form &form, const std::vector<uint64_t> &seeds,
          const Bytes &cubin) {
  ModuleImage image;
  image.kind =
      cubin.empty() ? ModuleImage::Kind::Ptx : ModuleImage::Kind::Cubin;
  image.modules.push_back(cubin);
  if (cubin.empty())
    image.modules.back().assign(form.ptx.begin(), form.ptx.end());
  Result<std::unique_ptr<Module>> module = device.loadModule(image);
  if (!module)
    return module.status();
  Result<Kernel *> kernel = (*module)->kernel("conform");
  if (!kernel)
    return kernel.status();
  std::vector<Outcome> outcomes;
  for (uint64_t seed : seeds) {
    Result<Outcome> outcome = launch(device, form, **kernel, seed);
    if (!outcome)
      return outcome.status();
    outcomes.push_back(std::move(*outcome));
  }
  return outcomes;
}

Result<std::vector<Outcome>> runForm(Device &device, const Form &form,
                                     const std::vector<uint64_t> &seeds,
                                     const Bytes &cubin) {
  Result<std::vector<Outcome>> outcomes = launchAll(device, form, seeds, cubin);
  if (!outcomes)
    return outcomes.status().withContext(form.name);
  return outcomes;
}

} // namespace moec::conform
