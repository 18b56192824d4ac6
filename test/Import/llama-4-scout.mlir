// RUN: moe-opt %s -o %t.expected
// RUN: moe-compile %models/llama-4-scout.json --emit=moe | moe-opt - -o %t.actual
// RUN: diff %t.expected %t.actual

// 16 experts of 8192, the one with the largest logit; the sigmoid of that logit multiplies the input of
// the expert, not its output. A shared expert of 8192. The fields stand in text_config.

func.func @"llama-4-scout"(
    %hidden_states: tensor<?x5120xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate_weight: tensor<16x5120xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %w13: tensor<16x16384x5120xbf16> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<16x5120x8192xbf16> {moe.name = "experts.w2", moe.role = "weight"},
    %shared_w13: tensor<16384x5120xbf16> {moe.name = "shared_experts.w13", moe.role = "weight"},
    %shared_w2: tensor<5120x8192xbf16> {moe.name = "shared_experts.w2", moe.role = "weight"})
    -> (tensor<?x5120xbf16> {moe.name = "output"}) {
  %output = moe.layer %hidden_states : tensor<?x5120xbf16>
      gate(%gate_weight : tensor<16x5120xbf16>)
      shared_w13(%shared_w13 : tensor<16384x5120xbf16>)
      shared_w2(%shared_w2 : tensor<5120x8192xbf16>)
      experts(%w13, %w2 : tensor<16x16384x5120xbf16>, tensor<16x5120x8192xbf16>)
      weight {
      ^bb0(%logit: f32):
        %bound = arith.constant -64.0 : f32
        %is_far = arith.cmpf ogt, %bound, %logit : f32
        %negated = arith.negf %logit : f32
        %argument = arith.select %is_far, %logit, %negated : f32
        %power = math.exp %argument : f32
        %one = arith.constant 1.0 : f32
        %sum = arith.addf %one, %power : f32
        %near = arith.divf %one, %sum : f32
        %sigmoid = arith.select %is_far, %power, %near : f32
        moe.yield %sigmoid : f32
      }
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
       routing = #moe.routing<top_k = 1>,
       weight_on_input}
      -> tensor<?x5120xbf16>
  return %output : tensor<?x5120xbf16>
}
