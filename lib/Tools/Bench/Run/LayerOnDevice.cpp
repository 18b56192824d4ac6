//===- LayerOnDevice.cpp - a compiled layer with its weights ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerOnDevice.h"

#include "../../OnDevice/RuntimeType.h"
#include "../../Run/PlanRun.h"
#include "../TryStatus.h"
#include "moec/Import/TensorSignature.h"
#include "moert/Package.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;

static constexpr uint64_t kSeed = 1;

/// Whether a config names a kernel that exists only in the other variant of the
/// layer, without or with its router.
static bool isForOther(llvm::StringRef config, bool withRouter) {
  llvm::StringRef kernel =
      config.take_until([](char c) { return c == '@' || c == ':'; });
  bool isOfRouter = kernel == "router_logits" || kernel.starts_with("route_");
  return withRouter ? kernel == "permute" : isOfRouter;
}

void Session::dropOthers(std::vector<std::string> &configs,
                         bool withRouter) const {
  if (hasBothLayers)
    llvm::erase_if(configs, [&](const std::string &config) {
      return isForOther(config, withRouter);
    });
}

std::vector<std::string> Session::getConfigs(const BenchLayer &layer) const {
  std::vector<std::string> configs;
  if (auto found = tuned.find(layer.name); found != tuned.end())
    configs = found->second;
  llvm::append_range(configs, jit.compile.configs);
  dropOthers(configs, /*withRouter=*/false);
  return configs;
}

Result<ReadyLayer>
moec::bench::compileLayer(const Session &session, const BenchLayer &layer,
                          bool withRouter,
                          llvm::ArrayRef<std::string> configs) {
  SourceText text(layer.name + ".json",
                  layer.printSpec(session.maxTokens, withRouter));
  JitOptions options = session.jit;
  if (auto tuned = session.tuned.find(layer.name); tuned != session.tuned.end())
    llvm::append_range(options.compile.configs, tuned->second);
  llvm::append_range(options.compile.configs, configs);
  session.dropOthers(options.compile.configs, withRouter);
  Result<JitLayer> made =
      Jit(std::move(options)).compile(text, {}, session.device);
  if (!made)
    return made.status();
  moert::PackageChoice choice;
  MOEC_TRY_ASSIGN(
      choice, moert::chooseImage(made->package, session.device.architecture(),
                                 session.device.takesMachineCode()));
  moert::PackageProgram &program = made->package.programs[choice.program];
  ReadyLayer compiled;
  compiled.spec = *made->spec;
  for (const TensorInfo &info : getTensorSignature(compiled.spec))
    MOEC_TRY(getRuntimeType(info).status());
  compiled.image = program.images[choice.image].load();
  compiled.plan = std::move(program.plan);
  compiled.seconds = made->report.total;
  compiled.isFromCache = made->report.fromCache;
  return compiled;
}

Result<std::unique_ptr<LayerOnDevice>>
LayerOnDevice::create(Session &session, const BenchLayer &layer,
                      ReadyLayer compiled) {
  std::unique_ptr<LayerOnDevice> made(
      new LayerOnDevice(layer, std::move(compiled.spec)));
  MOEC_TRY(made->allocate(session));
  MOEC_TRY(made->load(session, std::move(compiled)));
  return made;
}

Result<std::unique_ptr<LayerOnDevice>>
LayerOnDevice::createBeside(Session &session, const LayerOnDevice &other,
                            ReadyLayer compiled) {
  if (!other.isFilled)
    return create(session, other.layer, std::move(compiled));
  std::unique_ptr<LayerOnDevice> made(
      new LayerOnDevice(other.layer, std::move(compiled.spec)));
  made->views = other.views;
  made->weights = other.weights;
  made->tables = other.tables;
  made->isFilled = true;
  MOEC_TRY(made->load(session, std::move(compiled)));
  return made;
}

Status LayerOnDevice::load(Session &session, ReadyLayer compiled) {
  executor.reset();
  compileSeconds = compiled.seconds;
  fromCache = compiled.isFromCache;
  MOEC_TRY_ASSIGN(executor,
                  moert::Executor::create(std::move(compiled.plan),
                                          session.device, compiled.image));
  if (!isFilled)
    MOEC_TRY(fill(session));
  for (const auto &[name, view] : views)
    MOEC_TRY(executor->bind(name, view));
  MOEC_TRY_ASSIGN(prepared, executor->prepareWeights());
  // Weights that were overwritten in place are generated again for the next
  // compilation.
  isFilled = prepared.inPlaceBytes == 0;
  return executor->synchronize();
}

/// Chooses values such that all intermediate values are of the order of one.
static RandomTensor getValues(const TensorInfo &info, moert::DType dtype,
                              FindTensor find) {
  RandomStream stream(kSeed, info.name);
  if (auto random = makeQuantized(stream, info.name, find))
    return *random;
  double deviation =
      info.shape.size() < 2
          ? 0.1
          : 1 / std::sqrt(static_cast<double>(info.shape.back()));
  return {stream, dtype, getFactor(deviation)};
}

Status LayerOnDevice::allocate(Session &session) {
  for (const TensorInfo &info : getTensorSignature(spec)) {
    if (info.role != TensorRole::Weight)
      continue;
    moert::TensorView view;
    MOEC_TRY_ASSIGN(view.dtype, getRuntimeType(info));
    view.shape = info.shape;
    size_t bytes = static_cast<size_t>(moert::dtypeBits(view.dtype)) / 8;
    for (int64_t size : info.shape)
      bytes *= static_cast<size_t>(size);
    MOEC_TRY_ASSIGN(buffers.emplace_back(),
                    session.device.allocate(bytes, 256));
    view.data = buffers.back()->data();
    views[info.name] = view;
  }
  auto find = [&](llvm::StringRef name) -> std::optional<TensorForm> {
    auto found = views.find(name.str());
    if (found == views.end())
      return std::nullopt;
    return TensorForm{found->second.dtype, found->second.shape};
  };
  for (const TensorInfo &info : getTensorSignature(spec)) {
    if (info.role != TensorRole::Weight)
      continue;
    if (isColumnOrder(info.name))
      tables[info.name] = makeOrders(RandomStream(kSeed, info.name),
                                     info.shape[0], info.shape[1]);
    else
      weights.insert_or_assign(
          info.name, getValues(info, views.at(info.name).dtype, find));
  }
  return Status::ok();
}

Status LayerOnDevice::fill(Session &session) {
  double begin = getSeconds();
  std::unique_ptr<moert::Stream> stream;
  MOEC_TRY_ASSIGN(stream, session.device.createStream());
  for (const auto &[name, random] : weights) {
    const moert::TensorView &view = views.at(name);
    int64_t count = 1;
    for (int64_t size : view.shape)
      count *= size;
    MOEC_TRY(session.generator.write(*stream, random, 0, count, view.data));
  }
  for (const auto &[name, table] : tables)
    MOEC_TRY(session.device.copyIn(views.at(name).data, table.data(),
                                   table.size() * sizeof(int32_t)));
  MOEC_TRY(session.device.synchronize(*stream));
  fillSeconds = getSeconds() - begin;
  return Status::ok();
}
