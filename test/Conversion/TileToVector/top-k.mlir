// RUN: moe-opt %s --split-input-file --convert-tile-to-vector --canonicalize --cse | FileCheck %s

// Softmax over all experts: largest, exponentials and their sum, then values and
// keys; k times the first largest key; the weights of all slots in one vector.
// CHECK-LABEL: func.func @softmax(
// CHECK-SAME: %[[LOGITS:.*]]: memref<?x128xf32>, %[[IDS:.*]]: memref<?x8xi32>, %[[W:.*]]: memref<?x8xf32>, %{{.*}}: i64, %{{.*}}: index) attributes {moec.kernel}
// CHECK-DAG: %[[INF:.*]] = arith.constant dense<0x7F800000> : vector<8xf32>
// CHECK-DAG: %[[OUT:.*]] = arith.constant -2147483648 : i32
// CHECK-DAG: %[[LANES:.*]] = arith.constant dense<[0, 1, 2, 3, 4, 5, 6, 7]> : vector<8xi32>
// CHECK: %[[KEYS:.*]] = memref.alloca() {alignment = 64 : i64} : memref<128xi32>
// CHECK: %[[VALUES:.*]] = memref.alloca() {alignment = 64 : i64} : memref<128xf32>
// CHECK: %[[CHOSEN:.*]] = memref.alloca() {alignment = 64 : i64} : memref<8xf32>
// CHECK: scf.for %[[T:.*]] =
// CHECK: scf.for {{.*}} -> (vector<8xf32>) {
// CHECK: vector.load %[[LOGITS]][%[[T]], %{{.*}}]
// CHECK: vector.reduction <maxnumf>
// CHECK: scf.for {{.*}} -> (vector<8xf32>) {
// CHECK-NOT: math.exp
// CHECK: vector.store %{{.*}}, %[[VALUES]]
// CHECK: vector.reduction <add>, %{{.*}} fastmath<reassoc>
// CHECK: scf.for
// CHECK: arith.divf
// CHECK: %[[ABS:.*]] = math.absf
// CHECK: arith.cmpf olt, %[[ABS]], %[[INF]]
// CHECK: arith.bitcast %{{.*}} : vector<8xf32> to vector<8xi32>
// CHECK: vector.store %{{.*}}, %[[VALUES]]
// CHECK: vector.store %{{.*}}, %[[KEYS]]
// CHECK: scf.for %[[SLOT:.*]] =
// CHECK: %[[BEST:.*]]:2 = scf.for
// CHECK: vector.load %[[KEYS]]
// CHECK: arith.cmpi sgt
// CHECK: arith.addi %[[BEST]]#1, %[[LANES]]
// CHECK: vector.reduction <maxsi>, %[[BEST]]#0
// CHECK: %[[ID:.*]] = vector.reduction <minsi>
// CHECK: %[[AT:.*]] = arith.index_cast %[[ID]] : i32 to index
// CHECK: %[[VALUE:.*]] = memref.load %[[VALUES]][%[[AT]]]
// CHECK: memref.store %[[ID]], %[[IDS]][%[[T]], %[[SLOT]]]
// CHECK: memref.store %[[VALUE]], %[[CHOSEN]][%[[SLOT]]]
// CHECK: memref.store %[[OUT]], %[[KEYS]][%[[AT]]]
// CHECK: }
// CHECK: vector.load %[[CHOSEN]]
// CHECK: arith.cmpf ord
// CHECK: vector.reduction <add>
// CHECK: vector.store %{{.*}}, %[[W]][%[[T]], %{{.*}}]
tile.kernel @softmax(%l: memref<?x128xf32>, %ids: memref<?x8xi32>, %w: memref<?x8xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x128xf32>)
    outs(%ids, %w : memref<?x8xi32>, memref<?x8xf32>) <top_k = 8, softmax = all, renormalize = true>
    {config = #tile.cpu_top_k<lanes = 8, rows_per_cta = 8>}
  tile.return
}

// -----

// A row of 12 in vectors of 8 ends in a masked step, and padding cannot be selected. Three slots are less than a
// vector: their store is masked. Rows from num_valid_tokens on get -1 and 0.
// CHECK-LABEL: func.func @tails(
// CHECK-SAME: %[[LOGITS:.*]]: memref<?x12xf32>, %[[VALID:.*]]: memref<1xi32>, %[[IDS:.*]]: memref<?x3xi32>, %[[W:.*]]: memref<?x3xf32>
// CHECK-DAG: %[[NOTHING:.*]] = arith.constant -1 : i32
// CHECK: memref.alloca() {{.*}} : memref<16xi32>
// CHECK: memref.load %[[VALID]]
// CHECK: scf.for %[[T:.*]] =
// CHECK: %[[TAIL:.*]] = vector.constant_mask [4] : vector<8xi1>
// CHECK: vector.maskedload %[[LOGITS]][%{{.*}}, %{{.*}}], %[[TAIL]]
// CHECK: arith.select %[[TAIL]], %{{.*}}, %{{.*}} : vector<8xi1>, vector<8xi32>
// CHECK: %[[SLOTS:.*]] = vector.constant_mask [3] : vector<8xi1>
// CHECK: vector.maskedstore %[[W]][%{{.*}}, %{{.*}}], %[[SLOTS]]
// CHECK: } else {
// CHECK: scf.for
// CHECK: memref.store %[[NOTHING]], %[[IDS]][%[[T]], %{{.*}}]
tile.kernel @tails(%l: memref<?x12xf32>, %v: memref<1xi32>, %ids: memref<?x3xi32>, %w: memref<?x3xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x12xf32>) num_valid_tokens(%v : memref<1xi32>)
    outs(%ids, %w : memref<?x3xi32>, memref<?x3xf32>) <top_k = 3>
    {config = #tile.cpu_top_k<lanes = 8, rows_per_cta = 1>}
  tile.return
}

// -----

// Groups of 6 are padded to 8 elements; the sum of a group's two largest is its key; two groups of four stay. A row
// without a key above -inf is handled separately. The score's region and the bias are in the loop that computes the
// keys.
// CHECK-LABEL: func.func @groups(
// CHECK-SAME: %[[LOGITS:[^:]*]]: memref<?x24xf32>, %[[BIAS:[^:]*]]: memref<24xf32>
// CHECK: %[[KEYS:.*]] = memref.alloca() {{.*}} : memref<32xi32>
// CHECK: %[[GROUPS:.*]] = memref.alloca() {{.*}} : memref<8xi32>
// CHECK: scf.for
// CHECK: %[[LARGEST:.*]] = scf.for %[[G:.*]] = {{.*}} -> (vector<8xi32>) {
// CHECK: vector.maskedload %[[LOGITS]]
// CHECK: arith.negf
// CHECK: vector.maskedload %[[BIAS]]
// CHECK: vector.store %{{.*}}, %[[KEYS]]
// CHECK: }
// CHECK: %[[KEY:.*]] = vector.reduction <maxsi>, %[[LARGEST]]
// CHECK: %[[ALIVE:.*]] = arith.cmpi sgt, %[[KEY]]
// CHECK: scf.if %[[ALIVE]] {
// CHECK: vector.reduction <maxsi>
// CHECK: vector.reduction <minsi>
// CHECK: vector.reduction <maxsi>
// CHECK: arith.addf {{.*}} : f32
// CHECK: memref.store %{{.*}}, %[[GROUPS]]
// CHECK: vector.load %[[GROUPS]]
// CHECK: memref.load %[[GROUPS]]
// CHECK: scf.if
// CHECK: vector.store %{{.*}}, %[[KEYS]]
// CHECK: arith.divui
// CHECK: } else {
tile.kernel @groups(%l: memref<?x24xf32>, %b: memref<24xf32>, %ids: memref<?x4xi32>, %w: memref<?x4xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x24xf32>) selection_bias(%b : memref<24xf32>)
    outs(%ids, %w : memref<?x4xi32>, memref<?x4xf32>)
    <top_k = 4, num_groups = 4, topk_groups = 2, group_score = top2_sum, nonfinite = neg_inf>
    score {
    ^bb0(%x: f32):
      %n = arith.negf %x : f32
      tile.yield %n : f32
    }
    {config = #tile.cpu_top_k<lanes = 8, rows_per_cta = 8>}
  tile.return
}

// -----

// Hash routing looks up ids, which may be out of range, and has no keys.
// CHECK-LABEL: func.func @hash(
// CHECK-SAME: %[[LOGITS:[^:]*]]: memref<?x16xf32>, %[[INPUT:[^:]*]]: memref<?xi32>, %[[TABLE:[^:]*]]: memref<100x2xi32>
// CHECK-DAG: %[[EXPERTS:.*]] = arith.constant 16 : i32
// CHECK-DAG: %[[ROWS:.*]] = arith.constant 100 : index
// CHECK-NOT: arith.cmpi sgt
// CHECK: %[[ROW:.*]] = memref.load %[[INPUT]]
// CHECK: %[[INDEX:.*]] = arith.index_cast %[[ROW]]
// CHECK: %[[INSIDE:.*]] = arith.cmpi ult, %[[INDEX]], %[[ROWS]]
// CHECK: scf.if %[[INSIDE]] {
// CHECK: %[[ID:.*]] = memref.load %[[TABLE]]
// CHECK: %[[IS_EXPERT:.*]] = arith.cmpi ult, %[[ID]], %[[EXPERTS]]
// CHECK: scf.if %[[IS_EXPERT]]
tile.kernel @hash(%l: memref<?x16xf32>, %i: memref<?xi32>, %h: memref<100x2xi32>, %ids: memref<?x2xi32>, %w: memref<?x2xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x16xf32>) input_ids(%i : memref<?xi32>) hash_table(%h : memref<100x2xi32>)
    outs(%ids, %w : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2, select = hash>
    {config = #tile.cpu_top_k<lanes = 16, rows_per_cta = 8>}
  tile.return
}
