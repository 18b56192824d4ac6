// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part ahead of the experts, on two ranks with up to 8 tokens each: gives
// each rank the rows of both, with their experts and weights.

!rows = tensor<?x24xf32>
!ids = tensor<?x2xi32>
!weights = tensor<?x2xf32>

func.func @prepare(
    %rows: !rows {moe.name = "hidden_states", moe.role = "input"},
    %ids: !ids {moe.name = "topk_ids", moe.role = "input"},
    %weights: !weights {moe.name = "topk_weights", moe.role = "input"})
    -> (!rows {moe.name = "all_rows"}, !ids {moe.name = "all_ids"},
        !weights {moe.name = "all_weights"})
    attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 4>,
                moe.max_tokens = 16 : i64} {
  %all:3 = moe.dispatch <dp> %rows, %ids, %weights
      : !rows, !ids, !weights -> !rows, !ids, !weights
  return %all#0, %all#1, %all#2 : !rows, !ids, !weights
}
