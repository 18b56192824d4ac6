// RUN: moe-opt %s --split-input-file --tile-assign-config="lanes=16 products=vnni" | FileCheck %s --check-prefix=WIDE
// RUN: moe-opt %s --split-input-file --tile-assign-config="lanes=8 products=vnni" | FileCheck %s --check-prefix=NARROW
// RUN: moe-opt %s --split-input-file --tile-assign-config="lanes=16" | FileCheck %s --check-prefix=FMA

// int8 with scales of whole rows, by VPDPBUSD.
// WIDE-LABEL: tile.kernel @quads
// WIDE: config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 64, columns_per_cta = 32, lanes = 16, instruction_k = 4>
// NARROW: config = #tile.cpu_gemm<register_rows = 2, register_columns = 4, block_k = 32, columns_per_cta = 32, lanes = 8, instruction_k = 4>
// FMA-NOT: instruction_k
tile.kernel @quads(%x: memref<?x128xi8>, %xs: memref<?x1xf32>, %w: memref<2x32x128xi8>, %ws: memref<2x32x1xf32>, %o: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x128xi8>, memref<2x32x128xi8>) input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<2x32x1xf32>) offsets(%o : memref<3xi32>) outs(%y : memref<?x32xbf16>) {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>}
  tile.return
}

// -----

// Rows that are no whole vectors.
// WIDE-LABEL: tile.kernel @short
// WIDE-NOT: instruction_k
tile.kernel @short(%x: memref<?x80xi8>, %xs: memref<?x1xf32>, %w: memref<2x32x80xi8>, %ws: memref<2x32x1xf32>, %o: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x80xi8>, memref<2x32x80xi8>) input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<2x32x1xf32>) offsets(%o : memref<3xi32>) outs(%y : memref<?x32xbf16>) {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>}
  tile.return
}
