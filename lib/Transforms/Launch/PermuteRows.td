//===- PermuteRows.td - a rewrite of launches --------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def PermuteRowsRewrite : LaunchRewrite<"permute-rows"> {
  let summary = "permute rows before a gemm";
  let description = [{
    Puts a launch of a `tile.gather_rows` before each launch of a grouped gemm that reads its rows by `source`. It
    copies rows (and their scales) into a buffer in the order of their groups; the gemm then has no `source` and a
    config that loads rows by tensor maps. Applied if both launches together are predicted to take less time: the copy
    is cheap beside a wide gemm. Kernels keep their names. A gemm with a forced config keeps it, and its `source`
    unless the config has `map_rows`.

    `always`: 1 to apply it wherever legal, regardless of the prediction; a forced config then gets `map_rows` if that
    is legal.
  }];
}
