//===- AwaitRows.td - a rewrite of launches ----------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def AwaitRowsRewrite : LaunchRewrite<"await-rows"> {
  let summary = "multiply rows while their adapters are multiplied";
  let description = [{
    The launch of a LoRA shrink stands between two gemms, and the second gemm would wait for the end of that launch. The
    rewrite lets the shrink signal (`signals`) that the launches before it have ended, and lets the gemm wait for this
    signal (`awaits`) before it reads its rows. The gemm waits for the shrink itself only before it reads `shrunk` and
    before its first store. The rewrite requires a schedule that supports it, a gemm that counts `ids`, a shrink directly
    before the gemm on its stream, and an earlier shrink for the same tokens, whose `adapter` the gemm then reads. The
    counter is that of the sort. The kernel before the shrink becomes `late`, so that the sort has cleared the counter.
  }];
}
