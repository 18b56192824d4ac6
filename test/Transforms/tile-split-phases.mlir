// RUN: moe-opt %s --tile-split-phases | FileCheck %s

// Each phase has only the arguments that it uses: results of earlier phases become ins. Streams stay.
// CHECK: plan.program @layer
// CHECK: %[[L:.*]] = plan.tensor input "l"
// CHECK: %[[N:.*]] = plan.tensor input "n"
// CHECK: %[[IDS:.*]] = plan.buffer "ids"
// CHECK: %[[WT:.*]] = plan.buffer "wt"
// CHECK: %[[OFF:.*]] = plan.buffer "off"
// CHECK: plan.launch @other ins(%[[L]]
// CHECK: plan.launch @route_0 stream 1 ins(%[[L]] : memref<?x4xf32>) outs(%[[IDS]], %[[WT]] : memref<?x2xi32>, memref<?x2xf32>)
// CHECK-NEXT: plan.launch @route_1 stream 1 ins(%[[N]], %[[IDS]], %[[WT]] : memref<1xi32>, memref<?x2xi32>, memref<?x2xf32>) outs(%[[OFF]], %{{.*}}, %{{.*}}, %{{.*}} : memref<5xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
// CHECK-NEXT: plan.record event 1 stream 1
plan.program @layer max_tokens 16 {
  %l = plan.tensor input "l" rows <"tokens"> : memref<?x4xf32>
  %n = plan.tensor input "n" : memref<1xi32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x4xf32>
  %ids = plan.buffer "ids" rows <"tokens"> : memref<?x2xi32>
  %wt = plan.buffer "wt" rows <"tokens"> : memref<?x2xf32>
  %off = plan.buffer "off" : memref<5xi32>
  %pos = plan.buffer "pos" rows <"tokens"> : memref<?x2xi32>
  %src = plan.buffer "src" rows <"tokens * 2"> : memref<?xi32>
  %rw = plan.buffer "rw" rows <"tokens * 2"> : memref<?x1xf32>
  plan.variant tokens 0 to 16 {
    plan.launch @other ins(%l : memref<?x4xf32>) outs(%y : memref<?x4xf32>)
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.launch @route stream 1 ins(%l, %n : memref<?x4xf32>, memref<1xi32>) outs(%ids, %wt, %off, %pos, %src, %rw : memref<?x2xi32>, memref<?x2xf32>, memref<5xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.record event 1 stream 1
    plan.wait event 1 stream 0
  }
}

// CHECK-NOT: tile.kernel @route(
// CHECK: tile.kernel @route_0(%[[A:.*]]: memref<?x4xf32>, %[[B:.*]]: memref<?x2xi32>, %[[C:.*]]: memref<?x2xf32>, %[[T:.*]]: i64) {
// CHECK-NEXT: tile.top_k tokens(%[[T]]) logits(%[[A]] : memref<?x4xf32>) outs(%[[B]], %[[C]]
// CHECK-NEXT: tile.return
// CHECK: tile.kernel @route_1(%{{.*}}: memref<1xi32>, %{{.*}}: memref<?x2xi32>, %{{.*}}: memref<?x2xf32>, %{{.*}}: memref<5xi32>, %{{.*}}: memref<?x2xi32>, %{{.*}}: memref<?xi32>, %{{.*}}: memref<?x1xf32>, %{{.*}}: i64) {
// CHECK-NEXT: tile.sort_by_expert
// CHECK-NEXT: tile.return
tile.kernel @route(%l: memref<?x4xf32>, %n: memref<1xi32>, %ids: memref<?x2xi32>, %wt: memref<?x2xf32>, %off: memref<5xi32>, %pos: memref<?x2xi32>, %src: memref<?xi32>, %rw: memref<?x1xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x4xf32>) outs(%ids, %wt : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2>
  tile.sort_by_expert tokens(%t) ids(%ids, %wt : memref<?x2xi32>, memref<?x2xf32>) num_valid_tokens(%n : memref<1xi32>) outs(%off, %pos, %src, %rw : memref<5xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 4 : i64}
  tile.return
}

// One phase: nothing changes.
// CHECK: tile.kernel @other(%{{.*}}: memref<?x4xf32>, %{{.*}}: memref<?x4xf32>, %{{.*}}: i64) {
tile.kernel @other(%x: memref<?x4xf32>, %y: memref<?x4xf32>, %t: i64) {
  tile.row_map tokens(%t) ins(%x : memref<?x4xf32>) outs(%y : memref<?x4xf32>) {
  ^bb0(%a: f32):
    tile.yield %a : f32
  }
  tile.return
}
