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
  plan.kernel @permute(%arg0: tensor<?x1xi32>, %arg1: tensor<?x1xf32>, %arg2: tensor<1xi32>) -> (tensor<3xi32>, tensor<?x1xi32>, tensor<?xi32>, tensor<?x1xf32>) {
    %offsets, %position, %source, %row_weight = moe.permute %arg0, %arg1 num_valid_tokens(%arg2 : tensor<1xi32>) {local_experts = array<i64: 1, 3>, moe.name = ["expert_offsets", "position", "source", "row_weight"], num_experts = 4 : i64} : tensor<?x1xi32>, tensor<?x1xf32> -> tensor<3xi32>, tensor<?x1xi32>, tensor<?xi32>, tensor<?x1xf32>
    plan.return %offsets, %position, %source, %row_weight : tensor<3xi32>, tensor<?x1xi32>, tensor<?xi32>, tensor<?x1xf32>
  }
  plan.kernel @weighted_input(%arg0: tensor<?x64xf16>, %arg1: tensor<?x1xf32>) -> tensor<?x64xf16> {
    %weighted_input = moe.row_map %arg0 : tensor<?x64xf16> rows(%arg1 : tensor<?x1xf32>) {
    ^bb0(%arg2: f32, %arg3: f32):
      %0 = arith.mulf %arg2, %arg3 : f32
      moe.yield %0 : f32
    } {moe.name = ["weighted_input"]} -> tensor<?x64xf16>
    plan.return %weighted_input : tensor<?x64xf16>
  }
  plan.kernel @experts_hidden(%arg0: tensor<?x64xf16>, %arg1: tensor<2x64x64xf16>, %arg2: tensor<3xi32>, %arg3: tensor<?xi32>) -> tensor<?x32xf16> {
    %experts_hidden = moe.grouped_matmul %arg0, %arg1 : tensor<?x64xf16>, tensor<2x64x64xf16> offsets(%arg2 : tensor<3xi32>) source(%arg3 : tensor<?xi32>) epilogue {
    ^bb0(%arg4: f32, %arg5: f32):
      %0 = arith.mulf %arg4, %arg4 : f32
      %1 = arith.mulf %0, %arg4 : f32
      %cst = arith.constant 4.471500e-02 : f32
      %2 = arith.mulf %cst, %1 : f32
      %3 = arith.addf %arg4, %2 : f32
      %cst_0 = arith.constant 0.797884583 : f32
      %4 = arith.mulf %cst_0, %3 : f32
      %5 = math.tanh %4 : f32
      %cst_1 = arith.constant 5.000000e-01 : f32
      %6 = arith.mulf %cst_1, %arg4 : f32
      %cst_2 = arith.constant 1.000000e+00 : f32
      %7 = arith.addf %cst_2, %5 : f32
      %8 = arith.mulf %6, %7 : f32
      %9 = arith.mulf %8, %arg5 : f32
      moe.yield %9 : f32
    } {layout = #moe.weight_layout<order = gate_up>, moe.name = ["experts_hidden"]} -> tensor<?x32xf16>
    plan.return %experts_hidden : tensor<?x32xf16>
  }
  plan.kernel @experts_out(%arg0: tensor<?x32xf16>, %arg1: tensor<2x64x32xf16>, %arg2: tensor<3xi32>) -> tensor<?x64xf16> {
    %experts_out = moe.grouped_matmul %arg0, %arg1 : tensor<?x32xf16>, tensor<2x64x32xf16> offsets(%arg2 : tensor<3xi32>) {moe.name = ["experts_out"]} -> tensor<?x64xf16>
    plan.return %experts_out : tensor<?x64xf16>
  }
  plan.kernel @output(%arg0: tensor<?x64xf16>, %arg1: tensor<?x1xi32>, %arg2: tensor<1xi32>) -> tensor<?x64xf16> {
    %output = moe.unpermute %arg0, %arg1 : tensor<?x64xf16>, tensor<?x1xi32> num_valid_tokens(%arg2 : tensor<1xi32>) {moe.name = ["output"]} -> tensor<?x64xf16>
    plan.return %output : tensor<?x64xf16>
  }
}
