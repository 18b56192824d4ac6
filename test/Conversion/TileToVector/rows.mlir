// RUN: moe-opt %s --split-input-file --convert-tile-to-vector --canonicalize --cse | FileCheck %s

// CHECK-LABEL: func.func @map(
// CHECK-SAME: %[[X:[^:]*]]: memref<?x8xbf16>, %[[W:[^:]*]]: memref<?x1xf32>, %[[Y:[^:]*]]: memref<?x8xbf16>
// CHECK: scf.for %[[ROW:.*]] =
// CHECK: %[[FACTOR:.*]] = memref.load %[[W]][%[[ROW]]
// CHECK: %[[FACTORS:.*]] = vector.broadcast %[[FACTOR]] : f32 to vector<8xf32>
// CHECK: %[[IN:.*]] = vector.load %[[X]][%[[ROW]]
// CHECK: %[[WIDE:.*]] = arith.extf %[[IN]]
// CHECK: arith.mulf %[[WIDE]], %[[FACTORS]]
// CHECK: vector.store
tile.kernel @map(%x: memref<?x8xbf16>, %w: memref<?x1xf32>, %y: memref<?x8xbf16>, %t: i64) {
  tile.row_map tokens(%t) ins(%x : memref<?x8xbf16>) rows(%w : memref<?x1xf32>)
      outs(%y : memref<?x8xbf16>) {
  ^bb0(%a: f32, %b: f32):
    %p = arith.mulf %a, %b : f32
    tile.yield %p : f32
  } {config = #tile.cpu_row_map<lanes = 8, rows_per_cta = 2>}
  tile.return
}

// -----

// Slots are added in order; -1 adds nothing, -2 the token itself.
// CHECK-LABEL: func.func @reduce(
// CHECK-SAME: %[[R:[^:]*]]: memref<?x16xf32>, %[[P:[^:]*]]: memref<?x3xi32>, %[[I:[^:]*]]: memref<?x16xf32>, %[[IW:[^:]*]]: memref<?x3xf32>, %[[A:[^:]*]]: memref<?x16xf32>, %[[Y:[^:]*]]: memref<?x16xf32>
// CHECK-DAG: %[[C0:.*]] = arith.constant 0 : i32
// CHECK-DAG: %[[CM2:.*]] = arith.constant -2 : i32
// CHECK: scf.for %[[T:.*]] =
// CHECK: scf.for %[[J:.*]] = {{.*}} iter_args(%[[S0:.*]] = %{{.*}}, %[[S1:.*]] = %{{.*}})
// CHECK: %[[SLOT:.*]] = memref.load %[[P]][%[[T]], %[[J]]]
// CHECK: %[[IS_ROW:.*]] = arith.cmpi sge, %[[SLOT]], %[[C0]]
// CHECK: scf.if %[[IS_ROW]]
// CHECK: %[[ROW:.*]] = arith.index_cast %[[SLOT]]
// CHECK: vector.load %[[R]][%[[ROW]]
// CHECK: arith.addf %[[S0]]
// CHECK: } else {
// CHECK: %[[IS_TOKEN:.*]] = arith.cmpi eq, %[[SLOT]], %[[CM2]]
// CHECK: scf.if %[[IS_TOKEN]]
// CHECK: memref.load %[[IW]][%[[T]], %[[J]]]
// CHECK: vector.load %[[I]][%[[T]]
// CHECK: vector.load %[[A]][%[[T]]
// CHECK: vector.store %{{.*}}, %[[Y]][%[[T]]
tile.kernel @reduce(%r: memref<?x16xf32>, %p: memref<?x3xi32>, %i: memref<?x16xf32>,
                    %iw: memref<?x3xf32>, %a: memref<?x16xf32>, %y: memref<?x16xf32>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%r, %p : memref<?x16xf32>, memref<?x3xi32>)
      identity(%i, %iw : memref<?x16xf32>, memref<?x3xf32>) addend(%a : memref<?x16xf32>)
      outs(%y : memref<?x16xf32>)
      {config = #tile.cpu_gather_reduce<register_columns = 16, lanes = 8, rows_per_cta = 2>}
  tile.return
}

// -----

// exp is computed as a power of two, in two factors, times a polynomial.
// CHECK-LABEL: func.func @math
// CHECK-NOT: math.exp
// CHECK: math.roundeven %{{.*}} : vector<8xf32>
// CHECK: arith.fptosi %{{.*}} : vector<8xf32> to vector<8xi32>
// CHECK: arith.cmpf uno
tile.kernel @math(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.row_map tokens(%t) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>) {
  ^bb0(%a: f32):
    %p = math.exp %a : f32
    tile.yield %p : f32
  } {config = #tile.cpu_row_map<lanes = 8, rows_per_cta = 2>}
  tile.return
}

// -----

// Rows of both tensors up to the last offset.
// CHECK-LABEL: func.func @gather_rows(
// CHECK-SAME: %[[X:[^:]*]]: memref<?x16xbf16>, %[[F:[^:]*]]: memref<?x3xf32>, %[[O:[^:]*]]: memref<5xi32>, %[[S:[^:]*]]: memref<?xi32>, %[[Y:[^:]*]]: memref<?x16xbf16>, %[[Z:[^:]*]]: memref<?x3xf32>
// CHECK: %[[FIRST:.*]] = arith.muli
// CHECK: %[[LAST:.*]] = memref.load %[[O]][%c4]
// CHECK: %[[ROWS:.*]] = arith.index_cast %[[LAST]]
// CHECK: %[[END:.*]] = arith.minsi %{{.*}}, %[[ROWS]]
// CHECK: scf.for %[[ROW:.*]] = %[[FIRST]] to %[[END]]
// CHECK: %[[SOURCE:.*]] = memref.load %[[S]][%[[ROW]]]
// CHECK: %[[FROM:.*]] = arith.index_cast %[[SOURCE]]
// CHECK: scf.for %[[C:.*]] = %c0 to %c16
// CHECK: %[[E:.*]] = memref.load %[[X]][%[[FROM]], %[[C]]]
// CHECK: memref.store %[[E]], %[[Y]][%[[ROW]], %[[C]]]
// CHECK: scf.for %[[C:.*]] = %c0 to %c3
// CHECK: %[[E:.*]] = memref.load %[[F]][%[[FROM]], %[[C]]]
// CHECK: memref.store %[[E]], %[[Z]][%[[ROW]], %[[C]]]
tile.kernel @gather_rows(%x: memref<?x16xbf16>, %f: memref<?x3xf32>, %o: memref<5xi32>, %s: memref<?xi32>,
    %y: memref<?x16xbf16>, %z: memref<?x3xf32>, %t: i64) {
  tile.gather_rows tokens(%t) ins(%x, %f : memref<?x16xbf16>, memref<?x3xf32>) offsets(%o : memref<5xi32>)
      source(%s : memref<?xi32>) outs(%y, %z : memref<?x16xbf16>, memref<?x3xf32>)
      {top_k = 2 : i64, config = #tile.cpu_gather_rows<rows_per_cta = 4>}
  tile.return
}

// -----

// Rows of tokens, all with the same order of columns.
// CHECK-LABEL: func.func @columns(
// CHECK-SAME: %[[X:[^:]*]]: memref<?x16xbf16>, %[[C:[^:]*]]: memref<1x16xi32>, %[[Y:[^:]*]]: memref<?x16xbf16>, %[[T:[^:]*]]:
// CHECK-NOT: memref.load
// CHECK: scf.for %[[ROW:[a-z0-9]*]] =
// CHECK: scf.for %[[COLUMN:.*]] = %c0{{.*}} to %c16
// CHECK: %[[NUMBER:.*]] = memref.load %[[C]][%c0{{.*}}, %[[COLUMN]]]
// CHECK: %[[E:.*]] = memref.load %[[X]][%[[ROW]], %{{.*}}]
// CHECK: memref.store %[[E]], %[[Y]][%[[ROW]], %[[COLUMN]]]
tile.kernel @columns(%x: memref<?x16xbf16>, %c: memref<1x16xi32>, %y: memref<?x16xbf16>, %t: i64) {
  tile.gather_rows tokens(%t) ins(%x : memref<?x16xbf16>) columns(%c : memref<1x16xi32>) outs(%y : memref<?x16xbf16>)
      {config = #tile.cpu_gather_rows<rows_per_cta = 4>}
  tile.return
}
