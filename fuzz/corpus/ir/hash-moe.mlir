module {
  func.func @hash(%arg0: tensor<?x64xbf16> {moe.name = "hidden_states", moe.role = "input"}, %arg1: tensor<?xi32> {moe.name = "input_ids", moe.role = "input"}, %arg2: tensor<8x64xbf16> {moe.name = "gate.weight", moe.role = "weight"}, %arg3: tensor<100x2xi32> {moe.name = "gate.hash_table", moe.role = "weight"}, %arg4: tensor<8x64x64xbf16> {moe.name = "experts.w13", moe.role = "weight"}, %arg5: tensor<8x64x32xbf16> {moe.name = "experts.w2", moe.role = "weight"}) -> (tensor<?x64xbf16> {moe.name = "output"}) {
    %0 = moe.layer %arg0 : tensor<?x64xbf16> gate(%arg2 : tensor<8x64xbf16>) input_ids(%arg1 : tensor<?xi32>) hash_table(%arg3 : tensor<100x2xi32>) experts(%arg4, %arg5 : tensor<8x64x64xbf16>, tensor<8x64x32xbf16>) score {
    ^bb0(%arg6: f32):
      %1 = math.exp %arg6 : f32
      %2 = math.log1p %1 : f32
      %cst = arith.constant 2.000000e+01 : f32
      %3 = arith.cmpf ogt, %arg6, %cst : f32
      %4 = arith.select %3, %arg6, %2 : f32
      %5 = math.sqrt %4 : f32
      moe.yield %5 : f32
    } activation {
    ^bb0(%arg6: f32, %arg7: f32):
      %1 = moe.param "beta"
      %2 = arith.divf %arg6, %1 : f32
      %3 = math.tanh %2 : f32
      %4 = arith.mulf %1, %3 : f32
      %cst = arith.constant 1.000000e+00 : f32
      %5 = arith.negf %arg6 : f32
      %6 = math.exp %5 : f32
      %7 = arith.addf %cst, %6 : f32
      %8 = arith.divf %cst, %7 : f32
      %9 = arith.mulf %4, %8 : f32
      %10 = moe.param "linear_beta"
      %11 = arith.divf %arg7, %10 : f32
      %12 = math.tanh %11 : f32
      %13 = arith.mulf %10, %12 : f32
      %14 = arith.mulf %9, %13 : f32
      moe.yield %14 : f32
    } {activation_params = {beta = 4.000000e+00 : f32, linear_beta = 2.500000e+01 : f32}, layout = #moe.weight_layout<order = gate_up>, routing = #moe.routing<top_k = 2, select = hash, nonfinite = lowest>} -> tensor<?x64xbf16>
    return %0 : tensor<?x64xbf16>
  }
}
