//===- AdapterRewrite.h - rewrites of gemms with adapters -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_LAUNCH_ADAPTERREWRITE_H
#define MOEC_LIB_TRANSFORMS_LAUNCH_ADAPTERREWRITE_H

#include "LaunchRewrite.h"

namespace moec {

/// A rewrite of a LoRA shrink and the gemm that multiplies its rows by the
/// second matrices. An occurrence has the launch of the shrink and that of the
/// gemm; so has each of the launches that replace them.
class AdapterRewrite : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  mlir::LogicalResult commit(const RewriteSite &site) override;
  void leave(const RewriteSite &site) override;

protected:
  /// The launch that shrinks the rows of a gemm, for it alone; or null.
  plan::LaunchOp findShrink(plan::LaunchOp launch);
  /// Gives the kernel of a shrink, or of what replaces it, the load of `site`'s
  /// gemm beside the one that it has.
  void growLoad(tile::KernelOp kernel, const RewriteSite &site);

  /// Built for a site: the gemm's kernel, and launches of both.
  tile::KernelOp built;
  RewriteSite added;
};

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_LAUNCH_ADAPTERREWRITE_H
