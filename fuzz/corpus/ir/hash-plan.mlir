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
      plan.launch @route ins(%router_logits, %input_ids, %gate.hash_table : memref<?x8xf32>, memref<?xi32>, memref<100x2xi32>) outs(%topk_ids, %topk_weights, %expert_offsets, %position, %source, %row_weight : memref<?x2xi32>, memref<?x2xf32>, memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      plan.launch @experts_hidden ins(%hidden_states, %experts.w13, %expert_offsets, %source : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?xi32>) outs(%experts_hidden : memref<?x32xbf16>)
      plan.launch @experts_out ins(%experts_hidden, %experts.w2, %expert_offsets, %row_weight : memref<?x32xbf16>, memref<8x64x32xbf16>, memref<9xi32>, memref<?x1xf32>) outs(%experts_out : memref<?x64xbf16>)
      plan.launch @output ins(%experts_out, %position : memref<?x64xbf16>, memref<?x2xi32>) outs(%output : memref<?x64xbf16>)
    }
  }
  plan.kernel @router_logits(%arg0: tensor<?x64xbf16>, %arg1: tensor<8x64xbf16>) -> tensor<?x8xf32> {
    %router_logits = moe.grouped_matmul %arg0, %arg1 : tensor<?x64xbf16>, tensor<8x64xbf16> {moe.name = ["router_logits"]} -> tensor<?x8xf32>
    plan.return %router_logits : tensor<?x8xf32>
  }
  plan.kernel @route(%arg0: tensor<?x8xf32>, %arg1: tensor<?xi32>, %arg2: tensor<100x2xi32>) -> (tensor<?x2xi32>, tensor<?x2xf32>, tensor<9xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>) {
    %ids, %weights = moe.route %arg0 : tensor<?x8xf32> input_ids(%arg1 : tensor<?xi32>) hash_table(%arg2 : tensor<100x2xi32>) <top_k = 2, select = hash, nonfinite = lowest> score {
    ^bb0(%arg3: f32):
      %0 = math.exp %arg3 : f32
      %1 = math.log1p %0 : f32
      %cst = arith.constant 2.000000e+01 : f32
      %2 = arith.cmpf ogt, %arg3, %cst : f32
      %3 = arith.select %2, %arg3, %1 : f32
      %4 = math.sqrt %3 : f32
      moe.yield %4 : f32
    } {moe.name = ["topk_ids", "topk_weights"]} -> tensor<?x2xi32>, tensor<?x2xf32>
    %offsets, %position, %source, %row_weight = moe.permute %ids, %weights {moe.name = ["expert_offsets", "position", "source", "row_weight"], num_experts = 8 : i64} : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<9xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
    plan.return %ids, %weights, %offsets, %position, %source, %row_weight : tensor<?x2xi32>, tensor<?x2xf32>, tensor<9xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  }
  plan.kernel @experts_hidden(%arg0: tensor<?x64xbf16>, %arg1: tensor<8x64x64xbf16>, %arg2: tensor<9xi32>, %arg3: tensor<?xi32>) -> tensor<?x32xbf16> {
    %experts_hidden = moe.grouped_matmul %arg0, %arg1 : tensor<?x64xbf16>, tensor<8x64x64xbf16> offsets(%arg2 : tensor<9xi32>) source(%arg3 : tensor<?xi32>) epilogue {
    ^bb0(%arg4: f32, %arg5: f32):
      %cst = arith.constant 4.000000e+00 : f32
      %0 = arith.divf %arg4, %cst : f32
      %1 = math.tanh %0 : f32
      %2 = arith.mulf %cst, %1 : f32
      %cst_0 = arith.constant 1.000000e+00 : f32
      %3 = arith.negf %arg4 : f32
      %4 = math.exp %3 : f32
      %5 = arith.addf %cst_0, %4 : f32
      %6 = arith.divf %cst_0, %5 : f32
      %7 = arith.mulf %2, %6 : f32
      %cst_1 = arith.constant 2.500000e+01 : f32
      %8 = arith.divf %arg5, %cst_1 : f32
      %9 = math.tanh %8 : f32
      %10 = arith.mulf %cst_1, %9 : f32
      %11 = arith.mulf %7, %10 : f32
      moe.yield %11 : f32
    } {layout = #moe.weight_layout<order = gate_up>, moe.name = ["experts_hidden"]} -> tensor<?x32xbf16>
    plan.return %experts_hidden : tensor<?x32xbf16>
  }
  plan.kernel @experts_out(%arg0: tensor<?x32xbf16>, %arg1: tensor<8x64x32xbf16>, %arg2: tensor<9xi32>, %arg3: tensor<?x1xf32>) -> tensor<?x64xbf16> {
    %experts_out = moe.grouped_matmul %arg0, %arg1 : tensor<?x32xbf16>, tensor<8x64x32xbf16> offsets(%arg2 : tensor<9xi32>) rows(%arg3 : tensor<?x1xf32>) epilogue {
    ^bb0(%arg4: f32, %arg5: f32):
      %0 = arith.mulf %arg4, %arg5 : f32
      moe.yield %0 : f32
    } {moe.name = ["experts_out"]} -> tensor<?x64xbf16>
    plan.return %experts_out : tensor<?x64xbf16>
  }
  plan.kernel @output(%arg0: tensor<?x64xbf16>, %arg1: tensor<?x2xi32>) -> tensor<?x64xbf16> {
    %output = moe.unpermute %arg0, %arg1 : tensor<?x64xbf16>, tensor<?x2xi32> {moe.name = ["output"]} -> tensor<?x64xbf16>
    plan.return %output : tensor<?x64xbf16>
  }
}
