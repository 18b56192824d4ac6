// The router excludes padding, or moe.place_ids if the caller routes, and the epilogue of the last gemm that adds to
// the output; recorded values are returned unchanged.
// RUN: moe-opt %s -pass-pipeline='builtin.module(func.func(moe-decompose))' | FileCheck %s

// CHECK-LABEL: func.func @routed
// CHECK: %[[IDS:.*]], %[[WEIGHTS:.*]] = moe.route %{{.*}} is_padding(%{{.*}} : tensor<?xi8>)
// CHECK: %[[PLACED:.*]] = moe.place_ids %[[IDS]] : tensor<?x2xi32> table(%{{.*}} : tensor<4x3xi32>)
// CHECK-SAME: replica_counts(%{{.*}} : tensor<4xi32>) {moe.name = ["placed_ids"]}
// CHECK: %[[OFFSETS:.*]], %{{.*}}, %{{.*}}, %{{.*}} = moe.permute %[[PLACED]], %[[WEIGHTS]]
// CHECK-SAME: num_experts = 6 : i64
// CHECK: %[[SHARED:.*]] = moe.grouped_matmul {{.*}} rows(%{{.*}} : tensor<?xi8>) epilogue {
// CHECK-NEXT: ^bb0(%[[ACC:.*]]: f32, %[[MASK:.*]]: f32):
// CHECK: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: %[[IS:.*]] = arith.cmpf one, %[[MASK]], %[[ZERO]] : f32
// CHECK: arith.select %[[IS]], %[[ZERO]], %[[ACC]] : f32
// CHECK: %[[Y:.*]] = moe.unpermute {{.*}} addend(%[[SHARED]]
// CHECK: return %[[Y]], %[[IDS]], %[[WEIGHTS]], %[[OFFSETS]]
func.func @routed(%x: tensor<?x16xf32>, %logits: tensor<?x4xf32>, %mask: tensor<?xi8>, %physical: tensor<4x3xi32>,
    %counts: tensor<4xi32>, %w13: tensor<6x12x16xf32>, %w2: tensor<6x16x12xf32>, %s13: tensor<8x16xf32>,
    %s2: tensor<16x8xf32>) -> (tensor<?x16xf32>, tensor<?x2xi32>, tensor<?x2xf32>, tensor<7xi32>) {
  %y, %ids, %weights, %offsets = moe.layer %x : tensor<?x16xf32> logits(%logits : tensor<?x4xf32>)
      is_padding(%mask : tensor<?xi8>) physical_ids(%physical : tensor<4x3xi32>)
      replica_counts(%counts : tensor<4xi32>) shared_w13(%s13 : tensor<8x16xf32>) shared_w2(%s2 : tensor<16x8xf32>)
      experts(%w13, %w2 : tensor<6x12x16xf32>, tensor<6x16x12xf32>) activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32> record(tensor<?x2xi32>, tensor<?x2xf32>)
      load(tensor<7xi32>)
  return %y, %ids, %weights, %offsets : tensor<?x16xf32>, tensor<?x2xi32>, tensor<?x2xf32>, tensor<7xi32>
}

// Rows come in the order of an expert's columns.
// CHECK-LABEL: func.func @columns
// CHECK: %[[OFFSETS:.*]], %{{.*}}, %[[SOURCE:.*]], %{{.*}} = moe.permute
// CHECK: %[[ROWS:.*]] = moe.gather_rows %{{.*}} : tensor<?x16xf32> offsets(%[[OFFSETS]] : tensor<5xi32>)
// CHECK-SAME: source(%[[SOURCE]] : tensor<?xi32>) columns(%{{.*}} : tensor<4x16xi32>)
// CHECK-SAME: {moe.name = ["ordered_input"], top_k = 2 : i64} -> tensor<?x16xf32>
// CHECK: moe.grouped_matmul %[[ROWS]], %{{.*}} offsets(%[[OFFSETS]] : tensor<5xi32>) epilogue
// CHECK: moe.unpermute
func.func @columns(%x: tensor<?x16xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %columns: tensor<4x16xi32>,
    %w13: tensor<4x12x16xf32>, %w2: tensor<4x16x12xf32>) -> tensor<?x16xf32> {
  %y = moe.layer %x : tensor<?x16xf32> ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x2xf32>)
      w13_columns(%columns : tensor<4x16xi32>)
      experts(%w13, %w2 : tensor<4x12x16xf32>, tensor<4x16x12xf32>) activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// Rows are quantized in that order. A scale shared by all rows covers all tokens, whichever experts they have.
// CHECK-LABEL: func.func @quantized_columns
// CHECK: %[[OFFSETS:.*]], %{{.*}}, %{{.*}}, %{{.*}} = moe.permute
// CHECK: %[[ROWS:.*]] = moe.gather_rows %[[X:.*]] : tensor<?x16xf32> offsets(
// CHECK: %[[SCALE:.*]] = moe.tensor_scale {{.*}}> %[[X]] {moe.name = ["hidden_scale"]}
// CHECK: %[[CODES:.*]] = moe.quantize {{.*}}> %[[ROWS]] offsets(%[[OFFSETS]] : tensor<5xi32>) tensor_scale(%[[SCALE]] : tensor<1xf32>)
// CHECK: moe.grouped_matmul %[[CODES]]
func.func @quantized_columns(%x: tensor<?x16xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %columns: tensor<4x16xi32>,
    %w13: tensor<4x12x16xf8E4M3FN>, %w13_scale: tensor<4x1x1xf32>, %w2: tensor<4x16x12xf8E4M3FN>,
    %w2_scale: tensor<4x1x1xf32>) -> tensor<?x16xf32> {
  %y = moe.layer %x : tensor<?x16xf32> ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x2xf32>)
      w13_columns(%columns : tensor<4x16xi32>) w13_scale(%w13_scale : tensor<4x1x1xf32>)
      w2_scale(%w2_scale : tensor<4x1x1xf32>)
      experts(%w13, %w2 : tensor<4x12x16xf8E4M3FN>, tensor<4x16x12xf8E4M3FN>) activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor>,
         activation_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true>}
      -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// Ids of zero experts follow those of physical ones.
// CHECK-LABEL: func.func @zeros
// CHECK: moe.place_ids %{{.*}} : tensor<?x2xi32> table(%{{.*}} : tensor<4x3xi32>)
// CHECK-SAME: {moe.name = ["placed_ids"], zero_experts = array<i64: 4, 3, 6>}
// CHECK: moe.permute {{.*}} {{.*}}num_experts = 6 : i64, num_zero_experts = 3 : i64
func.func @zeros(%x: tensor<?x16xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %physical: tensor<4x3xi32>,
    %counts: tensor<4xi32>, %w13: tensor<6x12x16xf32>, %w2: tensor<6x16x12xf32>) -> tensor<?x16xf32> {
  %y = moe.layer %x : tensor<?x16xf32> ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x2xf32>)
      physical_ids(%physical : tensor<4x3xi32>) replica_counts(%counts : tensor<4xi32>)
      experts(%w13, %w2 : tensor<6x12x16xf32>, tensor<6x16x12xf32>) activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {num_zero_experts = 3 : i64} -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// CHECK-LABEL: func.func @given
// CHECK: moe.place_ids %{{.*}} : tensor<?x2xi32> is_padding(%{{.*}} : tensor<?xi8>) {moe.name = ["placed_ids"]}
// CHECK: moe.unpermute
// CHECK: moe.grouped_matmul {{.*}} rows(%{{.*}} : tensor<?xi8>) epilogue {
func.func @given(%x: tensor<?x16xf32>, %ids: tensor<?x2xi32>, %weights: tensor<?x2xf32>, %mask: tensor<?xi8>,
    %down: tensor<8x16xf32>, %up: tensor<16x8xf32>, %w13: tensor<6x12x8xf32>, %w2: tensor<6x8x12xf32>)
    -> tensor<?x16xf32> {
  %y = moe.layer %x : tensor<?x16xf32> ids(%ids : tensor<?x2xi32>) weights(%weights : tensor<?x2xf32>)
      is_padding(%mask : tensor<?xi8>) latent_down(%down : tensor<8x16xf32>) latent_up(%up : tensor<16x8xf32>)
      experts(%w13, %w2 : tensor<6x12x8xf32>, tensor<6x8x12xf32>) activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}
