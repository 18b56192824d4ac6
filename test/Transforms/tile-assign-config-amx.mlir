// RUN: moe-opt %s --split-input-file --verify-diagnostics --tile-assign-config="lanes=16 products=amx"

// Configs of AMX and of VNNI that a gemm cannot have.
tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{instruction_k = 8; give 1, 2, 4, 32 or 64}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 16, register_columns = 16, block_k = 32, columns_per_cta = 16, lanes = 16, instruction_k = 8>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{register_rows = 8; give 16 or 32 with instruction_k = 32}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 8, register_columns = 16, block_k = 32, columns_per_cta = 16, lanes = 16, instruction_k = 32>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{register_columns = 8; give 16 or 32 with instruction_k = 32}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 16, register_columns = 8, block_k = 32, columns_per_cta = 16, lanes = 16, instruction_k = 32>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x40x64xbf16>, %off: memref<3xi32>, %y: memref<?x40xbf16>, %t: i64) {
  // expected-error @below {{register_columns = 16; give a divisor of the 40 columns with instruction_k = 32}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x40x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x40xbf16>) {config = #tile.cpu_gemm<register_rows = 16, register_columns = 16, block_k = 32, columns_per_cta = 16, lanes = 16, instruction_k = 32>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x80xbf16>, %w: memref<2x32x80xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{block_k = 32; give a multiple of 32 that divides the 80 elements of K with instruction_k = 32}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x80xbf16>, memref<2x32x80xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 16, register_columns = 16, block_k = 32, columns_per_cta = 16, lanes = 16, instruction_k = 32>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{lanes = 8; give 16 with instruction_k = 32}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 16, register_columns = 16, block_k = 32, columns_per_cta = 16, lanes = 8, instruction_k = 32>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{rows_per_cta = 24; give a multiple of 16 up to 64 with instruction_k = 32}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 16, register_columns = 16, block_k = 32, columns_per_cta = 16, lanes = 16, rows_per_cta = 24, instruction_k = 32>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x16384xbf16>, %w: memref<2x32x16384xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{16 input rows of 16384 elements exceed the 256 KiB that instruction_k = 32 copies; give instruction_k = 1}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x16384xbf16>, memref<2x32x16384xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 16, register_columns = 16, block_k = 32, columns_per_cta = 16, lanes = 16, instruction_k = 32>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xf16>, %w: memref<2x32x64xf16>, %off: memref<3xi32>, %y: memref<?x32xf16>, %t: i64) {
  // expected-error @below {{instruction_k = 32 multiplies bf16; give 1 for other operands}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xf16>, memref<2x32x64xf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xf16>) {config = #tile.cpu_gemm<register_rows = 16, register_columns = 16, block_k = 32, columns_per_cta = 16, lanes = 16, instruction_k = 32>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{instruction_k = 64 multiplies int8 with scales of whole rows; give 1 for other operands}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 16, register_columns = 16, block_k = 64, columns_per_cta = 16, lanes = 16, instruction_k = 64>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x80xi8>, %xs: memref<?x1xf32>, %w: memref<2x32x80xi8>, %ws: memref<2x32x1xf32>, %o: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{instruction_k = 4 needs rows of a multiple of 64 elements, up to 65536, and they have 80; give 1}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x80xi8>, memref<2x32x80xi8>) input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<2x32x1xf32>) offsets(%o : memref<3xi32>) outs(%y : memref<?x32xbf16>) {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 64, columns_per_cta = 32, lanes = 16, instruction_k = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x128xi8>, %xs: memref<?x1xf32>, %w: memref<2x32x128xi8>, %ws: memref<2x32x1xf32>, %o: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{lanes = 4; give 8 or 16 with instruction_k = 4}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x128xi8>, memref<2x32x128xi8>) input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<2x32x1xf32>) offsets(%o : memref<3xi32>) outs(%y : memref<?x32xbf16>) {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 64, columns_per_cta = 32, lanes = 4, instruction_k = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x128xi8>, %xs: memref<?x1xf32>, %w: memref<2x32x128xi8>, %ws: memref<2x32x1xf32>, %o: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{register_rows = 6, register_columns = 4 needs 38 vector registers, more than the target's 32; give a smaller tile}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x128xi8>, memref<2x32x128xi8>) input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<2x32x1xf32>) offsets(%o : memref<3xi32>) outs(%y : memref<?x32xbf16>) {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, config = #tile.cpu_gemm<register_rows = 6, register_columns = 4, block_k = 64, columns_per_cta = 32, lanes = 16, instruction_k = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{instruction_k = 4 multiplies int8 with scales of whole rows; give 1 for other operands}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 64, columns_per_cta = 16, lanes = 16, instruction_k = 4>}
  tile.return
}
