//===- SplitColumns.td - a rewrite of launches -------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def SplitColumnsRewrite : LaunchRewrite<"split-columns"> {
  let summary = "split the last gemm and its combine by columns";
  let description = [{
    In a layer over several ranks, the combine (a `plan.collective` whose kernel may make the sums over a token's
    experts itself) waits for the experts' last gemm. With `chunks`, the gemm is launched that many times, each for an
    equal number of `columns` of the result in whole tiles, and the combine is split into the same chunks. Each chunk
    follows its launch on another stream and runs beside the next launch. Weights are read once, as before, and no
    memory is added. The gemm must use the dynamic tile scheduler, since an exchange occupies some of the
    multiprocessors first, and must not be one of two joined gemms.

    Without `chunks` nothing is split: on two GPUs it saves next to nothing, more have not been measured, and with
    NCCL nothing overlaps and there is one more launch.
  }];
}
