module {
  plan.program @ids max_tokens 16384 {
    %hidden_states = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x64xf16>
    %topk_ids = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x1xi32>
    %topk_weights = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x1xf32>
    %num_valid_tokens = plan.tensor input "num_valid_tokens" : memref<1xi32>
    %experts.w13 = plan.tensor weight "experts.w13" : memref<2x64x64xf16>
    %experts.w2 = plan.tensor weight "experts.w2" : memref<2x64x32xf16>
    %output = plan.tensor output "output" rows <"tokens"> : memref<?x64xf16>
    %expert_offsets = plan.buffer "expert_offsets" slot 4 : memref<3xi32>
    %position = plan.buffer "position" slot 2 rows <"tokens"> : memref<?x1xi32>
    %source = plan.buffer "source" slot 3 rows <"tokens"> : memref<?xi32>
    %row_weight = plan.buffer "row_weight" slot 0 rows <"tokens"> : memref<?x1xf32>
    %weighted_input = plan.buffer "weighted_input" slot 0 rows <"tokens"> : memref<?x64xf16>
    %experts_hidden = plan.buffer "experts_hidden" slot 1 rows <"tokens"> : memref<?x32xf16>
    %experts_out = plan.buffer "experts_out" slot 0 rows <"tokens"> : memref<?x64xf16>
    plan.prepare {
    }
    plan.variant tokens 0 to 16384 {
      plan.launch @permute ins(%topk_ids, %topk_weights, %num_valid_tokens : memref<?x1xi32>, memref<?x1xf32>, memref<1xi32>) outs(%expert_offsets, %position, %source, %row_weight : memref<3xi32>, memref<?x1xi32>, memref<?xi32>, memref<?x1xf32>)
      plan.launch @weighted_input ins(%hidden_states, %topk_weights : memref<?x64xf16>, memref<?x1xf32>) outs(%weighted_input : memref<?x64xf16>)
      plan.launch @experts_hidden ins(%weighted_input, %experts.w13, %expert_offsets, %source : memref<?x64xf16>, memref<2x64x64xf16>, memref<3xi32>, memref<?xi32>) outs(%experts_hidden : memref<?x32xf16>)
      plan.launch @experts_out ins(%experts_hidden, %experts.w2, %expert_offsets : memref<?x32xf16>, memref<2x64x32xf16>, memref<3xi32>) outs(%experts_out : memref<?x64xf16>)
      plan.launch @output ins(%experts_out, %position, %num_valid_tokens : memref<?x64xf16>, memref<?x1xi32>, memref<1xi32>) outs(%output : memref<?x64xf16>)
    }
  }
  tile.kernel @permute(%arg0: memref<?x1xi32>, %arg1: memref<?x1xf32>, %arg2: memref<1xi32>, %arg3: memref<3xi32>, %arg4: memref<?x1xi32>, %arg5: memref<?xi32>, %arg6: memref<?x1xf32>, %tokens: i64) attributes {grid = #plan.expr<"1">} {
    tile.sort_by_expert tokens(%tokens) ids(%arg0, %arg1 : memref<?x1xi32>, memref<?x1xf32>) num_valid_tokens(%arg2 : memref<1xi32>) outs(%arg3, %arg4, %arg5, %arg6 : memref<3xi32>, memref<?x1xi32>, memref<?xi32>, memref<?x1xf32>) {config = #tile.cpu_sort_by_expert, local_experts = array<i64: 1, 3>, moe.name = ["expert_offsets", "position", "source", "row_weight"], num_experts = 4 : i64}
    tile.return
  }
  tile.kernel @weighted_input(%arg0: memref<?x64xf16>, %arg1: memref<?x1xf32>, %arg2: memref<?x64xf16>, %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 4)">} {
    tile.row_map tokens(%tokens) ins(%arg0 : memref<?x64xf16>) rows(%arg1 : memref<?x1xf32>) outs(%arg2 : memref<?x64xf16>) {
    ^bb0(%arg3: f32, %arg4: f32):
      %0 = arith.mulf %arg3, %arg4 : f32
      tile.yield %0 : f32
    } {config = #tile.cpu_row_map<lanes = 16, rows_per_cta = 4>, moe.name = ["weighted_input"]}
    tile.return
  }
  tile.kernel @experts_hidden(%arg0: memref<?x64xf16>, %arg1: memref<2x64x64xf16>, %arg2: memref<3xi32>, %arg3: memref<?xi32>, %arg4: memref<?x32xf16>, %tokens: i64) attributes {grid = #plan.expr<"2">} {
    tile.gemm tokens(%tokens) ins(%arg0, %arg1 : memref<?x64xf16>, memref<2x64x64xf16>) offsets(%arg2 : memref<3xi32>) source(%arg3 : memref<?xi32>) outs(%arg4 : memref<?x32xf16>) epilogue {
    ^bb0(%arg5: f32, %arg6: f32):
      %0 = arith.mulf %arg5, %arg5 : f32
      %1 = arith.mulf %0, %arg5 : f32
      %cst = arith.constant 4.471500e-02 : f32
      %2 = arith.mulf %cst, %1 : f32
      %3 = arith.addf %arg5, %2 : f32
      %cst_0 = arith.constant 0.797884583 : f32
      %4 = arith.mulf %cst_0, %3 : f32
      %5 = math.tanh %4 : f32
      %cst_1 = arith.constant 5.000000e-01 : f32
      %6 = arith.mulf %cst_1, %arg5 : f32
      %cst_2 = arith.constant 1.000000e+00 : f32
      %7 = arith.addf %cst_2, %5 : f32
      %8 = arith.mulf %6, %7 : f32
      %9 = arith.mulf %8, %arg6 : f32
      tile.yield %9 : f32
    } {config = #tile.cpu_gemm<register_rows = 4, register_columns = 2, block_k = 16, columns_per_cta = 32, lanes = 16>, layout = #moe.weight_layout<order = gate_up>, moe.name = ["experts_hidden"]}
    tile.return
  }
  tile.kernel @experts_out(%arg0: memref<?x32xf16>, %arg1: memref<2x64x32xf16>, %arg2: memref<3xi32>, %arg3: memref<?x64xf16>, %tokens: i64) attributes {grid = #plan.expr<"2">} {
    tile.gemm tokens(%tokens) ins(%arg0, %arg1 : memref<?x32xf16>, memref<2x64x32xf16>) offsets(%arg2 : memref<3xi32>) outs(%arg3 : memref<?x64xf16>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 16, columns_per_cta = 64, lanes = 16>, moe.name = ["experts_out"]}
    tile.return
  }
  tile.kernel @output(%arg0: memref<?x64xf16>, %arg1: memref<?x1xi32>, %arg2: memref<1xi32>, %arg3: memref<?x64xf16>, %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 4)">} {
    tile.gather_reduce tokens(%tokens) ins(%arg0, %arg1 : memref<?x64xf16>, memref<?x1xi32>) num_valid_tokens(%arg2 : memref<1xi32>) outs(%arg3 : memref<?x64xf16>) {config = #tile.cpu_gather_reduce<register_columns = 64, lanes = 16, rows_per_cta = 4>, moe.name = ["output"]}
    tile.return
  }
}
