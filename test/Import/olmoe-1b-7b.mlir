// RUN: moe-opt %s -o %t.expected
// RUN: moe-compile %models/olmoe-1b-7b.json --emit=moe | moe-opt - -o %t.actual
// RUN: diff %t.expected %t.actual

// 64 experts of 1024 (intermediate_size), the 8 most probable by softmax; norm_topk_prob is false, so
// the weights are the probabilities themselves.

func.func @"olmoe-1b-7b"(
    %hidden_states: tensor<?x2048xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate_weight: tensor<64x2048xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %w13: tensor<64x2048x2048xbf16> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<64x2048x1024xbf16> {moe.name = "experts.w2", moe.role = "weight"})
    -> (tensor<?x2048xbf16> {moe.name = "output"}) {
  %output = moe.layer %hidden_states : tensor<?x2048xbf16>
      gate(%gate_weight : tensor<64x2048xbf16>)
      experts(%w13, %w2 : tensor<64x2048x2048xbf16>, tensor<64x2048x1024xbf16>)
      activation {
      ^bb0(%gate: f32, %up: f32):
        %one = arith.constant 1.0 : f32
        %negated = arith.negf %gate : f32
        %exp = math.exp %negated : f32
        %sum = arith.addf %one, %exp : f32
        %sigmoid = arith.divf %one, %sum : f32
        %silu = arith.mulf %gate, %sigmoid : f32
        %product = arith.mulf %silu, %up : f32
        moe.yield %product : f32
      }
      {layout = #moe.weight_layout<order = gate_up>,
       routing = #moe.routing<top_k = 8, softmax = all>}
      -> tensor<?x2048xbf16>
  return %output : tensor<?x2048xbf16>
}
