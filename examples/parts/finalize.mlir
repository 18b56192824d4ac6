// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part behind the experts, on two ranks with up to 8 tokens each: adds what
// both ranks' experts have for a row, and gives each rank its own rows.

!rows = tensor<?x24xf32>

func.func @finalize(
    %partial: !rows {moe.name = "partial", moe.role = "input",
                     moe.rows = "all", moe.partial = ["dp"]})
    -> (!rows {moe.name = "output"})
    attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 4>,
                moe.max_tokens = 16 : i64} {
  %output = moe.combine <dp> %partial : !rows
  return %output : !rows
}
