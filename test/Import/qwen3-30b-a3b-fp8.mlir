// RUN: moe-opt %s -o %t.expected
// RUN: moe-compile %models/qwen3-30b-a3b-fp8.json --emit=moe | moe-opt - -o %t.actual
// RUN: diff %t.expected %t.actual

// As qwen3-30b-a3b, with expert weights in e4m3 and a scale for each block of 128 x 128:
// 1536 / 128 = 12 and 768 / 128 = 6 blocks against 2048 / 128 = 16. The router stays in bf16.

func.func @"qwen3-30b-a3b-fp8"(
    %hidden_states: tensor<?x2048xbf16> {moe.name = "hidden_states", moe.role = "input"},
    %gate_weight: tensor<128x2048xbf16> {moe.name = "gate.weight", moe.role = "weight"},
    %w13: tensor<128x1536x2048xf8E4M3FN> {moe.name = "experts.w13", moe.role = "weight"},
    %w13_scale: tensor<128x12x16xf32> {moe.name = "experts.w13_scale", moe.role = "weight"},
    %w2: tensor<128x2048x768xf8E4M3FN> {moe.name = "experts.w2", moe.role = "weight"},
    %w2_scale: tensor<128x16x6xf32> {moe.name = "experts.w2_scale", moe.role = "weight"})
    -> (tensor<?x2048xbf16> {moe.name = "output"}) {
  %output = moe.layer %hidden_states : tensor<?x2048xbf16>
      gate(%gate_weight : tensor<128x2048xbf16>)
      w13_scale(%w13_scale : tensor<128x12x16xf32>)
      w2_scale(%w2_scale : tensor<128x16x6xf32>)
      experts(%w13, %w2 : tensor<128x1536x2048xf8E4M3FN>, tensor<128x2048x768xf8E4M3FN>)
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
       routing = #moe.routing<top_k = 8, softmax = all, renormalize = true>,
       weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>,
       activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>}
      -> tensor<?x2048xbf16>
  return %output : tensor<?x2048xbf16>
}
