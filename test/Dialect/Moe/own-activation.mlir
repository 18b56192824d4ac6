// The layer of docs/adding-an-activation.md: an activation that no model has, down to vectors.
// RUN: moe-opt %s --moe-decompose | FileCheck %s --check-prefix=MOE
// RUN: moe-opt %s --moe-decompose --convert-moe-to-plan --convert-plan-to-tile \
// RUN:     --tile-split-phases --tile-assign-config=lanes=8 --convert-tile-to-vector \
// RUN:   | FileCheck %s --check-prefix=VECTOR

// MOE: %experts_hidden = moe.grouped_matmul
// MOE: %[[SLOPE:.*]] = arith.constant 5.000000e-01 : f32
// MOE: arith.mulf %{{.*}}, %[[SLOPE]] : f32

// VECTOR: func.func @experts_hidden
// VECTOR: math.absf %{{.*}} : vector<8xf32>
// VECTOR: arith.divf %{{.*}}, %{{.*}} : vector<8xf32>

func.func @layer(
    %x: tensor<?x64xf32> {moe.name = "hidden_states", moe.role = "input"},
    %gate: tensor<8x64xf32> {moe.name = "gate.weight", moe.role = "weight"},
    %w13: tensor<8x96x64xf32> {moe.name = "experts.w13", moe.role = "weight"},
    %w2: tensor<8x64x48xf32> {moe.name = "experts.w2", moe.role = "weight"})
    -> (tensor<?x64xf32> {moe.name = "output"}) {
  %y = moe.layer %x : tensor<?x64xf32> gate(%gate : tensor<8x64xf32>)
      experts(%w13, %w2 : tensor<8x96x64xf32>, tensor<8x64x48xf32>)
      activation {
      // A gated softsign: g / (1 + |g|) * (slope * u).
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
      -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
