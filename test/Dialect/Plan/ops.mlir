// Every op of the dialect with every operand, through the printer and back. Tensors and buffers are
// printed under their names.
// RUN: moe-opt %s | moe-opt | FileCheck %s
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | FileCheck %s

// CHECK-LABEL: plan.program @layer max_tokens 64 {
plan.program @layer max_tokens 64 {
  // CHECK-NEXT: %[[X:hidden_states]] = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x16xf32>
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x16xf32>
  // CHECK-NEXT: %[[W:gate.weight]] = plan.tensor weight "gate.weight" : memref<8x16xf32>
  %w = plan.tensor weight "gate.weight" : memref<8x16xf32>
  // CHECK-NEXT: %[[Y:output]] = plan.tensor output "output" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "output" rows <"tokens"> : memref<?x8xf32>
  // CHECK-NEXT: %[[A:a]] = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xf32>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xf32>
  // CHECK-NEXT: %[[B:b]] = plan.buffer "b" rows <"tokens"> {note = "no slot yet"} : memref<?x8xf32>
  %b = plan.buffer "b" rows <"tokens"> {note = "no slot yet"} : memref<?x8xf32>
  // CHECK-NEXT: %[[P:prepared]] = plan.tensor prepared "prepared" : memref<8x16xf32>
  %p = plan.tensor prepared "prepared" : memref<8x16xf32>
  // CHECK-NEXT: %[[W2:w2]] = plan.tensor weight "w2" : memref<8x16xf32>
  %w2 = plan.tensor weight "w2" : memref<8x16xf32>
  // CHECK-NEXT: %[[Q:packed]] = plan.tensor prepared "packed" in_place "w2" : memref<2x16x4xf32>
  %q = plan.tensor prepared "packed" in_place "w2" : memref<2x16x4xf32>
  // CHECK-NEXT: plan.prepare {
  // CHECK-NEXT: plan.launch @repack ins(%[[W]] : memref<8x16xf32>) outs(%[[P]] : memref<8x16xf32>)
  // CHECK-NEXT: plan.launch @anything ins() outs(%[[Q]] : memref<2x16x4xf32>)
  plan.prepare {
    plan.launch @repack ins(%w : memref<8x16xf32>) outs(%p : memref<8x16xf32>)
    plan.launch @anything ins() outs(%q : memref<2x16x4xf32>)
  }
  // CHECK: plan.variant tokens 0 to 8 {
  // CHECK-NEXT: plan.launch @product ins(%[[X]], %[[P]] : memref<?x16xf32>, memref<8x16xf32>) outs(%[[Y]] : memref<?x8xf32>)
  // CHECK-NEXT: }
  plan.variant tokens 0 to 8 {
    plan.launch @product ins(%x, %p : memref<?x16xf32>, memref<8x16xf32>) outs(%y : memref<?x8xf32>)
  }
  // CHECK-NEXT: plan.variant tokens 9 to 64 {
  // CHECK-NEXT: plan.record event 0 stream 0
  // CHECK-NEXT: plan.wait event 0 stream 1
  // CHECK-NEXT: plan.launch @product stream 1 ins(
  // CHECK-NEXT: plan.record event 1 stream 1
  // CHECK-NEXT: plan.launch @product ins(
  // CHECK-NEXT: plan.wait event 1 stream 0
  // CHECK-NEXT: plan.launch @add ins(
  plan.variant tokens 9 to 64 {
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.launch @product stream 1 ins(%x, %p : memref<?x16xf32>, memref<8x16xf32>) outs(%b : memref<?x8xf32>)
    plan.record event 1 stream 1
    plan.launch @product stream 0 ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>) outs(%a : memref<?x8xf32>)
    plan.wait event 1 stream 0
    plan.launch @add ins(%a, %b : memref<?x8xf32>, memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}

// Launches without ins, of a tile.kernel; the last argument is the token count.
// CHECK-LABEL: plan.program @other max_tokens 1 attributes {target = "cpu"} {
plan.program @other max_tokens 1 attributes {target = "cpu"} {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 1 {
    // CHECK: plan.launch @scaled ins(%{{.*}} : memref<?x8xf32>) outs(%{{.*}} : memref<?x8xf32>)
    plan.launch @scaled ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
    // CHECK: plan.launch @anything ins() outs()
    plan.launch @anything ins() outs()
    // CHECK: plan.launch @anything dependent ins() outs()
    plan.launch @anything dependent ins() outs()
  }
}

// CHECK: plan.kernel @product(%{{.*}}: tensor<?x16xf32>, %{{.*}}: tensor<8x16xf32>) -> tensor<?x8xf32> {
// CHECK: plan.return %{{.*}} : tensor<?x8xf32>
plan.kernel @product(%x: tensor<?x16xf32>, %w: tensor<8x16xf32>) -> tensor<?x8xf32> {
  %0 = moe.grouped_matmul %x, %w : tensor<?x16xf32>, tensor<8x16xf32> -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}

// CHECK: plan.kernel private @add
plan.kernel private @add(%a: tensor<?x8xf32>, %b: tensor<?x8xf32> {test.argument}) -> (tensor<?x8xf32> {test.result}) attributes {test.kernel} {
  %0 = moe.row_map %a : tensor<?x8xf32> {
  ^bb0(%v: f32):
    moe.yield %v : f32
  } -> tensor<?x8xf32>
  plan.return %0 : tensor<?x8xf32>
}

// Several results, and none.
// CHECK: plan.kernel @route(%{{.*}}: tensor<?x4xf32>) -> (tensor<?x1xi32>, tensor<?x1xf32>) {
plan.kernel @route(%l: tensor<?x4xf32>) -> (tensor<?x1xi32>, tensor<?x1xf32>) {
  %0:2 = moe.route %l : tensor<?x4xf32> <top_k = 1> -> tensor<?x1xi32>, tensor<?x1xf32>
  plan.return %0#0, %0#1 : tensor<?x1xi32>, tensor<?x1xf32>
}

// CHECK: plan.kernel @empty() {
// CHECK-NEXT: plan.return
plan.kernel @empty() {
  plan.return
}

tile.kernel @repack(%w: memref<8x16xf32>, %p: memref<8x16xf32>, %tokens: i64) {
  tile.return
}

tile.kernel @scaled(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %tokens: i64) {
  tile.return
}

// Below level tile a kernel is a function with other arguments.
func.func private @anything(i64, index)
