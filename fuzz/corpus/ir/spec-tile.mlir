module {
  plan.program @layer max_tokens 128 {
    %hidden_states = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x64xbf16>
    %gate.weight = plan.tensor weight "gate.weight" : memref<8x64xbf16>
    %gate.selection_bias = plan.tensor weight "gate.selection_bias" : memref<8xf32>
    %experts.w13 = plan.tensor weight "experts.w13" : memref<3x64x16xbf16>
    %experts.w13_bias = plan.tensor weight "experts.w13_bias" : memref<3x64xbf16>
    %experts.w2 = plan.tensor weight "experts.w2" : memref<3x16x32xbf16>
    %experts.w2_bias = plan.tensor weight "experts.w2_bias" : memref<3x16xbf16>
    %shared_experts.w13 = plan.tensor weight "shared_experts.w13" : memref<96x64xbf16>
    %shared_experts.w2 = plan.tensor weight "shared_experts.w2" : memref<64x48xbf16>
    %shared_experts.gate = plan.tensor weight "shared_experts.gate" : memref<1x64xbf16>
    %latent.down = plan.tensor weight "latent.down" : memref<16x64xbf16>
    %latent.up = plan.tensor weight "latent.up" : memref<64x16xbf16>
    %output = plan.tensor output "output" rows <"tokens"> : memref<?x64xbf16>
    %router_logits = plan.buffer "router_logits" slot 0 rows <"tokens"> : memref<?x8xf32>
    %topk_ids = plan.buffer "topk_ids" slot 3 rows <"tokens"> : memref<?x2xi32>
    %topk_weights = plan.buffer "topk_weights" slot 4 rows <"tokens"> : memref<?x2xf32>
    %expert_offsets = plan.buffer "expert_offsets" slot 9 : memref<4xi32>
    %position = plan.buffer "position" slot 5 rows <"tokens"> : memref<?x2xi32>
    %source = plan.buffer "source" slot 6 rows <"tokens * 2"> : memref<?xi32>
    %row_weight = plan.buffer "row_weight" slot 7 rows <"tokens * 2"> : memref<?x1xf32>
    %latent_in = plan.buffer "latent_in" slot 3 rows <"tokens"> : memref<?x16xbf16>
    %experts_hidden = plan.buffer "experts_hidden" slot 0 rows <"tokens * 2"> : memref<?x32xbf16>
    %experts_out = plan.buffer "experts_out" slot 3 rows <"tokens * 2"> : memref<?x16xbf16>
    %shared_gate = plan.buffer "shared_gate" slot 8 rows <"tokens"> : memref<?x1xf32>
    %shared_hidden = plan.buffer "shared_hidden" slot 2 rows <"tokens"> : memref<?x48xbf16>
    %shared_out = plan.buffer "shared_out" slot 1 rows <"tokens"> : memref<?x64xbf16>
    %routed_out = plan.buffer "routed_out" slot 0 rows <"tokens"> : memref<?x16xbf16>
    plan.prepare {
    }
    plan.variant tokens 0 to 128 {
      plan.record event 0 stream 0
      plan.wait event 0 stream 1
      plan.launch @shared_gate stream 1 ins(%hidden_states, %shared_experts.gate : memref<?x64xbf16>, memref<1x64xbf16>) outs(%shared_gate : memref<?x1xf32>)
      plan.launch @shared_hidden stream 1 ins(%hidden_states, %shared_experts.w13 : memref<?x64xbf16>, memref<96x64xbf16>) outs(%shared_hidden : memref<?x48xbf16>)
      plan.launch @shared_out stream 1 ins(%shared_hidden, %shared_experts.w2, %shared_gate : memref<?x48xbf16>, memref<64x48xbf16>, memref<?x1xf32>) outs(%shared_out : memref<?x64xbf16>)
      plan.record event 1 stream 1
      plan.launch @router_logits ins(%hidden_states, %gate.weight : memref<?x64xbf16>, memref<8x64xbf16>) outs(%router_logits : memref<?x8xf32>)
      plan.launch @route_0 ins(%router_logits, %gate.selection_bias : memref<?x8xf32>, memref<8xf32>) outs(%topk_ids, %topk_weights : memref<?x2xi32>, memref<?x2xf32>)
      plan.launch @route_1 ins(%topk_ids, %topk_weights : memref<?x2xi32>, memref<?x2xf32>) outs(%expert_offsets, %position, %source, %row_weight : memref<4xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      plan.launch @latent_in ins(%hidden_states, %latent.down : memref<?x64xbf16>, memref<16x64xbf16>) outs(%latent_in : memref<?x16xbf16>)
      plan.launch @experts_hidden ins(%latent_in, %experts.w13, %expert_offsets, %source, %experts.w13_bias : memref<?x16xbf16>, memref<3x64x16xbf16>, memref<4xi32>, memref<?xi32>, memref<3x64xbf16>) outs(%experts_hidden : memref<?x32xbf16>)
      plan.launch @experts_out ins(%experts_hidden, %experts.w2, %expert_offsets, %row_weight, %experts.w2_bias : memref<?x32xbf16>, memref<3x16x32xbf16>, memref<4xi32>, memref<?x1xf32>, memref<3x16xbf16>) outs(%experts_out : memref<?x16xbf16>)
      plan.launch @routed_out ins(%experts_out, %position : memref<?x16xbf16>, memref<?x2xi32>) outs(%routed_out : memref<?x16xbf16>)
      plan.wait event 1 stream 0
      plan.launch @output ins(%routed_out, %latent.up, %shared_out : memref<?x16xbf16>, memref<64x16xbf16>, memref<?x64xbf16>) outs(%output : memref<?x64xbf16>)
    }
  }
  tile.kernel @router_logits(%arg0: memref<?x64xbf16>, %arg1: memref<8x64xbf16>, %arg2: memref<?x8xf32>, %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 64)">} {
    tile.gemm tokens(%tokens) ins(%arg0, %arg1 : memref<?x64xbf16>, memref<8x64xbf16>) outs(%arg2 : memref<?x8xf32>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 8, lanes = 16, rows_per_cta = 64>, moe.name = ["router_logits"]}
    tile.return
  }
  tile.kernel @route_0(%arg0: memref<?x8xf32>, %arg1: memref<8xf32>, %arg2: memref<?x2xi32>, %arg3: memref<?x2xf32>, %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 8)">} {
    tile.top_k tokens(%tokens) logits(%arg0 : memref<?x8xf32>) selection_bias(%arg1 : memref<8xf32>) outs(%arg2, %arg3 : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2, num_groups = 4, topk_groups = 2, group_score = top2_sum, renormalize = true, renormalize_epsilon = 9.99999968E-21 : f32, scale = 2.500000e+00 : f32, nonfinite = neg_inf> score {
    ^bb0(%arg4: f32):
      %cst = arith.constant 1.000000e+00 : f32
      %0 = arith.negf %arg4 : f32
      %1 = math.exp %0 : f32
      %2 = arith.addf %cst, %1 : f32
      %3 = arith.divf %cst, %2 : f32
      tile.yield %3 : f32
    } {config = #tile.cpu_top_k<lanes = 16, rows_per_cta = 8>, moe.name = ["topk_ids", "topk_weights"]}
    tile.return
  }
  tile.kernel @route_1(%arg0: memref<?x2xi32>, %arg1: memref<?x2xf32>, %arg2: memref<4xi32>, %arg3: memref<?x2xi32>, %arg4: memref<?xi32>, %arg5: memref<?x1xf32>, %tokens: i64) attributes {grid = #plan.expr<"1">} {
    tile.sort_by_expert tokens(%tokens) ids(%arg0, %arg1 : memref<?x2xi32>, memref<?x2xf32>) outs(%arg2, %arg3, %arg4, %arg5 : memref<4xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {config = #tile.cpu_sort_by_expert, local_experts = array<i64: 0, 2, 5>, moe.name = ["expert_offsets", "position", "source", "row_weight"], num_experts = 8 : i64}
    tile.return
  }
  tile.kernel @latent_in(%arg0: memref<?x64xbf16>, %arg1: memref<16x64xbf16>, %arg2: memref<?x16xbf16>, %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 64)">} {
    tile.gemm tokens(%tokens) ins(%arg0, %arg1 : memref<?x64xbf16>, memref<16x64xbf16>) outs(%arg2 : memref<?x16xbf16>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 16, lanes = 16, rows_per_cta = 64>, moe.name = ["latent_in"]}
    tile.return
  }
  tile.kernel @experts_hidden(%arg0: memref<?x16xbf16>, %arg1: memref<3x64x16xbf16>, %arg2: memref<4xi32>, %arg3: memref<?xi32>, %arg4: memref<3x64xbf16>, %arg5: memref<?x32xbf16>, %tokens: i64) attributes {grid = #plan.expr<"3">} {
    tile.gemm tokens(%tokens) ins(%arg0, %arg1 : memref<?x16xbf16>, memref<3x64x16xbf16>) offsets(%arg2 : memref<4xi32>) source(%arg3 : memref<?xi32>) columns(%arg4 : memref<3x64xbf16>) outs(%arg5 : memref<?x32xbf16>) epilogue {
    ^bb0(%arg6: f32, %arg7: f32, %arg8: f32, %arg9: f32):
      %0 = arith.addf %arg6, %arg8 : f32
      %1 = arith.addf %arg7, %arg9 : f32
      %cst = arith.constant 7.000000e+00 : f32
      %2 = arith.minimumf %0, %cst : f32
      %3 = arith.minimumf %1, %cst : f32
      %4 = arith.negf %cst : f32
      %5 = arith.maximumf %3, %4 : f32
      %cst_0 = arith.constant 1.700000e+00 : f32
      %6 = arith.mulf %cst_0, %2 : f32
      %cst_1 = arith.constant 1.000000e+00 : f32
      %7 = arith.negf %6 : f32
      %8 = math.exp %7 : f32
      %9 = arith.addf %cst_1, %8 : f32
      %10 = arith.divf %cst_1, %9 : f32
      %11 = arith.mulf %2, %10 : f32
      %cst_2 = arith.constant 1.000000e+00 : f32
      %12 = arith.addf %5, %cst_2 : f32
      %13 = arith.mulf %12, %11 : f32
      tile.yield %13 : f32
    } {config = #tile.cpu_gemm<register_rows = 4, register_columns = 2, block_k = 32, columns_per_cta = 32, lanes = 16>, layout = #moe.weight_layout<order = interleaved>, moe.name = ["experts_hidden"]}
    tile.return
  }
  tile.kernel @experts_out(%arg0: memref<?x32xbf16>, %arg1: memref<3x16x32xbf16>, %arg2: memref<4xi32>, %arg3: memref<?x1xf32>, %arg4: memref<3x16xbf16>, %arg5: memref<?x16xbf16>, %tokens: i64) attributes {grid = #plan.expr<"3">} {
    tile.gemm tokens(%tokens) ins(%arg0, %arg1 : memref<?x32xbf16>, memref<3x16x32xbf16>) offsets(%arg2 : memref<4xi32>) rows(%arg3 : memref<?x1xf32>) columns(%arg4 : memref<3x16xbf16>) outs(%arg5 : memref<?x16xbf16>) epilogue {
    ^bb0(%arg6: f32, %arg7: f32, %arg8: f32):
      %0 = arith.addf %arg6, %arg8 : f32
      %1 = arith.mulf %0, %arg7 : f32
      tile.yield %1 : f32
    } {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 16, lanes = 16>, moe.name = ["experts_out"]}
    tile.return
  }
  tile.kernel @shared_gate(%arg0: memref<?x64xbf16>, %arg1: memref<1x64xbf16>, %arg2: memref<?x1xf32>, %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 64)">} {
    tile.gemm tokens(%tokens) ins(%arg0, %arg1 : memref<?x64xbf16>, memref<1x64xbf16>) outs(%arg2 : memref<?x1xf32>) epilogue {
    ^bb0(%arg3: f32):
      %cst = arith.constant 1.000000e+00 : f32
      %0 = arith.negf %arg3 : f32
      %1 = math.exp %0 : f32
      %2 = arith.addf %cst, %1 : f32
      %3 = arith.divf %cst, %2 : f32
      tile.yield %3 : f32
    } {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 4, lanes = 16, rows_per_cta = 64>, moe.name = ["shared_gate"]}
    tile.return
  }
  tile.kernel @shared_hidden(%arg0: memref<?x64xbf16>, %arg1: memref<96x64xbf16>, %arg2: memref<?x48xbf16>, %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 64) * 3">} {
    tile.gemm tokens(%tokens) ins(%arg0, %arg1 : memref<?x64xbf16>, memref<96x64xbf16>) outs(%arg2 : memref<?x48xbf16>) epilogue {
    ^bb0(%arg3: f32, %arg4: f32):
      %cst = arith.constant 7.000000e+00 : f32
      %0 = arith.minimumf %arg3, %cst : f32
      %1 = arith.minimumf %arg4, %cst : f32
      %2 = arith.negf %cst : f32
      %3 = arith.maximumf %1, %2 : f32
      %cst_0 = arith.constant 1.700000e+00 : f32
      %4 = arith.mulf %cst_0, %0 : f32
      %cst_1 = arith.constant 1.000000e+00 : f32
      %5 = arith.negf %4 : f32
      %6 = math.exp %5 : f32
      %7 = arith.addf %cst_1, %6 : f32
      %8 = arith.divf %cst_1, %7 : f32
      %9 = arith.mulf %0, %8 : f32
      %cst_2 = arith.constant 1.000000e+00 : f32
      %10 = arith.addf %3, %cst_2 : f32
      %11 = arith.mulf %10, %9 : f32
      tile.yield %11 : f32
    } {config = #tile.cpu_gemm<register_rows = 4, register_columns = 2, block_k = 32, columns_per_cta = 16, lanes = 16, rows_per_cta = 64>, layout = #moe.weight_layout<order = interleaved>, moe.name = ["shared_hidden"]}
    tile.return
  }
  tile.kernel @shared_out(%arg0: memref<?x48xbf16>, %arg1: memref<64x48xbf16>, %arg2: memref<?x1xf32>, %arg3: memref<?x64xbf16>, %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 64) * 4">} {
    tile.gemm tokens(%tokens) ins(%arg0, %arg1 : memref<?x48xbf16>, memref<64x48xbf16>) rows(%arg2 : memref<?x1xf32>) outs(%arg3 : memref<?x64xbf16>) epilogue {
    ^bb0(%arg4: f32, %arg5: f32):
      %0 = arith.mulf %arg4, %arg5 : f32
      tile.yield %0 : f32
    } {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 16, lanes = 16, rows_per_cta = 64>, moe.name = ["shared_out"]}
    tile.return
  }
  tile.kernel @routed_out(%arg0: memref<?x16xbf16>, %arg1: memref<?x2xi32>, %arg2: memref<?x16xbf16>, %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 4)">} {
    tile.gather_reduce tokens(%tokens) ins(%arg0, %arg1 : memref<?x16xbf16>, memref<?x2xi32>) outs(%arg2 : memref<?x16xbf16>) {config = #tile.cpu_gather_reduce<register_columns = 64, lanes = 16, rows_per_cta = 4>, moe.name = ["routed_out"]}
    tile.return
  }
  tile.kernel @output(%arg0: memref<?x16xbf16>, %arg1: memref<64x16xbf16>, %arg2: memref<?x64xbf16>, %arg3: memref<?x64xbf16>, %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 64) * 4">} {
    tile.gemm tokens(%tokens) ins(%arg0, %arg1 : memref<?x16xbf16>, memref<64x16xbf16>) elementwise(%arg2 : memref<?x64xbf16>) outs(%arg3 : memref<?x64xbf16>) epilogue {
    ^bb0(%arg4: f32, %arg5: f32):
      %0 = arith.addf %arg4, %arg5 : f32
      tile.yield %0 : f32
    } {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 16, lanes = 16, rows_per_cta = 64>, moe.name = ["output"]}
    tile.return
  }
}
