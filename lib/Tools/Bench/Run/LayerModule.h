//===- LayerModule.h - a bench layer as kernels in IR -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_RUN_LAYERMODULE_H
#define MOEC_LIB_TOOLS_BENCH_RUN_LAYERMODULE_H

#include "LayerOnDevice.h"
#include "moec/Analysis/Cost.h"

namespace moec::bench {

/// A phase that the schedule's model knows the time of.
struct ModelledPhase {
  mlir::Operation *phase;
  /// What its kernel is for.
  tile::LoadAttr load;
  const ModelsTime *schedule;
  /// How --config names it: by the kernel, without its range, or, of two
  /// products in one kernel, by what they make.
  std::string name;

  tile::ConfigAttr getConfig() const {
    return phase->getAttrOfType<tile::ConfigAttr>("config");
  }
};

/// A layer without its router, at level tile, with what a session compiles it
/// by.
class LayerModule {
public:
  /// Has the configs of the session, or `configs` alone, for as many tokens as
  /// the session has; products are kernels of their own with `productsApart`.
  static moert::Result<std::unique_ptr<LayerModule>>
  lower(const Session &session, const BenchLayer &layer,
        const std::vector<std::string> *configs, bool productsApart);

  const Target &getTarget() const { return target; }
  /// Those of the launches of a run with so many tokens.
  std::vector<ModelledPhase> getPhases(int64_t tokens);

private:
  LayerModule();

  Target target;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_RUN_LAYERMODULE_H
