//===- PermuteRows.td - a rewrite of launches --------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def PermuteRowsRewrite : LaunchRewrite<"permute-rows"> {
  let summary = "bring rows into order ahead of a product";
  let description = [{
    Where a grouped product reads its rows by `source`, each of its launches may get one of a `tile.gather_rows`
    in front, which copies them (and their scales) into a buffer in the order of their groups; the product then
    has no `source`, and a config that reads rows by tensor maps. Where both together are expected to take less time:
    a copy of a row is little beside a wide product. Kernels keep their names. A product whose config is forced keeps
    it, and its `source` unless the config says `map_rows`.

    `always`: 1 for wherever it can be, whatever it takes; a forced config then gets `map_rows` if that is legal.
  }];
}
