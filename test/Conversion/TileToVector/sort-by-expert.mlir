// RUN: moe-opt %s --split-input-file --convert-tile-to-vector --canonicalize --cse | FileCheck %s

// Counts, offsets, positions. Without a list of local experts an id below num_experts is its own local number; 4 stands
// for slots that are not here.
// CHECK-LABEL: func.func @all(
// CHECK-SAME: %[[IDS:[^:]*]]: memref<?x2xi32>, %[[W:[^:]*]]: memref<?x2xf32>, %[[OFFSETS:[^:]*]]: memref<5xi32>, %[[POSITION:[^:]*]]: memref<?x2xi32>, %[[SOURCE:[^:]*]]: memref<?xi32>, %[[RW:[^:]*]]: memref<?x1xf32>
// CHECK-DAG: %[[EXPERTS:.*]] = arith.constant 4 : i32
// CHECK-DAG: %[[NOTHING:.*]] = arith.constant -1 : i32
// CHECK: %[[NEXT:.*]] = memref.alloca() {{.*}} : memref<5xi32>
// CHECK: scf.for
// CHECK: %[[ID:.*]] = memref.load %[[IDS]]
// CHECK: %[[IS_EXPERT:.*]] = arith.cmpi ult, %[[ID]], %[[EXPERTS]]
// CHECK: %[[LOCAL:.*]] = arith.select %[[IS_EXPERT]], %[[ID]], %[[EXPERTS]]
// CHECK: %[[AT:.*]] = arith.index_cast %[[LOCAL]]
// CHECK: %[[COUNT:.*]] = memref.load %[[NEXT]][%[[AT]]]
// CHECK: %[[MORE:.*]] = arith.addi %[[COUNT]]
// CHECK: memref.store %[[MORE]], %[[NEXT]][%[[AT]]]
// CHECK: %[[TOTAL:.*]] = scf.for
// CHECK: memref.store %{{.*}}, %[[OFFSETS]]
// CHECK: memref.store %{{.*}}, %[[NEXT]]
// CHECK: memref.store %[[TOTAL]], %[[OFFSETS]]
// CHECK: scf.for %[[T:.*]] =
// CHECK: %[[TOKEN:.*]] = arith.index_cast %[[T]]
// CHECK: scf.if
// CHECK: %[[PLACE:.*]] = memref.load %[[NEXT]]
// CHECK: memref.store %[[PLACE]], %[[POSITION]]
// CHECK: memref.store %[[TOKEN]], %[[SOURCE]]
// CHECK: %[[WEIGHT:.*]] = memref.load %[[W]]
// CHECK: memref.store %[[WEIGHT]], %[[RW]]
// CHECK: } else {
// CHECK: memref.store %[[NOTHING]], %[[POSITION]]
tile.kernel @all(%i: memref<?x2xi32>, %w: memref<?x2xf32>, %o: memref<5xi32>,
                 %p: memref<?x2xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x2xi32>, memref<?x2xf32>)
    outs(%o, %p, %s, %r : memref<5xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    {num_experts = 4 : i64, config = #tile.cpu_sort_by_expert}
  tile.return
}

// -----

// Local experts are a table of constants. Zero experts get position -2. Rows
// from num_valid_tokens on get -1.
// CHECK-LABEL: func.func @local(
// CHECK-SAME: %[[IDS:[^:]*]]: memref<?x2xi32>, %{{[^:]*}}: memref<?x2xf32>, %[[VALID:[^:]*]]: memref<1xi32>
// CHECK-SAME: memref<3xi32>, %[[POSITION:[^:]*]]: memref<?x2xi32>
// CHECK-DAG: %[[ZERO_EXPERT:.*]] = arith.constant -2 : i32
// CHECK-DAG: %[[NOTHING:.*]] = arith.constant -1 : i32
// CHECK-DAG: %[[TABLE:.*]] = arith.constant dense<[2, 1, 2, 0, 2, 2, 2, 2]> : vector<8xi32>
// CHECK: %[[LOCAL:.*]] = memref.alloca() {{.*}} : memref<8xi32>
// CHECK: vector.store %[[TABLE]], %[[LOCAL]]
// CHECK: memref.load %[[VALID]]
// CHECK: arith.maxsi
// CHECK: %[[END:.*]] = arith.minsi
// CHECK: memref.load %[[IDS]]
// CHECK: memref.load %[[LOCAL]]
// CHECK: } else {
// CHECK: arith.select %{{.*}}, %[[ZERO_EXPERT]], %[[NOTHING]]
// CHECK: scf.for %{{.*}} = %[[END]] to
// CHECK: memref.store %[[NOTHING]], %[[POSITION]]
tile.kernel @local(%i: memref<?x2xi32>, %w: memref<?x2xf32>, %v: memref<1xi32>, %o: memref<3xi32>,
                   %p: memref<?x2xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x2xi32>, memref<?x2xf32>) num_valid_tokens(%v : memref<1xi32>)
    outs(%o, %p, %s, %r : memref<3xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    {num_experts = 4 : i64, num_zero_experts = 1 : i64, local_experts = array<i64: 3, 1>,
     config = #tile.cpu_sort_by_expert}
  tile.return
}
