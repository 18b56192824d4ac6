//===- LayerModule.h - a bench layer at level tile --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_RUN_LAYERMODULE_H
#define MOEC_LIB_TOOLS_BENCH_RUN_LAYERMODULE_H

#include "LayerOnDevice.h"
#include "moec/Schedules/Cost.h"

namespace moec::bench {

/// A phase whose schedule has a cost model.
struct ModelledPhase {
  mlir::Operation *phase;
  tile::LoadAttr load;
  const ModelsTime *schedule;
  /// The name that --config uses: the kernel's without its range, or for two
  /// gemms in one kernel the name of the phase's result.
  std::string name;

  tile::ConfigAttr getConfig() const {
    return phase->getAttrOfType<tile::ConfigAttr>("config");
  }
};

/// A layer without its router at level tile, and the session's compilation
/// state for it.
class LayerModule {
public:
  /// Lowers the layer with the session's configs, or only `configs` if given,
  /// for the session's token count. With `productsApart` gemms are never
  /// joined.
  static moert::Result<std::unique_ptr<LayerModule>>
  lower(const Session &session, const BenchLayer &layer,
        const std::vector<std::string> *configs, bool productsApart);

  const Target &getTarget() const { return target; }
  /// The phases in the launches of a run of `tokens` tokens.
  std::vector<ModelledPhase> getPhases(int64_t tokens);

private:
  LayerModule();

  Target target;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_RUN_LAYERMODULE_H
