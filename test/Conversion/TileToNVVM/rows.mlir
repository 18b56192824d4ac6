// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_80 --convert-tile-to-nvvm --cse | FileCheck %s

// A thread has 8 columns of a token.
// CHECK-LABEL: func.func @row_map
// CHECK-SAME: moec.block = 64
// CHECK: scf.if
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<?x328xbf16>, vector<8xbf16>
// CHECK: arith.extf
// CHECK: arith.mulf {{.*}} : vector<8xf32>
// CHECK: arith.truncf
// CHECK: vector.store {{.*}} {alignment = 16 : i64} : memref<?x328xbf16>, vector<8xbf16>
tile.kernel @row_map(%x: memref<?x328xbf16>, %w: memref<?x1xf32>, %y: memref<?x328xbf16>, %t: i64) {
  tile.row_map tokens(%t) ins(%x : memref<?x328xbf16>) rows(%w : memref<?x1xf32>)
      outs(%y : memref<?x328xbf16>) {
    ^bb0(%v: f32, %r: f32):
      %1 = arith.mulf %v, %r : f32
      tile.yield %1 : f32
    }
  tile.return
}

// -----

// All rows are asked for before the first is added. A slot without a row loads
// that of another one.
// CHECK-LABEL: func.func @gather_reduce
// CHECK: memref.load %{{.*}} : memref<1xi32>
// CHECK: scf.if
// CHECK: %[[P0:.*]] = memref.load {{.*}} : memref<?x2xi32>
// CHECK: %[[P1:.*]] = memref.load {{.*}} : memref<?x2xi32>
// CHECK: %[[SOME:.*]] = arith.maxsi %[[P0]], %[[P1]]
// CHECK: %[[ROWS:.*]]:2 = scf.if
// CHECK: arith.select %{{.*}}, %[[P0]], %[[SOME]]
// CHECK: vector.load {{.*}} : memref<?x64xf32>, vector<4xf32>
// CHECK: arith.select %{{.*}}, %[[P1]], %[[SOME]]
// CHECK: vector.load {{.*}} : memref<?x64xf32>, vector<4xf32>
// CHECK: %[[OWN0:.*]] = arith.select %{{.*}}, %[[ROWS]]#0, %[[ZERO:.*]] : vector<4xf32>
// CHECK: %[[ADDED:.*]] = arith.addf %{{.*}}, %[[OWN0]]
// CHECK: %[[OWN1:.*]] = arith.select %{{.*}}, %[[ROWS]]#1, %[[ZERO]]
// CHECK: arith.addf %[[ADDED]], %[[OWN1]]
// CHECK: vector.store
// CHECK: } else {
// CHECK: vector.store %[[ZERO]]
tile.kernel @gather_reduce(%x: memref<?x64xf32>, %p: memref<?x2xi32>, %v: memref<1xi32>,
    %y: memref<?x64xf32>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%x, %p : memref<?x64xf32>, memref<?x2xi32>)
      num_valid_tokens(%v : memref<1xi32>) outs(%y : memref<?x64xf32>)
  tile.return
}

// -----

// Sixteen at a time.
// CHECK-LABEL: func.func @many
// CHECK-COUNT-16: vector.load
// CHECK: scf.for
// CHECK-COUNT-16: vector.load
// CHECK: scf.yield
// CHECK-COUNT-4: vector.load
// CHECK-NOT: vector.load
// CHECK: vector.store
tile.kernel @many(%x: memref<?x64xf32>, %p: memref<?x36xi32>, %y: memref<?x64xf32>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%x, %p : memref<?x64xf32>, memref<?x36xi32>) outs(%y : memref<?x64xf32>)
  tile.return
}

// -----

// Of every 10th token, where the next one's rows are is loaded before this one's
// are added.
// CHECK-LABEL: func.func @by_tens
// CHECK: scf.if
// CHECK: %[[TEN:.*]] = arith.constant 10 : index
// CHECK: scf.for {{.*}} step %[[TEN]] iter_args(%[[P0:.*]] = {{.*}}, %[[P1:.*]] = {{.*}}) -> (i32, i32)
// CHECK: %[[N0:.*]] = memref.load {{.*}} : memref<?x2xi32>
// CHECK: %[[N1:.*]] = memref.load {{.*}} : memref<?x2xi32>
// CHECK: arith.maxsi %[[P0]], %[[P1]]
// CHECK: vector.store
// CHECK: scf.yield %[[N0]], %[[N1]]
tile.kernel @by_tens(%x: memref<?x64xf32>, %p: memref<?x2xi32>, %y: memref<?x64xf32>, %t: i64)
    attributes {block = 32 : i64, shared = 0 : i64, grid = #plan.expr<"min(tokens, 10)">} {
  tile.gather_reduce tokens(%t) ins(%x, %p : memref<?x64xf32>, memref<?x2xi32>) outs(%y : memref<?x64xf32>)
      {config = #tile.config<schedule = "sm80.gather_reduce", panel = 128, lanes = 4, rows = 10>}
  tile.return
}
