// Gathers of rows for destination ranks, and the sums that return them, name the kernels of an all-to-all.
// RUN: moe-opt %s --split-input-file --tile-make-exchanges=target=sm_90a | FileCheck %s

// More ranks than a heap supports: there are no other kernels.
// CHECK-LABEL: plan.program @packed
//       CHECK: plan.collective all_gather dp ins
//  CHECK-SAME: routed [1] {plan.pack_kernel = @pack_rows, plan.route_kernel = @route_rows}
//       CHECK: plan.collective reduce_scatter dp ins
//  CHECK-SAME: routed [0] {plan.pack_kernel = @sum_packed_rows, plan.route_kernel = @route_rows}
//   CHECK-NOT: tile.exchange
//       CHECK: tile.kernel @route_rows
//  CHECK-SAME: block = 1024 : i64, grid = #plan.expr<"32">
//  CHECK-NEXT: tile.route_rows
//       CHECK: tile.kernel @pack_rows
//  CHECK-SAME: block = 256 : i64, grid = #plan.expr<"ceildiv(tokens, 8)">
//  CHECK-NEXT: tile.pack_rows tokens(%{{.*}}) ins(%{{.*}}, %{{.*}} : memref<?x2xi32>, memref<?x256xbf16>)
//       CHECK: tile.kernel @sum_packed_rows
//  CHECK-SAME: block = 256 : i64, grid = #plan.expr<"ceildiv(tokens * 32, 256)">
//  CHECK-NEXT: tile.sum_packed_rows
plan.program @packed max_tokens 64 mesh <dp = 32, tp = 1> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 32)"> : memref<?x256xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 32)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<64xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 32)"> : memref<?x256xbf16>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x256xbf16>
  %b = plan.buffer "b" slot 1 rows <"tokens"> : memref<?x2xi32>
  %c = plan.buffer "c" slot 2 rows <"tokens"> : memref<?x256xbf16>
  plan.variant tokens 0 to 64 {
    plan.collective all_gather dp ins(%i, %x : memref<?x2xi32>, memref<?x256xbf16>)
        outs(%b, %a : memref<?x2xi32>, memref<?x256xbf16>) destinations(%o : memref<64xi32>) ids(%i : memref<?x2xi32>) routed [1]
    plan.launch @k ins(%a : memref<?x256xbf16>) outs(%c : memref<?x256xbf16>)
    plan.collective reduce_scatter dp ins(%c : memref<?x256xbf16>) outs(%y : memref<?x256xbf16>)
        destinations(%o : memref<64xi32>) ids(%i, %b : memref<?x2xi32>, memref<?x2xi32>) routed [0]
  }
}
tile.kernel @k(%x: memref<?x256xbf16>, %y: memref<?x256xbf16>, %t: i64) {
  tile.return
}

// -----

// The number of valid rows is gathered too: other rows go nowhere. There are kernels through the memory of other
// ranks as well.
// CHECK-LABEL: plan.program @valid
//       CHECK: plan.collective all_gather dp ins
//  CHECK-SAME: plan.exchange_kernel = @all_gather, plan.pack_kernel = @pack_rows, plan.route_kernel = @route_rows
//       CHECK: tile.route_rows {{.*}} num_valid_tokens
plan.program @valid max_tokens 16 mesh <dp = 2, tp = 1> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %n = plan.tensor input "n" : memref<1xi32>
  %o = plan.tensor weight "o" : memref<8xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xbf16>
  %b = plan.buffer "b" slot 1 rows <"tokens"> : memref<?x2xi32>
  %m = plan.buffer "m" slot 3 : memref<2xi32>
  %c = plan.buffer "c" slot 2 rows <"tokens"> : memref<?x8xbf16>
  plan.variant tokens 0 to 16 {
    plan.collective all_gather dp ins(%i, %x, %n : memref<?x2xi32>, memref<?x8xbf16>, memref<1xi32>)
        outs(%b, %a, %m : memref<?x2xi32>, memref<?x8xbf16>, memref<2xi32>)
        destinations(%o : memref<8xi32>) ids(%i : memref<?x2xi32>) routed [1]
    plan.launch @k ins(%a, %m : memref<?x8xbf16>, memref<2xi32>) outs(%c : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%c : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
        destinations(%o : memref<8xi32>) ids(%i, %b : memref<?x2xi32>, memref<?x2xi32>) routed [0]
  }
}
tile.kernel @k(%x: memref<?x8xbf16>, %m: memref<2xi32>, %y: memref<?x8xbf16>, %t: i64) {
  tile.return
}

// -----

// No all-to-all: with replicas, which are chosen by a row's index among all rows, and if another collective moves the
// gathered rows.
// CHECK-LABEL: plan.program @replicas
//   CHECK-NOT: plan.pack_kernel
//   CHECK-NOT: tile.pack_rows
plan.program @replicas max_tokens 16 mesh <dp = 2, tp = 1> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<8x2xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xbf16>
  %b = plan.buffer "b" slot 1 rows <"tokens"> : memref<?x2xi32>
  %c = plan.buffer "c" slot 2 rows <"tokens"> : memref<?x8xbf16>
  plan.variant tokens 0 to 16 {
    plan.collective all_gather dp ins(%i, %x : memref<?x2xi32>, memref<?x8xbf16>)
        outs(%b, %a : memref<?x2xi32>, memref<?x8xbf16>) destinations(%o : memref<8x2xi32>) ids(%i : memref<?x2xi32>) routed [1] {experts_per_rank = 4 : i64}
    plan.launch @k ins(%a : memref<?x8xbf16>) outs(%c : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%c : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
        destinations(%o : memref<8x2xi32>) ids(%i, %b : memref<?x2xi32>, memref<?x2xi32>) routed [0] {experts_per_rank = 4 : i64}
  }
}
tile.kernel @k(%x: memref<?x8xbf16>, %y: memref<?x8xbf16>, %t: i64) {
  tile.return
}

// -----

// CHECK-LABEL: plan.program @moved_again
//   CHECK-NOT: plan.pack_kernel
//   CHECK-NOT: tile.pack_rows
plan.program @moved_again max_tokens 32 mesh <dp = 2, tp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<8xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x8xbf16>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xbf16>
  %b = plan.buffer "b" slot 1 rows <"tokens"> : memref<?x2xi32>
  %c = plan.buffer "c" slot 2 rows <"tokens"> : memref<?x8xbf16>
  plan.variant tokens 0 to 32 {
    plan.collective all_gather dp ins(%i, %x : memref<?x2xi32>, memref<?x8xbf16>)
        outs(%b, %a : memref<?x2xi32>, memref<?x8xbf16>) destinations(%o : memref<8xi32>) ids(%i : memref<?x2xi32>) routed [1]
    plan.launch @k ins(%a : memref<?x8xbf16>) outs(%c : memref<?x8xbf16>)
    plan.collective all_reduce tp ins(%a : memref<?x8xbf16>) outs(%z : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%c : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
        destinations(%o : memref<8xi32>) ids(%i, %b : memref<?x2xi32>, memref<?x2xi32>) routed [0]
  }
}
tile.kernel @k(%x: memref<?x8xbf16>, %y: memref<?x8xbf16>, %t: i64) {
  tile.return
}
