// Configs of quantization and of products of e4m3 on GPUs.
// RUN: moe-opt %s --tile-assign-config=target=sm_80 | FileCheck %s
// RUN: moe-opt %s --tile-assign-config=target=sm_80 | moe-opt --tile-to-nvvm=target=sm_80 | FileCheck %s --check-prefix=ARITHMETIC
// RUN: moe-opt %s --tile-assign-config=target=sm_90a | moe-opt --tile-to-nvvm=target=sm_90a | FileCheck %s --check-prefix=CONVERT

// Two groups of 128 per warp, four vectors per thread.
// CHECK-LABEL: tile.kernel @quantize
// CHECK-SAME: block = 128 : i64
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens * 56, 32)">
// CHECK-SAME: shared = 0 : i64
// CHECK: #tile.config<schedule = "sm80.quantize", panel = 4096, lanes = 8>
// ARITHMETIC-LABEL: llvm.func @quantize
// ARITHMETIC-NOT: convert.f32x2
// CONVERT-LABEL: llvm.func @quantize
// CONVERT: nvvm.convert.f32x2.to.f8x2 {{.*}}rnd = #nvvm.fp_rnd_mode<rn>, sat = #nvvm.sat_mode<satfinite>{{.*}}f8E4M3FN
tile.kernel @quantize(%x: memref<?x7168xbf16>, %q: memref<?x7168xf8E4M3FN>, %s: memref<?x56xf32>,
    %t: i64) {
  tile.quantize tokens(%t) ins(%x : memref<?x7168xbf16>)
      outs(%q, %s : memref<?x7168xf8E4M3FN>, memref<?x56xf32>)
  tile.return
}

// Rows of positions; the last group has 72 columns.
// CHECK-LABEL: tile.kernel @quantize_positions
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens * 16, 32)">
// CHECK: #tile.config<schedule = "sm80.quantize", panel = 4096, lanes = 8>
tile.kernel @quantize_positions(%x: memref<?x200xbf16>, %o: memref<9xi32>,
    %q: memref<?x200xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize tokens(%t) ins(%x : memref<?x200xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x200xf8E4M3FN>, memref<?x2xf32>) {top_k = 8 : i64}
  tile.return
}

// Odd rows: elements one by one, a warp per group.
// CHECK-LABEL: tile.kernel @quantize_odd
// CHECK: #tile.config<schedule = "sm80.quantize", panel = 512, lanes = 1>
tile.kernel @quantize_odd(%x: memref<?x37xbf16>, %q: memref<?x37xf8E4M3FN>, %s: memref<?x1xf32>,
    %t: i64) {
  tile.quantize tokens(%t) ins(%x : memref<?x37xbf16>)
      outs(%q, %s : memref<?x37xf8E4M3FN>, memref<?x1xf32>)
  tile.return
}

// CHECK-LABEL: tile.kernel @odd_rows
// CHECK: #tile.config<schedule = "sm80.contract", m = 64, n = 32, k = 128, lanes = 1>
// ARITHMETIC-LABEL: llvm.func @odd_rows
// ARITHMETIC-NOT: convert.f8x2
// ARITHMETIC: nvvm.mma.sync {{.*}}(vector<2xf16>, vector<2xf16>, f32)
// CONVERT-LABEL: llvm.func @odd_rows
// CONVERT: nvvm.convert.f8x2.to.f16x2 {{.*}}(f8E4M3FN)
// CONVERT: nvvm.mma.sync {{.*}}(vector<2xf16>, vector<2xf16>, f32)
tile.kernel @odd_rows(%x: memref<?x200xf8E4M3FN>, %w: memref<37x200xf8E4M3FN>, %a: memref<?x2xf32>,
    %b: memref<1x2xf32>, %y: memref<?x37xf32>, %t: i64) {
  tile.contract tokens(%t) ins(%x, %w : memref<?x200xf8E4M3FN>, memref<37x200xf8E4M3FN>)
      scales(%a, %b : memref<?x2xf32>, memref<1x2xf32>) outs(%y : memref<?x37xf32>)
  tile.return
}
