// Padding, replicas, keys and additional results, through the printer and back.
// RUN: moe-opt %s | moe-opt | FileCheck %s
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | FileCheck %s

// CHECK-LABEL: func.func @layer
func.func @layer(%x: tensor<?x16xf32>, %logits: tensor<?x4xf32>, %bias: tensor<4xf32>, %mask: tensor<?xi8>,
    %physical: tensor<4x3xi32>, %counts: tensor<4xi32>, %w13: tensor<6x12x16xf32>, %w2: tensor<6x16x12xf32>)
    -> (tensor<?x16xf32>, tensor<?x2xi32>, tensor<?x2xf32>, tensor<7xi32>) {
  // CHECK: %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} = moe.layer %{{[a-z0-9]+}} : tensor<?x16xf32>
  // CHECK-SAME: is_padding(%{{[a-z0-9]+}} : tensor<?xi8>)
  // CHECK-SAME: physical_ids(%{{[a-z0-9]+}} : tensor<4x3xi32>) replica_counts(%{{[a-z0-9]+}} : tensor<4xi32>)
  // CHECK: } key {
  // CHECK-NEXT: ^bb0(%{{[a-z0-9]+}}: f32, %{{[a-z0-9]+}}: f32):
  // CHECK: } activation {
  // CHECK: -> tensor<?x16xf32> record(tensor<?x2xi32>, tensor<?x2xf32>) load(tensor<7xi32>)
  %y, %ids, %weights, %offsets = moe.layer %x : tensor<?x16xf32> logits(%logits : tensor<?x4xf32>)
      selection_bias(%bias : tensor<4xf32>) is_padding(%mask : tensor<?xi8>)
      physical_ids(%physical : tensor<4x3xi32>) replica_counts(%counts : tensor<4xi32>)
      experts(%w13, %w2 : tensor<6x12x16xf32>, tensor<6x16x12xf32>)
      score {
      ^bb0(%l: f32):
        %s = math.absf %l : f32
        moe.yield %s : f32
      } key {
      ^bb0(%v: f32, %b: f32):
        %k = arith.mulf %v, %b : f32
        moe.yield %k : f32
      } activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32> record(tensor<?x2xi32>, tensor<?x2xf32>)
      load(tensor<7xi32>)
  return %y, %ids, %weights, %offsets : tensor<?x16xf32>, tensor<?x2xi32>, tensor<?x2xf32>, tensor<7xi32>
}

// CHECK-LABEL: func.func @load
func.func @load(%x: tensor<?x16xf32>, %logits: tensor<?x6xf32>, %w13: tensor<6x12x16xf32>,
    %w2: tensor<6x16x12xf32>) -> (tensor<?x16xf32>, tensor<7xi32>) {
  // CHECK: key {
  // CHECK-NEXT: ^bb0(%{{[a-z0-9]+}}: f32):
  // CHECK: -> tensor<?x16xf32> load(tensor<7xi32>)
  %y, %offsets = moe.layer %x : tensor<?x16xf32> logits(%logits : tensor<?x6xf32>)
      experts(%w13, %w2 : tensor<6x12x16xf32>, tensor<6x16x12xf32>)
      key {
      ^bb0(%v: f32):
        %k = arith.negf %v : f32
        moe.yield %k : f32
      } activation {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } {routing = #moe.routing<top_k = 2>} -> tensor<?x16xf32> load(tensor<7xi32>)
  return %y, %offsets : tensor<?x16xf32>, tensor<7xi32>
}

// CHECK-LABEL: func.func @route
func.func @route(%logits: tensor<?x4xf32>, %mask: tensor<?xi8>, %table: tensor<4x2xi32>, %counts: tensor<4xi32>,
    %x: tensor<?x16xf32>, %w: tensor<8x16xf32>) {
  // CHECK: moe.route {{.*}} is_padding(%{{[a-z0-9]+}} : tensor<?xi8>) <top_k = 2> key {
  %ids, %weights = moe.route %logits : tensor<?x4xf32> is_padding(%mask : tensor<?xi8>) <top_k = 2> key {
      ^bb0(%v: f32):
        moe.yield %v : f32
      } -> tensor<?x2xi32>, tensor<?x2xf32>
  // CHECK: moe.place_ids %{{.*}} : tensor<?x2xi32> table(%{{[a-z0-9]+}} : tensor<4x2xi32>)
  // CHECK-SAME: replica_counts(%{{[a-z0-9]+}} : tensor<4xi32>) is_padding(%{{[a-z0-9]+}} : tensor<?xi8>)
  %placed = moe.place_ids %ids : tensor<?x2xi32> table(%table : tensor<4x2xi32>)
      replica_counts(%counts : tensor<4xi32>) is_padding(%mask : tensor<?xi8>) -> tensor<?x2xi32>
  // CHECK: moe.grouped_matmul {{.*}} rows(%{{[a-z0-9]+}} : tensor<?xi8>) epilogue {
  %p = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<8x16xf32> rows(%mask : tensor<?xi8>) epilogue {
      ^bb0(%acc: f32, %m: f32):
        %r = arith.mulf %acc, %m : f32
        moe.yield %r : f32
      } -> tensor<?x8xf32>
  // CHECK: moe.tensor_scale {{.*}} is_padding(%{{[a-z0-9]+}} : tensor<?xi8>)
  %s = moe.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true> %x
      is_padding(%mask : tensor<?xi8>) : tensor<?x16xf32> -> tensor<1xf32>
  return
}
