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

// A lane loads a slot's position; slots with a row are processed in order. Exactly two rows are loaded before the first
// is added.
// CHECK-LABEL: func.func @gather_reduce
// CHECK: memref.load %{{.*}} : memref<1xi32>
// CHECK: %[[P:.*]] = memref.load {{.*}} : memref<?x2xi32>
// CHECK: %[[STEP:.*]] = arith.constant 8192 : index
// CHECK: scf.for {{.*}} step %[[STEP]] iter_args(%[[OWN:.*]] = %[[P]]) -> (i32)
// Positions of the next token.
// CHECK: %[[NEXT:.*]] = memref.load {{.*}} : memref<?x2xi32>
// CHECK: %[[VALID:.*]] = scf.if
// CHECK: %[[IS_ROW:.*]] = arith.cmpi sge, %[[OWN]]
// CHECK: %[[COUNTS:.*]] = arith.andi %[[IS_ROW]]
// CHECK: %[[LEFT:.*]] = nvvm.vote.sync ballot %{{.*}}, %[[COUNTS]]
// CHECK: %[[COUNT:.*]] = math.ctpop %[[LEFT]]
// CHECK: %[[BIT1:.*]] = arith.andi %[[COUNT]], %c2_i32
// CHECK: %[[HAS2:.*]] = arith.cmpi ne, %[[BIT1]]
// CHECK: %[[SUM2:.*]]:2 = scf.if %[[HAS2]]
// CHECK: %[[LANE0:.*]] = "llvm.intr.cttz"
// CHECK: nvvm.shfl.sync idx %{{.*}}, %[[OWN]], %[[LANE0]]
// CHECK: %[[LANE1:.*]] = "llvm.intr.cttz"
// CHECK: nvvm.shfl.sync idx %{{.*}}, %[[OWN]], %[[LANE1]]
// CHECK: %[[ROW0:.*]] = vector.load {{.*}} : memref<?x64xf32>, vector<4xf32>
// CHECK: %[[ROW1:.*]] = vector.load {{.*}} : memref<?x64xf32>, vector<4xf32>
// CHECK: %[[ADDED:.*]] = arith.addf %{{.*}}, %[[ROW0]]
// CHECK: arith.addf %[[ADDED]], %[[ROW1]]
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[LEFT]]
// CHECK: %[[BIT0:.*]] = arith.andi %[[COUNT]], %c1_i32
// CHECK: scf.if
// CHECK: %[[ROW:.*]] = vector.load
// CHECK: arith.addf %[[SUM2]]#1, %[[ROW]]
// CHECK-NOT: vector.load
// CHECK: scf.if
// CHECK: vector.store %[[VALID]]
// CHECK: scf.yield %[[NEXT]]
tile.kernel @gather_reduce(%x: memref<?x64xf32>, %p: memref<?x2xi32>, %v: memref<1xi32>,
    %y: memref<?x64xf32>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%x, %p : memref<?x64xf32>, memref<?x2xi32>)
      num_valid_tokens(%v : memref<1xi32>) outs(%y : memref<?x64xf32>)
  tile.return
}

// -----

// The slots of a warp, eight rows at a time; then the other slots. All threads
// have columns.
// CHECK-LABEL: func.func @many
// CHECK: scf.for
// CHECK: nvvm.vote.sync ballot
// CHECK: scf.for
// CHECK-COUNT-8: vector.load
// CHECK: scf.yield
// CHECK-COUNT-4: vector.load
// CHECK: scf.yield
// CHECK-COUNT-2: vector.load
// CHECK: scf.yield
// CHECK-COUNT-1: vector.load
// CHECK: scf.for
// CHECK: nvvm.vote.sync ballot
// CHECK-NOT: scf.if
// CHECK-COUNT-8: vector.load
// CHECK-COUNT-7: vector.load
// CHECK-NOT: vector.load
// CHECK-NOT: scf.if
// CHECK: vector.store
tile.kernel @many(%x: memref<?x512xf32>, %p: memref<?x36xi32>, %y: memref<?x512xf32>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%x, %p : memref<?x512xf32>, memref<?x36xi32>) outs(%y : memref<?x512xf32>)
  tile.return
}

// -----

// A slot of an identity expert is added in its order.
// CHECK-LABEL: func.func @identity
// CHECK: %[[SELF:.*]] = vector.load {{.*}} : memref<?x64xf16>, vector<8xf16>
// CHECK: arith.cmpi eq, {{.*}}, %c-2_i32
// CHECK: arith.ori
// CHECK: nvvm.vote.sync ballot
// CHECK: scf.if
// CHECK: nvvm.shfl.sync idx
// CHECK: memref.load {{.*}} : memref<?x1xf32>
// CHECK: scf.if
// CHECK-NEXT: index_cast
// CHECK-NEXT: vector.load
// CHECK: scf.if
// CHECK: arith.addf
// CHECK: } else {
// CHECK: arith.mulf
// CHECK: arith.addf
tile.kernel @identity(%x: memref<?x64xf16>, %p: memref<?x1xi32>, %w: memref<?x1xf32>,
    %y: memref<?x64xf16>, %h: memref<?x64xf16>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%x, %p : memref<?x64xf16>, memref<?x1xi32>)
      identity(%h, %w : memref<?x64xf16>, memref<?x1xf32>) outs(%y : memref<?x64xf16>)
  tile.return
}

// -----

// A warp copies its row of each tensor, if valid: 8 chunks of 8 bytes per lane, 3 more, and 9 lanes have one more. For
// the other tensor 3 lanes copy 4 bytes each.
// CHECK-LABEL: func.func @gather_rows
// CHECK-SAME: %[[O:arg2]]: memref<5xi32>, %[[S:arg3]]: memref<?xi32>
// CHECK-SAME: moec.block = 256
// CHECK: %[[LANE:.*]] = arith.remui
// CHECK: %[[LAST:.*]] = arith.constant 4 : index
// CHECK: %[[END:.*]] = memref.load %[[O]][%[[LAST]]]
// CHECK: %[[COUNT:.*]] = arith.index_cast %[[END]]
// CHECK: %[[IS_THERE:.*]] = arith.cmpi slt, %[[ROW:.*]], %[[COUNT]]
// CHECK: scf.if %[[IS_THERE]]
// CHECK: memref.load %[[S]][%[[ROW]]]
// CHECK: scf.for
// CHECK-COUNT-8: llvm.load {{.*}} {alignment = 8 : i64} : !llvm.ptr<1> -> vector<2xi32>
// CHECK-NOT: llvm.load
// CHECK-COUNT-8: llvm.store {{.*}} {alignment = 8 : i64} : vector<2xi32>, !llvm.ptr<1>
// CHECK: }
// CHECK-COUNT-3: llvm.load {{.*}} {alignment = 8 : i64} : !llvm.ptr<1> -> vector<2xi32>
// CHECK-NOT: llvm.load
// CHECK-COUNT-3: llvm.store
// CHECK: %[[HAS_ONE:.*]] = arith.cmpi slt, %[[LANE]], %c9_i32
// CHECK: scf.if %[[HAS_ONE]]
// CHECK: llvm.load
// CHECK-NOT: llvm.load
// CHECK: llvm.store
// CHECK: arith.cmpi slt, %[[LANE]], %c3_i32
// CHECK: scf.if
// CHECK: %[[SCALE:.*]] = llvm.load {{.*}} {alignment = 4 : i64} : !llvm.ptr<1> -> i32
// CHECK: llvm.store %[[SCALE]], {{.*}} {alignment = 4 : i64}
// CHECK-NOT: llvm.load
tile.kernel @gather_rows(%x: memref<?x1444xbf16>, %f: memref<?x3xf32>, %o: memref<5xi32>, %s: memref<?xi32>,
    %y: memref<?x1444xbf16>, %z: memref<?x3xf32>, %t: i64) {
  tile.gather_rows tokens(%t) ins(%x, %f : memref<?x1444xbf16>, memref<?x3xf32>) offsets(%o : memref<5xi32>)
      source(%s : memref<?xi32>) outs(%y, %z : memref<?x1444xbf16>, memref<?x3xf32>) {top_k = 2 : i64}
  tile.return
}

// -----

// Quantized values in chunks of 16 bytes, or one by one.
// CHECK-LABEL: func.func @codes
// CHECK-NOT: scf.for
// CHECK-COUNT-2: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
// CHECK-NOT: scf.if
// CHECK: llvm.load {{.*}} {alignment = 1 : i64} : !llvm.ptr<1> -> i8
tile.kernel @codes(%x: memref<?x1024xf8E4M3FN>, %f: memref<?x33xf8E4M3FN>, %o: memref<5xi32>, %s: memref<?xi32>,
    %y: memref<?x1024xf8E4M3FN>, %z: memref<?x33xf8E4M3FN>, %t: i64) {
  tile.gather_rows tokens(%t) ins(%x, %f : memref<?x1024xf8E4M3FN>, memref<?x33xf8E4M3FN>) offsets(%o : memref<5xi32>)
      source(%s : memref<?xi32>) outs(%y, %z : memref<?x1024xf8E4M3FN>, memref<?x33xf8E4M3FN>) {top_k = 2 : i64}
  tile.return
}
