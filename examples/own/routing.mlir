// A layer with a custom router: moe-run routing.mlir --tokens=16 (docs/howto/add-an-op.md). The regions `score`, `key`
// and `weight` are arbitrary functions of one expert's values. `routing` selects among experts: here the best two of
// four groups by their keys, then the best three experts in them.
func.func @layer(
    %x: tensor<?x64xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate: tensor<16x64xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %bias: tensor<16xf32> {moe.name = "gate.selection_bias", moe.role = "weight"},
    %w13: tensor<16x96x64xbf16> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<16x64x48xbf16> {moe.name = "experts.w2", moe.role = "weight"})
    -> (tensor<?x64xbf16> {moe.name = "output"}) {
  %y = moe.layer %x : tensor<?x64xbf16> gate(%gate : tensor<16x64xbf16>)
      selection_bias(%bias : tensor<16xf32>)
      experts(%w13, %w2 : tensor<16x96x64xbf16>, tensor<16x64x48xbf16>)
      score {
      // Between 0 and 1 like a sigmoid, with longer tails: (1 + l / (1 + |l|)) / 2
      ^bb0(%logit: f32):
        %half = arith.constant 0.5 : f32
        %one = arith.constant 1.0 : f32
        %abs = math.absf %logit : f32
        %sum = arith.addf %one, %abs : f32
        %soft = arith.divf %logit, %sum : f32
        %s = math.fma %soft, %half, %half : f32
        moe.yield %s : f32
      } key {
      // Selection key: the bias is a factor, not a summand.
      ^bb0(%s: f32, %b: f32):
        %k = math.fma %s, %b, %s : f32
        moe.yield %k : f32
      } weight {
      // Weights of selected experts are the squares of their scores.
      ^bb0(%s: f32):
        %w = arith.mulf %s, %s : f32
        moe.yield %w : f32
      } activation {
      ^bb0(%g: f32, %u: f32):
        %one = arith.constant 1.0 : f32
        %less = arith.negf %g : f32
        %exp = math.exp %less : f32
        %sum = arith.addf %one, %exp : f32
        %silu = arith.divf %g, %sum : f32
        %a = arith.mulf %silu, %u : f32
        moe.yield %a : f32
      } {layout = #moe.weight_layout<order = gate_up>, max_tokens = 256 : i64,
         routing = #moe.routing<top_k = 3, num_groups = 4, topk_groups = 2, group_score = top2_sum,
                                renormalize = true, scale = 2.5 : f32>}
      -> tensor<?x64xbf16>
  return %y : tensor<?x64xbf16>
}
