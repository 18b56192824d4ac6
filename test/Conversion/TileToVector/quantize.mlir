// RUN: moe-opt %s --split-input-file --convert-tile-to-vector --canonicalize --cse | FileCheck %s

// Magnitudes are compared as integers; the scale and the quantized values are quotients.
// CHECK-LABEL: func.func @quantize(
// CHECK-SAME: %[[X:[^:]*]]: memref<?x136xf32>, %[[OFF:[^:]*]]: memref<5xi32>, %[[Q:[^:]*]]: memref<?x136xf8E4M3FN>, %[[S:[^:]*]]: memref<?x2xf32>
// CHECK-DAG: %[[LEAST:.*]] = arith.constant 786163455 : i32
// CHECK-DAG: %[[MOST:.*]] = arith.constant 4.480000e+02 : f32
// CHECK-DAG: %[[DIGITS:.*]] = arith.constant dense<2147483647> : vector<8xi32>
// CHECK-DAG: %[[C4:.*]] = arith.constant 4 : index
// CHECK: %[[LAST:.*]] = memref.load %[[OFF]][%[[C4]]]
// CHECK: %[[END:.*]] = arith.index_cast %[[LAST]]
// CHECK: %[[STOP:.*]] = arith.minsi %{{.*}}, %[[END]] : index
// CHECK: scf.for %[[ROW:.*]] = %{{.*}} to %[[STOP]]
// CHECK: %[[IN:.*]] = vector.load %[[X]][%[[ROW]]
// CHECK: %[[BITS:.*]] = arith.bitcast %[[IN]] : vector<8xf32> to vector<8xi32>
// CHECK: arith.andi %[[BITS]], %[[DIGITS]]
// CHECK-COUNT-15: arith.maxsi {{.*}} : vector<8xi32>
// CHECK: %[[LARGEST:.*]] = vector.reduction <maxsi>
// CHECK: arith.maxsi %[[LARGEST]], %[[LEAST]] : i32
// CHECK: %[[SCALE:.*]] = arith.divf %{{.*}}, %[[MOST]] : f32
// CHECK: memref.store %[[SCALE]], %[[S]][%[[ROW]]
// CHECK: %[[SCALES:.*]] = vector.broadcast %[[SCALE]] : f32 to vector<8xf32>
// CHECK: arith.divf %[[IN]], %[[SCALES]] : vector<8xf32>
// CHECK: %[[CODES:.*]] = vector.bitcast %{{.*}} : vector<8xi8> to vector<8xf8E4M3FN>
// CHECK: vector.store %[[CODES]], %[[Q]][%[[ROW]]
tile.kernel @quantize(%x: memref<?x136xf32>, %off: memref<5xi32>, %q: memref<?x136xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x136xf32>) offsets(%off : memref<5xi32>)
      outs(%q, %s : memref<?x136xf8E4M3FN>, memref<?x2xf32>)
      {top_k = 2 : i64, config = #tile.cpu_quantize<lanes = 8, rows_per_cta = 2>}
  tile.return
}

// -----

// Block by block, both operands become f32 in the CTA's memory (256 corrects the exponent of the f16 fields), and a
// block's sums, times their scales, are added up. Up rows start a new block of scales.
// CHECK-LABEL: func.func @contract(
// CHECK-SAME: %[[X:[^:]*]]: memref<?x256xf8E4M3FN>, %[[W:[^:]*]]: memref<160x256xf8E4M3FN>, %[[XS:[^:]*]]: memref<?x2xf32>, %[[WS:[^:]*]]: memref<2x2xf32>
// CHECK-DAG: %[[LACK:.*]] = arith.constant dense<2.560000e+02> : vector<8xf32>
// CHECK-DAG: %[[EXPONENT:.*]] = arith.constant dense<31744> : vector<8xi16>
// CHECK-DAG: %[[XF:.*]] = memref.alloca() {{.*}} : memref<4x128xf32>
// CHECK-DAG: %[[WF:.*]] = memref.alloca() {{.*}} : memref<32x128xf32>
// CHECK-DAG: %[[SUMS:.*]] = memref.alloca() {{.*}} : memref<2x4x16xf32>
// CHECK: memref.load %[[XS]][%{{.*}}, %[[BLOCK:.*]]]
// CHECK: vector.load %[[X]]
// CHECK: arith.extsi %{{.*}} : vector<8xi8> to vector<8xi16>
// CHECK: arith.ori %{{.*}}, %[[EXPONENT]]
// CHECK: arith.extf %{{.*}} : vector<8xf16> to vector<8xf32>
// CHECK: arith.mulf %{{.*}}, %[[LACK]]
// CHECK: vector.store %{{.*}}, %[[XF]][
// CHECK: memref.load %[[WS]][%{{.*}}, %[[BLOCK]]]
// CHECK: memref.prefetch %[[W]]
// CHECK: vector.store %{{.*}}, %[[WF]][
// CHECK: vector.load %[[XF]]
// CHECK: vector.load %[[WF]]
// CHECK: vector.fma
// CHECK: %[[FACTORS:.*]] = arith.mulf %{{.*}} : vector<2xf32>
// CHECK: vector.fma %{{.*}}, %[[FACTORS]], %{{.*}} : vector<2xf32>
// CHECK: vector.store %{{.*}}, %[[SUMS]]
tile.kernel @contract(%x: memref<?x256xf8E4M3FN>, %w: memref<160x256xf8E4M3FN>, %xs: memref<?x2xf32>, %ws: memref<2x2xf32>, %y: memref<?x80xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<160x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<2x2xf32>) outs(%y : memref<?x80xf32>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %p = arith.mulf %g, %u : f32
        tile.yield %p : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>,
         config = #tile.cpu_gemm<register_rows = 1, register_columns = 2, block_k = 32, columns_per_cta = 16, lanes = 8, rows_per_cta = 4>}
  tile.return
}

// -----

// The scale of all rows: magnitudes that are not finite count as 0, and the maximum starts at its lower bound.
// CHECK-LABEL: func.func @tensor_scale(
// CHECK-SAME: %[[X:[^:]*]]: memref<?x20xf32>, %[[OFF:[^:]*]]: memref<5xi32>, %[[S:[^:]*]]: memref<1xf32>
// CHECK-DAG: %[[FINITE:.*]] = arith.constant dense<2139095039> : vector<8xi32>
// CHECK-DAG: %[[LEAST:.*]] = arith.constant dense<1.000000e-10> : vector<8xf32>
// CHECK-DAG: %[[MOST:.*]] = arith.constant 4.480000e+02 : f32
// CHECK: %[[LAST:.*]] = memref.load %[[OFF]]
// CHECK: %[[END:.*]] = arith.index_cast %[[LAST]]
// CHECK: vector.store %[[LEAST]], %[[LARGEST:.*]][
// CHECK: scf.for %[[ROW:.*]] = %{{.*}} to %[[END]]
// CHECK: vector.load %[[X]][%[[ROW]]
// CHECK: arith.cmpi sle, %{{.*}}, %[[FINITE]]
// CHECK: arith.select
// CHECK: arith.maxsi
// CHECK: vector.maskedload %[[X]][%[[ROW]]
// CHECK: vector.reduction <maxsi>
// CHECK: %[[SCALE:.*]] = arith.divf %{{.*}}, %[[MOST]] : f32
// CHECK: memref.store %[[SCALE]], %[[S]]
tile.kernel @tensor_scale(%x: memref<?x20xf32>, %off: memref<5xi32>, %s: memref<1xf32>, %t: i64) {
  tile.tensor_scale <storage = f8E4M3FN, scale = f32, granularity = tensor, dynamic = true> tokens(%t)
      ins(%x : memref<?x20xf32>) offsets(%off : memref<5xi32>) outs(%s : memref<1xf32>)
      {top_k = 2 : i64, config = #tile.cpu_tensor_scale<lanes = 8>}
  tile.return
}

// -----

// A given scale: one division, and values beyond the range saturate.
// CHECK-LABEL: func.func @given(
// CHECK-SAME: %[[X:[^:]*]]: memref<?x16xf32>, %[[S:[^:]*]]: memref<1xf32>, %[[Q:[^:]*]]: memref<?x16xf8E4M3FN>
// CHECK-DAG: %[[END:.*]] = arith.constant dense<1138753536> : vector<8xi32>
// CHECK: %[[SCALE:.*]] = memref.load %[[S]]
// CHECK: %[[DIVISOR:.*]] = vector.broadcast %[[SCALE]] : f32 to vector<8xf32>
// CHECK-NOT: vector.reduction
// CHECK: arith.divf %{{.*}}, %[[DIVISOR]] : vector<8xf32>
// CHECK: arith.minsi %{{.*}}, %[[END]]
// CHECK: vector.store %{{.*}}, %[[Q]][
tile.kernel @given(%x: memref<?x16xf32>, %s: memref<1xf32>, %q: memref<?x16xf8E4M3FN>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = tensor> tokens(%t) ins(%x : memref<?x16xf32>)
      tensor_scale(%s : memref<1xf32>) outs(%q : memref<?x16xf8E4M3FN>)
      {config = #tile.cpu_quantize<lanes = 8, rows_per_cta = 2>}
  tile.return
}
