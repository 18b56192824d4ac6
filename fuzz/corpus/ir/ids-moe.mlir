module {
  func.func @ids(%arg0: tensor<?x64xf16> {moe.name = "hidden_states", moe.role = "input"}, %arg1: tensor<?x1xi32> {moe.name = "topk_ids", moe.role = "input"}, %arg2: tensor<?x1xf32> {moe.name = "topk_weights", moe.role = "input"}, %arg3: tensor<1xi32> {moe.name = "num_valid_tokens", moe.role = "input"}, %arg4: tensor<2x64x64xf16> {moe.name = "experts.w13", moe.role = "weight"}, %arg5: tensor<2x64x32xf16> {moe.name = "experts.w2", moe.role = "weight"}) -> (tensor<?x64xf16> {moe.name = "output"}) {
    %0 = moe.layer %arg0 : tensor<?x64xf16> ids(%arg1 : tensor<?x1xi32>) weights(%arg2 : tensor<?x1xf32>) num_valid_tokens(%arg3 : tensor<1xi32>) experts(%arg4, %arg5 : tensor<2x64x64xf16>, tensor<2x64x32xf16>) activation {
    ^bb0(%arg6: f32, %arg7: f32):
      %1 = arith.mulf %arg6, %arg6 : f32
      %2 = arith.mulf %1, %arg6 : f32
      %cst = arith.constant 4.471500e-02 : f32
      %3 = arith.mulf %cst, %2 : f32
      %4 = arith.addf %arg6, %3 : f32
      %cst_0 = arith.constant 0.797884583 : f32
      %5 = arith.mulf %cst_0, %4 : f32
      %6 = math.tanh %5 : f32
      %cst_1 = arith.constant 5.000000e-01 : f32
      %7 = arith.mulf %cst_1, %arg6 : f32
      %cst_2 = arith.constant 1.000000e+00 : f32
      %8 = arith.addf %cst_2, %6 : f32
      %9 = arith.mulf %7, %8 : f32
      %10 = arith.mulf %9, %arg7 : f32
      moe.yield %10 : f32
    } {layout = #moe.weight_layout<order = gate_up>, placement = #moe.placement<4, local = [1, 3]>, weight_on_input} -> tensor<?x64xf16>
    return %0 : tensor<?x64xf16>
  }
}
