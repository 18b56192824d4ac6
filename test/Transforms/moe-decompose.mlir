// RUN: moe-opt %s --split-input-file --moe-decompose | FileCheck %s

// Gate, softmax over all experts, gated activation with a parameter.
// CHECK-LABEL: func.func @gate
// CHECK-SAME: (%[[X:.*]]: tensor<?x64xbf16> {{.*}}, %[[G:.*]]: tensor<8x64xbf16> {{.*}}, %[[W13:.*]]: tensor<8x32x64xbf16> {{.*}}, %[[W2:.*]]: tensor<8x64x16xbf16> {{.*}})
// CHECK-SAME: moe.max_tokens = 256 : i64
// CHECK-NOT: moe.layer
// CHECK: %[[L:.*]] = moe.grouped_matmul %[[X]], %[[G]] : tensor<?x64xbf16>, tensor<8x64xbf16> {moe.name = ["router_logits"]} -> tensor<?x8xf32>
// CHECK: %[[IDS:.*]], %[[WT:.*]] = moe.route %[[L]] : tensor<?x8xf32> <top_k = 2, softmax = all, renormalize = true>
// CHECK-SAME: {moe.name = ["topk_ids", "topk_weights"]} -> tensor<?x2xi32>, tensor<?x2xf32>
// CHECK: %[[OFF:.*]], %[[POS:.*]], %[[SRC:.*]], %[[RW:.*]] = moe.permute %[[IDS]], %[[WT]]
// CHECK-SAME: moe.name = ["expert_offsets", "position", "source", "row_weight"], num_experts = 8 : i64
// CHECK-SAME: -> tensor<9xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
// CHECK: %[[H:.*]] = moe.grouped_matmul %[[X]], %[[W13]] {{.*}} offsets(%[[OFF]] : tensor<9xi32>) source(%[[SRC]] : tensor<?xi32>) epilogue {
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[U:.*]]: f32):
// CHECK-NEXT: %[[LIMIT:.*]] = arith.constant 7.000000e+00 : f32
// CHECK-NEXT: %[[A2:.*]] = arith.minimumf %[[A]], %[[LIMIT]] : f32
// CHECK-NEXT: %[[Y:.*]] = arith.mulf %[[A2]], %[[U]] : f32
// CHECK-NEXT: moe.yield %[[Y]] : f32
// CHECK-NEXT: } {layout = #moe.weight_layout<order = gate_up>, moe.name = ["experts_hidden"]} -> tensor<?x16xbf16>
// CHECK: %[[O:.*]] = moe.grouped_matmul %[[H]], %[[W2]] {{.*}} offsets(%[[OFF]] : tensor<9xi32>) rows(%[[RW]] : tensor<?x1xf32>) epilogue {
// CHECK-NEXT: ^bb0(%[[ACC:.*]]: f32, %[[W:.*]]: f32):
// CHECK-NEXT: %[[Y2:.*]] = arith.mulf %[[ACC]], %[[W]] : f32
// CHECK-NEXT: moe.yield %[[Y2]] : f32
// CHECK-NEXT: } {moe.name = ["experts_out"]} -> tensor<?x64xbf16>
// CHECK: %[[R:.*]] = moe.unpermute %[[O]], %[[POS]] : tensor<?x64xbf16>, tensor<?x2xi32> {moe.name = ["output"]} -> tensor<?x64xbf16>
// CHECK: return %[[R]]
func.func @gate(%x: tensor<?x64xbf16> {moe.name = "hidden_states", moe.role = "input"},
                %g: tensor<8x64xbf16> {moe.name = "gate.weight", moe.role = "weight"},
                %w13: tensor<8x32x64xbf16> {moe.name = "experts.w13", moe.role = "weight"},
                %w2: tensor<8x64x16xbf16> {moe.name = "experts.w2", moe.role = "weight"})
    -> (tensor<?x64xbf16> {moe.name = "output"}) {
  %0 = moe.layer %x : tensor<?x64xbf16> gate(%g : tensor<8x64xbf16>)
      experts(%w13, %w2 : tensor<8x32x64xbf16>, tensor<8x64x16xbf16>)
      activation {
      ^bb0(%gate: f32, %up: f32):
        %limit = moe.param "limit"
        %a = arith.minimumf %gate, %limit : f32
        %y = arith.mulf %a, %up : f32
        moe.yield %y : f32
      } {activation_params = {limit = 7.0 : f32}, layout = #moe.weight_layout<order = gate_up>,
         max_tokens = 256 : i64,
         routing = #moe.routing<top_k = 2, softmax = all, renormalize = true>}
      -> tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// -----

// Everything at once: biases, score and weight regions, latent path, zero
// expert, gated shared expert, padding rows.
// CHECK-LABEL: func.func @everything
// CHECK-SAME: (%[[X:.*]]: tensor<?x64xbf16>, %[[N:.*]]: tensor<1xi32>, %[[G:.*]]: tensor<9x64xbf16>, %[[GB:.*]]: tensor<9xf32>, %[[SB:.*]]: tensor<9xf32>, %[[ES:.*]]: tensor<9xf32>, %[[W13:.*]]: tensor<8x32x32xbf16>, %[[B13:.*]]: tensor<8x32xbf16>, %[[W2:.*]]: tensor<8x32x16xbf16>, %[[B2:.*]]: tensor<8x32xbf16>, %[[S13:.*]]: tensor<96x64xbf16>, %[[S2:.*]]: tensor<64x48xbf16>, %[[SG:.*]]: tensor<1x64xbf16>, %[[DOWN:.*]]: tensor<32x64xbf16>, %[[UP:.*]]: tensor<64x32xbf16>)
// CHECK: %[[L:.*]] = moe.grouped_matmul %[[X]], %[[G]] {{.*}} columns(%[[GB]] : tensor<9xf32>) epilogue {
// CHECK: arith.addf
// CHECK: moe.name = ["router_logits"]
// CHECK: %[[IDS:.*]], %[[WT:.*]] = moe.route %[[L]] {{.*}} selection_bias(%[[SB]] : tensor<9xf32>) expert_scale(%[[ES]] : tensor<9xf32>) num_valid_tokens(%[[N]] : tensor<1xi32>)
// CHECK-SAME: <top_k = 2, num_groups = 3, topk_groups = 2> score {
// CHECK: math.exp
// CHECK: } weight {
// CHECK: arith.negf
// CHECK: moe.permute %[[IDS]], %[[WT]] num_valid_tokens(%[[N]] : tensor<1xi32>)
// CHECK-SAME: num_experts = 8 : i64, num_zero_experts = 1 : i64
// CHECK: %[[LX:.*]] = moe.grouped_matmul %[[X]], %[[DOWN]] {{.*}} {moe.name = ["latent_in"]} -> tensor<?x32xbf16>
// CHECK: %[[H:.*]] = moe.grouped_matmul %[[LX]], %[[W13]] {{.*}} columns(%[[B13]] : tensor<8x32xbf16>) epilogue {
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[U:.*]]: f32, %[[AB:.*]]: f32, %[[UB:.*]]: f32):
// CHECK-NEXT: %[[A1:.*]] = arith.addf %[[A]], %[[AB]] : f32
// CHECK-NEXT: %[[U1:.*]] = arith.addf %[[U]], %[[UB]] : f32
// CHECK-NEXT: arith.mulf %[[A1]], %[[U1]] : f32
// CHECK: %[[O:.*]] = moe.grouped_matmul %[[H]], %[[W2]] {{.*}} rows(%{{.*}} : tensor<?x1xf32>) columns(%[[B2]] : tensor<8x32xbf16>) epilogue {
// CHECK-NEXT: ^bb0(%[[ACC:.*]]: f32, %[[W:.*]]: f32, %[[B:.*]]: f32):
// CHECK-NEXT: %[[Y1:.*]] = arith.addf %[[ACC]], %[[B]] : f32
// CHECK-NEXT: %[[Y2:.*]] = arith.mulf %[[Y1]], %[[W]] : f32
// CHECK: %[[SGV:.*]] = moe.grouped_matmul %[[X]], %[[SG]]
// CHECK: ^bb0(%[[SA:.*]]: f32):
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK-DAG: %[[NEG:.*]] = arith.negf %[[SA]] : f32
// CHECK: %[[EXP:.*]] = math.exp %[[NEG]] : f32
// CHECK: %[[DEN:.*]] = arith.addf %[[ONE]], %[[EXP]] : f32
// CHECK: arith.divf %[[ONE]], %[[DEN]] : f32
// CHECK: {moe.name = ["shared_gate"]} -> tensor<?x1xf32>
// CHECK: %[[SH:.*]] = moe.grouped_matmul %[[X]], %[[S13]]
// CHECK: layout = #moe.weight_layout<order = interleaved>, moe.name = ["shared_hidden"]} -> tensor<?x48xbf16>
// CHECK: %[[S:.*]] = moe.grouped_matmul %[[SH]], %[[S2]] {{.*}} rows(%[[SGV]] : tensor<?x1xf32>) epilogue {
// CHECK: moe.name = ["shared_out"]} -> tensor<?x64xbf16>
// CHECK: %[[R:.*]] = moe.unpermute %[[O]], %{{.*}} identity(%[[LX]], %[[WT]] : tensor<?x32xbf16>, tensor<?x2xf32>) num_valid_tokens(%[[N]] : tensor<1xi32>) {moe.name = ["routed_out"]} -> tensor<?x32xbf16>
// CHECK: moe.grouped_matmul %[[R]], %[[UP]] {{.*}} num_valid_tokens(%[[N]] : tensor<1xi32>) elementwise(%[[S]] : tensor<?x64xbf16>) epilogue {
// CHECK: moe.name = ["output"]} -> tensor<?x64xbf16>
func.func @everything(%x: tensor<?x64xbf16>, %n: tensor<1xi32>, %g: tensor<9x64xbf16>, %gb: tensor<9xf32>,
    %sb: tensor<9xf32>, %es: tensor<9xf32>, %w13: tensor<8x32x32xbf16>, %b13: tensor<8x32xbf16>,
    %w2: tensor<8x32x16xbf16>, %b2: tensor<8x32xbf16>, %s13: tensor<96x64xbf16>, %s2: tensor<64x48xbf16>,
    %sg: tensor<1x64xbf16>, %down: tensor<32x64xbf16>, %up: tensor<64x32xbf16>) -> tensor<?x64xbf16> {
  %0 = moe.layer %x : tensor<?x64xbf16> gate(%g : tensor<9x64xbf16>) gate_bias(%gb : tensor<9xf32>)
      selection_bias(%sb : tensor<9xf32>) expert_scale(%es : tensor<9xf32>) num_valid_tokens(%n : tensor<1xi32>)
      latent_down(%down : tensor<32x64xbf16>) latent_up(%up : tensor<64x32xbf16>)
      w13_bias(%b13 : tensor<8x32xbf16>) w2_bias(%b2 : tensor<8x32xbf16>)
      shared_w13(%s13 : tensor<96x64xbf16>) shared_w2(%s2 : tensor<64x48xbf16>) shared_gate(%sg : tensor<1x64xbf16>)
      experts(%w13, %w2 : tensor<8x32x32xbf16>, tensor<8x32x16xbf16>)
      score {
      ^bb0(%l: f32):
        %e = math.exp %l : f32
        moe.yield %e : f32
      }
      weight {
      ^bb0(%v: f32):
        %m = arith.negf %v : f32
        moe.yield %m : f32
      }
      activation {
      ^bb0(%gate: f32, %u: f32):
        %y = arith.mulf %gate, %u : f32
        moe.yield %y : f32
      } {layout = #moe.weight_layout<order = interleaved>, num_zero_experts = 1 : i64,
         routing = #moe.routing<top_k = 2, num_groups = 3, topk_groups = 2>}
      -> tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// -----

// Entry with ids: no routing; the weight goes on the input once and never on
// the rows. A shared expert without gate or latent path is an addend.
// CHECK-LABEL: func.func @ids
// CHECK-SAME: (%[[X:.*]]: tensor<?x32xf16>, %[[IDS:.*]]: tensor<?x1xi32>, %[[WT:.*]]: tensor<?x1xf32>,
// CHECK-NOT: moe.route
// CHECK: moe.permute %[[IDS]], %[[WT]]
// CHECK: %[[WX:.*]] = moe.row_map %[[X]] : tensor<?x32xf16> rows(%[[WT]] : tensor<?x1xf32>) {
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32):
// CHECK-NEXT: %[[P:.*]] = arith.mulf %[[A]], %[[B]] : f32
// CHECK-NEXT: moe.yield %[[P]] : f32
// CHECK-NEXT: } {moe.name = ["weighted_input"]} -> tensor<?x32xf16>
// CHECK: %[[H:.*]] = moe.grouped_matmul %[[WX]],
// CHECK: %[[O:.*]] = moe.grouped_matmul %[[H]], %{{.*}} offsets(%{{.*}} : tensor<5xi32>) {moe.name = ["experts_out"]}
// CHECK: %[[SH:.*]] = moe.grouped_matmul %[[X]]
// CHECK: %[[S:.*]] = moe.grouped_matmul %[[SH]], %{{.*}} {moe.name = ["shared_out"]}
// CHECK: moe.unpermute %[[O]], %{{.*}} addend(%[[S]] : tensor<?x32xf16>) {moe.name = ["output"]}
func.func @ids(%x: tensor<?x32xf16>, %ids: tensor<?x1xi32>, %wt: tensor<?x1xf32>, %w13: tensor<4x16x32xf16>,
    %w2: tensor<4x32x16xf16>, %s13: tensor<24x32xf16>, %s2: tensor<32x24xf16>) -> tensor<?x32xf16> {
  %0 = moe.layer %x : tensor<?x32xf16> ids(%ids : tensor<?x1xi32>) weights(%wt : tensor<?x1xf32>)
      shared_w13(%s13 : tensor<24x32xf16>) shared_w2(%s2 : tensor<32x24xf16>)
      experts(%w13, %w2 : tensor<4x16x32xf16>, tensor<4x32x16xf16>)
      activation {
      ^bb0(%a: f32):
        %y = arith.mulf %a, %a : f32
        moe.yield %y : f32
      } {weight_on_input}
      -> tensor<?x32xf16>
  return %0 : tensor<?x32xf16>
}

// -----

// Entry with logits, experts by a hash table, only some experts on this rank.
// CHECK-LABEL: func.func @logits_hash_placement
// CHECK-SAME: (%[[X:.*]]: tensor<?x32xf32>, %[[L:.*]]: tensor<?x8xf32>, %[[II:.*]]: tensor<?xi32>, %[[T:.*]]: tensor<100x2xi32>,
// CHECK-NOT: grouped_matmul
// CHECK: moe.route %[[L]] : tensor<?x8xf32> input_ids(%[[II]] : tensor<?xi32>) hash_table(%[[T]] : tensor<100x2xi32>) <top_k = 2, select = hash>
// CHECK: moe.permute {{.*}}local_experts = array<i64: 4, 5, 7>
// CHECK-SAME: num_experts = 8 : i64{{.*}} -> tensor<4xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
func.func @logits_hash_placement(%x: tensor<?x32xf32>, %l: tensor<?x8xf32>, %ii: tensor<?xi32>,
    %t: tensor<100x2xi32>, %w13: tensor<3x16x32xf32>, %w2: tensor<3x32x16xf32>) -> tensor<?x32xf32> {
  %0 = moe.layer %x : tensor<?x32xf32> logits(%l : tensor<?x8xf32>) input_ids(%ii : tensor<?xi32>)
      hash_table(%t : tensor<100x2xi32>)
      experts(%w13, %w2 : tensor<3x16x32xf32>, tensor<3x32x16xf32>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } {placement = #moe.placement<8, local = [4, 5, 7]>, routing = #moe.routing<top_k = 2, select = hash>}
      -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}

// -----

// Two layers, one after the other.
// CHECK-LABEL: func.func @stacked
// CHECK-COUNT-2: moe.unpermute
// CHECK-NOT: moe.unpermute
func.func @stacked(%x: tensor<?x32xf32>, %ids: tensor<?x2xi32>, %wt: tensor<?x2xf32>,
    %w13: tensor<3x16x32xf32>, %w2: tensor<3x32x16xf32>) -> tensor<?x32xf32> {
  %0 = moe.layer %x : tensor<?x32xf32> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<3x16x32xf32>, tensor<3x32x16xf32>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } -> tensor<?x32xf32>
  %1 = moe.layer %0 : tensor<?x32xf32> ids(%ids : tensor<?x2xi32>) weights(%wt : tensor<?x2xf32>)
      experts(%w13, %w2 : tensor<3x16x32xf32>, tensor<3x32x16xf32>)
      activation {
      ^bb0(%a: f32):
        moe.yield %a : f32
      } -> tensor<?x32xf32>
  return %1 : tensor<?x32xf32>
}
