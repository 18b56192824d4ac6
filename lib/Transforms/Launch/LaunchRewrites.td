//===- LaunchRewrites.td - all rewrites of launches --------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Reference text of the rewrites in LaunchRewrites.def, in the same order.

#ifndef MOEC_TRANSFORMS_LAUNCHREWRITES_TD
#define MOEC_TRANSFORMS_LAUNCHREWRITES_TD

class LaunchRewrite<string rewriteName> {
  string name = rewriteName;
  string summary = "";
  string description = "";
}

include "AppendAdapters.td"
include "ExpandAdapters.td"
include "QuantizeRows.td"
include "QuantizeResults.td"
include "PermuteRows.td"
include "SplitLargeGroups.td"
include "CountIds.td"
include "JoinProducts.td"
include "DynamicScheduler.td"
include "QuantizeInputs.td"
include "JoinSums.td"
include "MulticastWeights.td"
include "AwaitRows.td"
include "SplitSort.td"
include "FuseRouting.td"
include "JoinRouting.td"
include "QuantizeAhead.td"
include "SplitColumns.td"

defvar LaunchRewrites = [
  AppendAdaptersRewrite,
  ExpandAdaptersRewrite,
  QuantizeRowsRewrite,
  QuantizeResultsRewrite,
  PermuteRowsRewrite,
  SplitLargeGroupsRewrite,
  CountIdsRewrite,
  JoinProductsRewrite,
  DynamicSchedulerRewrite,
  QuantizeInputsRewrite,
  JoinSumsRewrite,
  MulticastWeightsRewrite,
  AwaitRowsRewrite,
  SplitSortRewrite,
  FuseRoutingRewrite,
  JoinRoutingRewrite,
  QuantizeAheadRewrite,
  SplitColumnsRewrite
];

#endif
