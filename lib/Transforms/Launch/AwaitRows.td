//===- AwaitRows.td - a rewrite of launches ----------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def AwaitRowsRewrite : LaunchRewrite<"await-rows"> {
  let summary = "multiply rows while their adapters are multiplied";
  let description = [{
    The launch of a LoRA shrink stands between two gemms, and the second one would wait for its end. The shrink now
    `signals` that launches before it have ended, and the gemm `awaits` that for its rows; it waits for the shrink ahead
    of `shrunk` and of its result. Requires a schedule that supports it, a gemm that counts `ids`, a shrink that is its
    predecessor on the stream, and an earlier shrink for the same tokens, whose `adapter` the gemm then reads. The
    counter is that of the sort.
  }];
}
