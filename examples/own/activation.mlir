// A layer with a custom activation, a gated softsign: moe-run activation.mlir --tokens=16
// (docs/howto/add-an-op.md). The page lists the ops that the region may contain; on every target it becomes the
// epilogue of the gate and up gemm.
func.func @layer(
    %x: tensor<?x64xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate: tensor<8x64xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %w13: tensor<8x96x64xbf16> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<8x64x48xbf16> {moe.name = "experts.w2", moe.role = "weight"})
    -> (tensor<?x64xbf16> {moe.name = "output"}) {
  %y = moe.layer %x : tensor<?x64xbf16> gate(%gate : tensor<8x64xbf16>)
      experts(%w13, %w2 : tensor<8x96x64xbf16>, tensor<8x64x48xbf16>)
      activation {
      // g / (1 + |g|) * (slope * u)
      ^bb0(%g: f32, %u: f32):
        %slope = moe.param "slope"
        %one = arith.constant 1.0 : f32
        %abs = math.absf %g : f32
        %sum = arith.addf %one, %abs : f32
        %soft = arith.divf %g, %sum : f32
        %up = arith.mulf %u, %slope : f32
        %a = arith.mulf %soft, %up : f32
        moe.yield %a : f32
      } {activation_params = {slope = 0.5 : f32},
         layout = #moe.weight_layout<order = gate_up>, max_tokens = 256 : i64,
         routing = #moe.routing<top_k = 2, softmax = all, renormalize = true>}
      -> tensor<?x64xbf16>
  return %y : tensor<?x64xbf16>
}
