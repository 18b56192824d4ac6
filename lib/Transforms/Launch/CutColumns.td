//===- CutColumns.td - a rewrite of launches ---------------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def CutColumnsRewrite : LaunchRewrite<"cut-columns"> {
  let summary = "the last product and the combine behind it by columns";
  let description = [{
    Of a layer over several ranks the combine (a `plan.collective` whose kernel may make the sums of a token's experts
    itself) waits for the experts' last product. That is launched 2, 3 or 4 times, each for as many `columns` of the result, in
    whole tiles, and the combine is cut into pieces of the same: behind a launch its piece runs beside the next launch, which is
    on a stream of its own. Weights are read once, as they are without, and no memory is added. The product has to take its tiles from a
    queue, for an exchange has some of the multiprocessors first, and is not one of two of a kernel.

    Where that is expected to save 1 % of all launches and collectives of a variant or more, as a mean over its token points: what NCCL
    moves has nothing beside it and a launch more. Variants whose launches are not cut keep the kernel as it is; the others get a copy of it
    then (`@experts_out_t16384_columns`). `pieces` says how many pieces there are, whatever it takes.
  }];
}
