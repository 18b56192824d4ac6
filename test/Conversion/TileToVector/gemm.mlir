// RUN: moe-opt %s --split-input-file --convert-tile-to-vector --canonicalize --cse | FileCheck %s

// A group's rows are multiplied by two gate and two up rows at a time. bf16 pairs become two vectors of f32 by a shift
// and a mask; the next tile's rows are prefetched.
// CHECK-LABEL: func.func @grouped(
// CHECK-SAME: %[[X:[^:]*]]: memref<?x64xbf16>, %[[W:[^:]*]]: memref<4x32x64xbf16>, %[[O:[^:]*]]: memref<5xi32>, %[[S:[^:]*]]: memref<?xi32>, %[[Y:[^:]*]]: memref<?x16xbf16>, %{{[^:]*}}: i64, %[[CTA:[^:]*]]: index) attributes {moec.kernel}
// CHECK-DAG: %[[HIGH:.*]] = arith.constant dense<-65536> : vector<8xi32>
// CHECK-DAG: %[[SHIFT:.*]] = arith.constant dense<16> : vector<8xi32>
// CHECK-DAG: %[[TWO:.*]] = arith.constant 2 : index
// CHECK: %[[SUMS:.*]] = memref.alloca() {alignment = 64 : i64} : memref<2x64x8xf32>
// CHECK: %[[GROUP:.*]] = arith.divui %[[CTA]], %[[TWO]]
// CHECK: %[[PANEL:.*]] = arith.remui %[[CTA]], %[[TWO]]
// CHECK: memref.load %[[O]][%[[GROUP]]]
// CHECK: memref.load %[[O]]
// CHECK: scf.for
// CHECK: scf.for %[[COLUMN:.*]] =
// CHECK: scf.for
// CHECK: %[[ROW32:.*]] = memref.load %[[S]]
// CHECK: %[[ROW:.*]] = arith.index_cast %[[ROW32]]
// CHECK: scf.for %[[K:.*]] = {{.*}} iter_args({{.*}}) -> (vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>)
// CHECK-COUNT-4: memref.prefetch %[[W]][%[[GROUP]]
// CHECK: %[[RAW:.*]] = vector.load %[[X]][%[[ROW]], %[[K]]] : memref<?x64xbf16>, vector<16xbf16>
// CHECK: %[[PAIRS:.*]] = vector.bitcast %[[RAW]] : vector<16xbf16> to vector<8xi32>
// CHECK: arith.shli %[[PAIRS]], %[[SHIFT]]
// CHECK: arith.andi %[[PAIRS]], %[[HIGH]]
// CHECK-COUNT-4: vector.load %[[W]][%[[GROUP]], %{{.*}}, %[[K]]]
// CHECK-COUNT-8: vector.fma
// CHECK-COUNT-6: vector.shuffle
// CHECK: vector.store %{{.*}}, %[[SUMS]]{{.*}} vector<2xf32>
// CHECK: vector.store %{{.*}}, %[[SUMS]]{{.*}} vector<2xf32>
// The epilogue, in vectors of columns.
// CHECK: %[[GATE:.*]] = vector.load %[[SUMS]]
// CHECK: %[[UP:.*]] = vector.load %[[SUMS]]
// CHECK: %[[V:.*]] = arith.mulf %[[GATE]], %[[UP]] : vector<8xf32>
// CHECK: %[[ROUNDED:.*]] = arith.truncf %[[V]] : vector<8xf32> to vector<8xbf16>
// CHECK: vector.store %[[ROUNDED]], %[[Y]]
tile.kernel @grouped(%x: memref<?x64xbf16>, %w: memref<4x32x64xbf16>, %o: memref<5xi32>,
                     %s: memref<?xi32>, %y: memref<?x16xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<4x32x64xbf16>)
      offsets(%o : memref<5xi32>) source(%s : memref<?xi32>) outs(%y : memref<?x16xbf16>)
      epilogue {
  ^bb0(%g: f32, %u: f32):
    %v = arith.mulf %g, %u : f32
    tile.yield %v : f32
  } {layout = #moe.weight_layout<order = gate_up>,
     config = #tile.cpu_gemm<register_rows = 1, register_columns = 2, columns_per_cta = 8, lanes = 8>}
  tile.return
}

// -----

// The remaining rows have a separate tile for each number of rows.
// CHECK-LABEL: func.func @row_tails
// CHECK: scf.for {{.*}} iter_args({{.*}}) -> (vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>)
// CHECK: scf.index_switch
// CHECK: case 1 {
// CHECK: scf.for {{.*}} -> (vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>) {
// CHECK: case 2 {
// CHECK: scf.for {{.*}} -> (vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>) {
// CHECK: default {
tile.kernel @row_tails(%x: memref<?x8xf32>, %w: memref<2x4x8xf32>, %o: memref<3xi32>,
                       %y: memref<?x4xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<2x4x8xf32>)
      offsets(%o : memref<3xi32>) outs(%y : memref<?x4xf32>)
      {config = #tile.cpu_gemm<register_rows = 3, register_columns = 4, columns_per_cta = 4, lanes = 4>}
  tile.return
}

// -----

// If K is not a multiple of a step, the last step overlaps the previous one and its repeated part is masked; the last
// column is repeated to avoid a branch.
// CHECK-LABEL: func.func @tails
// CHECK-DAG: %[[KEEP:.*]] = arith.constant dense<[false, false, false, true]> : vector<4xi1>
// CHECK-DAG: %[[LAST_STEP:.*]] = arith.constant 5 : index
// CHECK: arith.minsi
// CHECK: scf.for {{.*}} iter_args
// CHECK: vector.load %{{.*}}[%{{.*}}, %[[LAST_STEP]]] : memref<?x9xf16>, vector<4xf16>
// CHECK: arith.extf %{{.*}} : vector<4xf16> to vector<4xf32>
// CHECK: arith.select %[[KEEP]]
// Columns beyond the last vector are computed element by element.
// CHECK: arith.remsi
// CHECK: arith.truncf %{{.*}} : vector<4xf32> to vector<4xf16>
// CHECK: scf.if
// CHECK: scf.for
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: memref.store
tile.kernel @tails(%x: memref<?x9xf16>, %w: memref<2x10x9xf16>, %o: memref<3xi32>,
                   %y: memref<?x10xf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x9xf16>, memref<2x10x9xf16>)
      offsets(%o : memref<3xi32>) outs(%y : memref<?x10xf16>)
      {config = #tile.cpu_gemm<register_rows = 1, register_columns = 4, columns_per_cta = 8, lanes = 4>}
  tile.return
}

// -----

// A CTA of a dense gemm has a block of rows; invalid rows become zeros.
// CHECK-LABEL: func.func @dense(
// CHECK-SAME: %[[VALID:[^:]*]]: memref<1xi32>, %[[Y:[^:]*]]: memref<?x4xf32>, %[[T:[^:]*]]: i64
// CHECK-DAG: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<4xf32>
// CHECK: %[[TOKENS:.*]] = arith.index_cast %[[T]]
// CHECK: %[[N32:.*]] = memref.load %[[VALID]]
// CHECK: %[[N:.*]] = arith.index_cast %[[N32]]
// CHECK: %[[FROM0:.*]] = arith.maxsi %[[N]]
// CHECK: %[[CLAMPED:.*]] = arith.minsi %[[FROM0]], %[[TOKENS]]
// CHECK: vector.fma
// CHECK: %[[FIRST:.*]] = arith.maxsi %{{.*}}, %[[CLAMPED]]
// CHECK: scf.for %{{.*}} = %[[FIRST]]
// CHECK: vector.store %[[ZERO]], %[[Y]]
tile.kernel @dense(%x: memref<?x8xf32>, %w: memref<4x8xf32>, %v: memref<1xi32>,
                   %y: memref<?x4xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x8xf32>, memref<4x8xf32>)
      num_valid_tokens(%v : memref<1xi32>) outs(%y : memref<?x4xf32>)
      {config = #tile.cpu_gemm<register_rows = 1, register_columns = 4, columns_per_cta = 4, lanes = 4, rows_per_cta = 8>}
  tile.return
}

// -----

// VDPBF16PS adds two products to each lane, without widening.
// CHECK-LABEL: func.func @pairs
// CHECK: %[[X:.*]] = vector.bitcast %{{.*}} : vector<32xbf16> to vector<16xi32>
// CHECK: llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"({{.*}}) : (vector<16xf32>, vector<32xbf16>, vector<32xbf16>) -> vector<16xf32>
// CHECK-NOT: vector.fma
tile.kernel @pairs(%x: memref<?x64xbf16>, %w: memref<2x4x64xbf16>, %o: memref<3xi32>,
                   %y: memref<?x4xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x4x64xbf16>)
      offsets(%o : memref<3xi32>) outs(%y : memref<?x4xbf16>)
      {config = #tile.cpu_gemm<register_rows = 1, register_columns = 4, columns_per_cta = 4, lanes = 16, instruction_k = 2>}
  tile.return
}

// -----

// VPDPBUSD adds four products to each lane. Weights have 128 added, and 128 times the sum of each row is subtracted.
// CHECK-LABEL: func.func @quads
// CHECK-DAG: %[[HALF:.*]] = arith.constant dense<-2139062144> : vector<8xi32>
// CHECK: arith.xori %{{.*}}, %[[HALF]]
// CHECK-COUNT-5: llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.256"({{.*}}) : (vector<8xi32>, vector<32xi8>, vector<32xi8>) -> vector<8xi32>
// CHECK: arith.subi
// CHECK: arith.sitofp
// CHECK: arith.mulf
// CHECK-NOT: vector.fma
tile.kernel @quads(%x: memref<?x128xi8>, %xs: memref<?x1xf32>, %w: memref<2x32x128xi8>, %ws: memref<2x32x1xf32>, %o: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x128xi8>, memref<2x32x128xi8>) input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<2x32x1xf32>) offsets(%o : memref<3xi32>) outs(%y : memref<?x32xbf16>) {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, config = #tile.cpu_gemm<register_rows = 1, register_columns = 4, block_k = 32, columns_per_cta = 32, lanes = 8, instruction_k = 4>}
  tile.return
}

// -----

// AMX. One row is a tile of one column as it lies in memory. Several rows are copied in words of 32 bits along K, and
// their sums transposed back.
// CHECK-LABEL: func.func @tiles
// CHECK-SAME: %[[X:[^:]*]]: memref<?x64xbf16>, %[[W:[^:]*]]: memref<2x64x64xbf16>
// CHECK-DAG: %[[PACKED:.*]] = memref.alloca() {{.*}} : memref<4x32x16xi32>
// CHECK: scf.if
// CHECK: llvm.call_intrinsic "llvm.x86.ldtilecfg"
// CHECK-COUNT-2: llvm.call_intrinsic "llvm.x86.tilezero"
// CHECK: scf.for
// CHECK: memref.extract_aligned_pointer_as_index %[[X]]
// CHECK-COUNT-3: llvm.call_intrinsic "llvm.x86.tileloadd64"
// CHECK-NOT: vector.shuffle
// CHECK: } else {
// CHECK: llvm.call_intrinsic "llvm.x86.ldtilecfg"
// CHECK: vector.shuffle
// CHECK: vector.store {{.*}} %[[PACKED]]
// CHECK: memref.extract_aligned_pointer_as_index %[[PACKED]]
// CHECK: llvm.call_intrinsic "llvm.x86.tdpbf16ps"
// CHECK: llvm.call_intrinsic "llvm.x86.tilestored64"
// CHECK: vector.shuffle
// CHECK: llvm.call_intrinsic "llvm.x86.tilerelease"
tile.kernel @tiles(%x: memref<?x64xbf16>, %w: memref<2x64x64xbf16>, %o: memref<3xi32>,
                   %y: memref<?x32xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x64x64xbf16>)
      offsets(%o : memref<3xi32>) outs(%y : memref<?x32xbf16>)
      epilogue {
  ^bb0(%g: f32, %u: f32):
    %v = arith.mulf %g, %u : f32
    tile.yield %v : f32
  } {layout = #moe.weight_layout<order = gate_up>,
     config = #tile.cpu_gemm<register_rows = 32, register_columns = 16, block_k = 32, columns_per_cta = 32, lanes = 16, instruction_k = 32>}
  tile.return
}
