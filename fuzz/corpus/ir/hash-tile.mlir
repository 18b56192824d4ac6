module {
  plan.program @hash max_tokens 16384 {
    %hidden_states = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x64xbf16>
    %input_ids = plan.tensor input "input_ids" rows <"tokens"> : memref<?xi32>
    %gate.weight = plan.tensor weight "gate.weight" : memref<8x64xbf16>
    %gate.hash_table = plan.tensor weight "gate.hash_table" : memref<100x2xi32>
    %experts.w13 = plan.tensor weight "experts.w13" : memref<8x64x64xbf16>
    %experts.w2 = plan.tensor weight "experts.w2" : memref<8x64x32xbf16>
    %output = plan.tensor output "output" rows <"tokens"> : memref<?x64xbf16>
    %router_logits = plan.buffer "router_logits" slot 0 rows <"tokens"> : memref<?x8xf32>
    %topk_ids = plan.buffer "topk_ids" slot 1 rows <"tokens"> : memref<?x2xi32>
    %topk_weights = plan.buffer "topk_weights" slot 2 rows <"tokens"> : memref<?x2xf32>
    %expert_offsets = plan.buffer "expert_offsets" slot 6 : memref<9xi32>
    %position = plan.buffer "position" slot 3 rows <"tokens"> : memref<?x2xi32>
    %source = plan.buffer "source" slot 4 rows <"tokens * 2"> : memref<?xi32>
    %row_weight = plan.buffer "row_weight" slot 5 rows <"tokens * 2"> : memref<?x1xf32>
    %experts_hidden = plan.buffer "experts_hidden" slot 1 rows <"tokens * 2"> : memref<?x32xbf16>
    %experts_out = plan.buffer "experts_out" slot 0 rows <"tokens * 2"> : memref<?x64xbf16>
    plan.prepare {
    }
    plan.variant tokens 0 to 16384 {
      plan.launch @router_logits ins(%hidden_states, %gate.weight : memref<?x64xbf16>, memref<8x64xbf16>) outs(%router_logits : memref<?x8xf32>)
      plan.launch @route_0 ins(%router_logits, %input_ids, %gate.hash_table : memref<?x8xf32>, memref<?xi32>, memref<100x2xi32>) outs(%topk_ids, %topk_weights : memref<?x2xi32>, memref<?x2xf32>)
      plan.launch @route_1 ins(%topk_ids, %topk_weights : memref<?x2xi32>, memref<?x2xf32>) outs(%expert_offsets, %position, %source, %row_weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      plan.launch @experts_hidden ins(%hidden_states, %experts.w13, %expert_offsets, %source : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?xi32>) outs(%experts_hidden : memref<?x32xbf16>)
      plan.launch @experts_out ins(%experts_hidden, %experts.w2, %expert_offsets, %row_weight : memref<?x32xbf16>, memref<8x64x32xbf16>, memref<9xi32>, memref<?x1xf32>) outs(%experts_out : memref<?x64xbf16>)
      plan.launch @output ins(%experts_out, %position : memref<?x64xbf16>, memref<?x2xi32>) outs(%output : memref<?x64xbf16>)
    }
  }
  tile.kernel @router_logits(%arg0: memref<?x64xbf16>, %arg1: memref<8x64xbf16>, %arg2: memref<?x8xf32>, %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 64)">} {
    tile.gemm tokens(%tokens) ins(%arg0, %arg1 : memref<?x64xbf16>, memref<8x64xbf16>) outs(%arg2 : memref<?x8xf32>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 8, lanes = 16, rows_per_cta = 64>, moe.name = ["router_logits"]}
    tile.return
  }
  tile.kernel @route_0(%arg0: memref<?x8xf32>, %arg1: memref<?xi32>, %arg2: memref<100x2xi32>, %arg3: memref<?x2xi32>, %arg4: memref<?x2xf32>, %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 8)">} {
    tile.top_k tokens(%tokens) logits(%arg0 : memref<?x8xf32>) input_ids(%arg1 : memref<?xi32>) hash_table(%arg2 : memref<100x2xi32>) outs(%arg3, %arg4 : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2, select = hash, nonfinite = lowest> score {
    ^bb0(%arg5: f32):
      %0 = math.exp %arg5 : f32
      %1 = math.log1p %0 : f32
      %cst = arith.constant 2.000000e+01 : f32
      %2 = arith.cmpf ogt, %arg5, %cst : f32
      %3 = arith.select %2, %arg5, %1 : f32
      %4 = math.sqrt %3 : f32
      tile.yield %4 : f32
    } {config = #tile.cpu_top_k<lanes = 16, rows_per_cta = 8>, moe.name = ["topk_ids", "topk_weights"]}
    tile.return
  }
  tile.kernel @route_1(%arg0: memref<?x2xi32>, %arg1: memref<?x2xf32>, %arg2: memref<9xi32>, %arg3: memref<?x2xi32>, %arg4: memref<?xi32>, %arg5: memref<?x1xf32>, %tokens: i64) attributes {grid = #plan.expr<"1">} {
    tile.sort_by_expert tokens(%tokens) ids(%arg0, %arg1 : memref<?x2xi32>, memref<?x2xf32>) outs(%arg2, %arg3, %arg4, %arg5 : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {config = #tile.cpu_sort_by_expert, moe.name = ["expert_offsets", "position", "source", "row_weight"], num_experts = 8 : i64}
    tile.return
  }
  tile.kernel @experts_hidden(%arg0: memref<?x64xbf16>, %arg1: memref<8x64x64xbf16>, %arg2: memref<9xi32>, %arg3: memref<?xi32>, %arg4: memref<?x32xbf16>, %tokens: i64) attributes {grid = #plan.expr<"8">} {
    tile.gemm tokens(%tokens) ins(%arg0, %arg1 : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%arg2 : memref<9xi32>) source(%arg3 : memref<?xi32>) outs(%arg4 : memref<?x32xbf16>) epilogue {
    ^bb0(%arg5: f32, %arg6: f32):
      %cst = arith.constant 4.000000e+00 : f32
      %0 = arith.divf %arg5, %cst : f32
      %1 = math.tanh %0 : f32
      %2 = arith.mulf %cst, %1 : f32
      %cst_0 = arith.constant 1.000000e+00 : f32
      %3 = arith.negf %arg5 : f32
      %4 = math.exp %3 : f32
      %5 = arith.addf %cst_0, %4 : f32
      %6 = arith.divf %cst_0, %5 : f32
      %7 = arith.mulf %2, %6 : f32
      %cst_1 = arith.constant 2.500000e+01 : f32
      %8 = arith.divf %arg6, %cst_1 : f32
      %9 = math.tanh %8 : f32
      %10 = arith.mulf %cst_1, %9 : f32
      %11 = arith.mulf %7, %10 : f32
      tile.yield %11 : f32
    } {config = #tile.cpu_gemm<register_rows = 4, register_columns = 2, block_k = 32, columns_per_cta = 32, lanes = 16>, layout = #moe.weight_layout<order = gate_up>, moe.name = ["experts_hidden"]}
    tile.return
  }
  tile.kernel @experts_out(%arg0: memref<?x32xbf16>, %arg1: memref<8x64x32xbf16>, %arg2: memref<9xi32>, %arg3: memref<?x1xf32>, %arg4: memref<?x64xbf16>, %tokens: i64) attributes {grid = #plan.expr<"8">} {
    tile.gemm tokens(%tokens) ins(%arg0, %arg1 : memref<?x32xbf16>, memref<8x64x32xbf16>) offsets(%arg2 : memref<9xi32>) rows(%arg3 : memref<?x1xf32>) outs(%arg4 : memref<?x64xbf16>) epilogue {
    ^bb0(%arg5: f32, %arg6: f32):
      %0 = arith.mulf %arg5, %arg6 : f32
      tile.yield %0 : f32
    } {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 64, lanes = 16>, moe.name = ["experts_out"]}
    tile.return
  }
  tile.kernel @output(%arg0: memref<?x64xbf16>, %arg1: memref<?x2xi32>, %arg2: memref<?x64xbf16>, %tokens: i64) attributes {grid = #plan.expr<"ceildiv(tokens, 4)">} {
    tile.gather_reduce tokens(%tokens) ins(%arg0, %arg1 : memref<?x64xbf16>, memref<?x2xi32>) outs(%arg2 : memref<?x64xbf16>) {config = #tile.cpu_gather_reduce<register_columns = 64, lanes = 16, rows_per_cta = 4>, moe.name = ["output"]}
    tile.return
  }
}
