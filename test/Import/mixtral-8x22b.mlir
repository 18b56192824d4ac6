// RUN: moe-opt %s -o %t.expected
// RUN: moe-compile %models/mixtral-8x22b.json --emit=moe | moe-opt - -o %t.actual
// RUN: diff %t.expected %t.actual

// 8 experts of 16384, the 2 most probable by softmax over all 8, their weights renormalized.

func.func @"mixtral-8x22b"(
    %hidden_states: tensor<?x6144xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate_weight: tensor<8x6144xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %w13: tensor<8x32768x6144xbf16> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<8x6144x16384xbf16> {moe.name = "experts.w2", moe.role = "weight"})
    -> (tensor<?x6144xbf16> {moe.name = "output"}) {
  %output = moe.layer %hidden_states : tensor<?x6144xbf16>
      gate(%gate_weight : tensor<8x6144xbf16>)
      experts(%w13, %w2 : tensor<8x32768x6144xbf16>, tensor<8x6144x16384xbf16>)
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
       routing = #moe.routing<top_k = 2, softmax = all, renormalize = true>}
      -> tensor<?x6144xbf16>
  return %output : tensor<?x6144xbf16>
}
