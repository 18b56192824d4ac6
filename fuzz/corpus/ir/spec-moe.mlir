module {
  func.func @layer(%arg0: tensor<?x64xbf16> {moe.name = "hidden_states", moe.role = "input"}, %arg1: tensor<8x64xbf16> {moe.name = "gate.weight", moe.role = "weight"}, %arg2: tensor<8xf32> {moe.name = "gate.selection_bias", moe.role = "weight"}, %arg3: tensor<3x64x16xbf16> {moe.name = "experts.w13", moe.role = "weight"}, %arg4: tensor<3x64xbf16> {moe.name = "experts.w13_bias", moe.role = "weight"}, %arg5: tensor<3x16x32xbf16> {moe.name = "experts.w2", moe.role = "weight"}, %arg6: tensor<3x16xbf16> {moe.name = "experts.w2_bias", moe.role = "weight"}, %arg7: tensor<96x64xbf16> {moe.name = "shared_experts.w13", moe.role = "weight"}, %arg8: tensor<64x48xbf16> {moe.name = "shared_experts.w2", moe.role = "weight"}, %arg9: tensor<1x64xbf16> {moe.name = "shared_experts.gate", moe.role = "weight"}, %arg10: tensor<16x64xbf16> {moe.name = "latent.down", moe.role = "weight"}, %arg11: tensor<64x16xbf16> {moe.name = "latent.up", moe.role = "weight"}) -> (tensor<?x64xbf16> {moe.name = "output"}) {
    %0 = moe.layer %arg0 : tensor<?x64xbf16> gate(%arg1 : tensor<8x64xbf16>) selection_bias(%arg2 : tensor<8xf32>) latent_down(%arg10 : tensor<16x64xbf16>) latent_up(%arg11 : tensor<64x16xbf16>) w13_bias(%arg4 : tensor<3x64xbf16>) w2_bias(%arg6 : tensor<3x16xbf16>) shared_w13(%arg7 : tensor<96x64xbf16>) shared_w2(%arg8 : tensor<64x48xbf16>) shared_gate(%arg9 : tensor<1x64xbf16>) experts(%arg3, %arg5 : tensor<3x64x16xbf16>, tensor<3x16x32xbf16>) score {
    ^bb0(%arg12: f32):
      %cst = arith.constant 1.000000e+00 : f32
      %1 = arith.negf %arg12 : f32
      %2 = math.exp %1 : f32
      %3 = arith.addf %cst, %2 : f32
      %4 = arith.divf %cst, %3 : f32
      moe.yield %4 : f32
    } activation {
    ^bb0(%arg12: f32, %arg13: f32):
      %1 = moe.param "limit"
      %2 = arith.minimumf %arg12, %1 : f32
      %3 = arith.minimumf %arg13, %1 : f32
      %4 = arith.negf %1 : f32
      %5 = arith.maximumf %3, %4 : f32
      %6 = moe.param "alpha"
      %7 = arith.mulf %6, %2 : f32
      %cst = arith.constant 1.000000e+00 : f32
      %8 = arith.negf %7 : f32
      %9 = math.exp %8 : f32
      %10 = arith.addf %cst, %9 : f32
      %11 = arith.divf %cst, %10 : f32
      %12 = arith.mulf %2, %11 : f32
      %cst_0 = arith.constant 1.000000e+00 : f32
      %13 = arith.addf %5, %cst_0 : f32
      %14 = arith.mulf %13, %12 : f32
      moe.yield %14 : f32
    } {activation_params = {alpha = 1.700000e+00 : f32, limit = 7.000000e+00 : f32}, layout = #moe.weight_layout<order = interleaved>, max_tokens = 128 : i64, placement = #moe.placement<8, local = [0, 2, 5]>, routing = #moe.routing<top_k = 2, num_groups = 4, topk_groups = 2, group_score = top2_sum, renormalize = true, renormalize_epsilon = 9.99999968E-21 : f32, scale = 2.500000e+00 : f32, nonfinite = neg_inf>} -> tensor<?x64xbf16>
    return %0 : tensor<?x64xbf16>
  }
}
