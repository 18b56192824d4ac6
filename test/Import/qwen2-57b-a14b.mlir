// RUN: moe-opt %s -o %t.expected
// RUN: moe-compile %models/qwen2-57b-a14b.json --emit=moe | moe-opt - -o %t.actual
// RUN: diff %t.expected %t.actual

// 64 experts of 2560, the 8 most probable by softmax, not renormalized; a shared expert of 20480 times
// the sigmoid of its own gate.

func.func @"qwen2-57b-a14b"(
    %hidden_states: tensor<?x3584xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate_weight: tensor<64x3584xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %w13: tensor<64x5120x3584xbf16> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<64x3584x2560xbf16> {moe.name = "experts.w2", moe.role = "weight"},
    %shared_w13: tensor<40960x3584xbf16> {moe.name = "shared_experts.w13", moe.role = "weight"},
    %shared_w2: tensor<3584x20480xbf16> {moe.name = "shared_experts.w2", moe.role = "weight"},
    %shared_gate: tensor<1x3584xbf16> {moe.name = "shared_experts.gate", moe.role = "weight"})
    -> (tensor<?x3584xbf16> {moe.name = "output"}) {
  %output = moe.layer %hidden_states : tensor<?x3584xbf16>
      gate(%gate_weight : tensor<64x3584xbf16>)
      shared_w13(%shared_w13 : tensor<40960x3584xbf16>)
      shared_w2(%shared_w2 : tensor<3584x20480xbf16>)
      shared_gate(%shared_gate : tensor<1x3584xbf16>)
      experts(%w13, %w2 : tensor<64x5120x3584xbf16>, tensor<64x3584x2560xbf16>)
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
      -> tensor<?x3584xbf16>
  return %output : tensor<?x3584xbf16>
}
