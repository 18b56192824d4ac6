// RUN: moe-opt %s --split-input-file --verify-diagnostics --tile-assign-config="lanes=16"

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{instruction_k = 32 needs a CPU with AMX; give 1 for the target}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 16, register_columns = 16, block_k = 32, columns_per_cta = 16, lanes = 16, instruction_k = 32>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{instruction_k = 2 needs a CPU with AVX512_BF16; give 1 for the target}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 16, lanes = 16, instruction_k = 2>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{has the schedule "sm90.gemm", which the target cpu does not have; there are cpu.gemm, cpu.top_k, cpu.sort_by_expert, cpu.row_map, cpu.rms_norm, cpu.lora_shrink, cpu.tensor_scale, cpu.quantize, cpu.gather_rows, cpu.gather_reduce}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.sm90_gemm<stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{has the schedule "cpu.sort_by_expert", which runs tile.sort_by_expert; remove 'config' to have one chosen}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_sort_by_expert}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{register_rows = 0; give at least 1}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_columns = 4, block_k = 16, columns_per_cta = 16, lanes = 16>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{register_columns = 0; give at least 1}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 4, block_k = 16, columns_per_cta = 16, lanes = 16>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{block_k = 0; give at least 1}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, columns_per_cta = 16, lanes = 16>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{columns_per_cta = 0; give at least 1}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 16, lanes = 16>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{lanes = 32; give a power of two up to the target's 16}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 16, lanes = 32>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{block_k = 12 is not a multiple of lanes = 8}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 12, columns_per_cta = 16, lanes = 8>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{register_columns = 3 needs 3 weight rows at a time; their number must be a multiple of 4}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 3, block_k = 16, columns_per_cta = 15, lanes = 16>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{register_rows = 8, register_columns = 4 needs 41 vector registers, more than the target's 32; give a smaller tile}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 8, register_columns = 4, block_k = 16, columns_per_cta = 16, lanes = 16>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{columns_per_cta = 18 is not a multiple of register_columns = 4}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 16, columns_per_cta = 18, lanes = 16>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x32x64xbf16>, %off: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{rows_per_cta = 8; give 0 for a gemm with offsets, whose CTAs compute all rows of a group}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x32x64xbf16>) offsets(%off : memref<3xi32>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 16, columns_per_cta = 16, lanes = 16, rows_per_cta = 8>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<32x64xbf16>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{rows_per_cta = 0; give at least 1}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<32x64xbf16>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 16, columns_per_cta = 16, lanes = 16>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<32x64xbf16>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{rows_per_cta = 2048, columns_per_cta = 16 needs 131072 bytes of sums; give a smaller block of at most 65536}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<32x64xbf16>) outs(%y : memref<?x32xbf16>) {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 16, columns_per_cta = 16, lanes = 16, rows_per_cta = 2048>}
  tile.return
}

// -----

tile.kernel @k(%l: memref<?x4xf32>, %ids: memref<?x2xi32>, %wt: memref<?x2xf32>, %t: i64) {
  // expected-error @below {{rows_per_cta = 0; give at least 1}}
  tile.top_k tokens(%t) logits(%l : memref<?x4xf32>) outs(%ids, %wt : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2> {config = #tile.cpu_top_k<lanes = 16>}
  tile.return
}

// -----

tile.kernel @k(%l: memref<?x4xf32>, %ids: memref<?x2xi32>, %wt: memref<?x2xf32>, %t: i64) {
  // expected-error @below {{lanes = 3; give a power of two up to the target's 16}}
  tile.top_k tokens(%t) logits(%l : memref<?x4xf32>) outs(%ids, %wt : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2> {config = #tile.cpu_top_k<lanes = 3, rows_per_cta = 4>}
  tile.return
}

// -----

tile.kernel @k(%r: memref<?x8xf32>, %pos: memref<?x2xi32>, %y: memref<?x8xf32>, %t: i64) {
  // expected-error @below {{register_columns = 12 is not a multiple of lanes = 8}}
  tile.gather_reduce tokens(%t) ins(%r, %pos : memref<?x8xf32>, memref<?x2xi32>) outs(%y : memref<?x8xf32>) {config = #tile.cpu_gather_reduce<register_columns = 12, lanes = 8, rows_per_cta = 4>}
  tile.return
}

// -----

tile.kernel @k(%r: memref<?x8xf32>, %pos: memref<?x2xi32>, %y: memref<?x8xf32>, %t: i64) {
  // expected-error @below {{register_columns = 512 needs 32 accumulators; give at most 16 times lanes}}
  tile.gather_reduce tokens(%t) ins(%r, %pos : memref<?x8xf32>, memref<?x2xi32>) outs(%y : memref<?x8xf32>) {config = #tile.cpu_gather_reduce<register_columns = 512, lanes = 16, rows_per_cta = 4>}
  tile.return
}

// -----

tile.kernel @k(%r: memref<?x8xf32>, %pos: memref<?x2xi32>, %y: memref<?x8xf32>, %t: i64) {
  // expected-error @below {{rows_per_cta = 0; give at least 1}}
  tile.gather_reduce tokens(%t) ins(%r, %pos : memref<?x8xf32>, memref<?x2xi32>) outs(%y : memref<?x8xf32>) {config = #tile.cpu_gather_reduce<register_columns = 16, lanes = 16>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %xs: memref<?x2xf32>, %w: memref<32x256xf8E4M3FN>, %ws: memref<1x2xf32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{block_k = 48; give a divisor of the 128 elements that are dequantized at once}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<32x256xf8E4M3FN>) input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<1x2xf32>) outs(%y : memref<?x32xbf16>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 48, columns_per_cta = 16, lanes = 16, rows_per_cta = 4>}
  tile.return
}

// -----

tile.kernel @quantized_result(%x: memref<?x256xf8E4M3FN>, %w: memref<4x256x256xf8E4M3FN>, %a: memref<?x2xf32>, %b: memref<4x2x2xf32>,
    %o: memref<5xi32>, %y: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  // expected-error @+1 {{this schedule quantizes no results; use a tile.quantize of the result}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<4x256x256xf8E4M3FN>)
      input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x256xf8E4M3FN>) result_scale(%s : memref<?x2xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16, config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 128, columns_per_cta = 32, lanes = 8>}
  tile.return
}

// -----

tile.kernel @gather_rows(%x: memref<?x2048xbf16>, %o: memref<129xi32>, %s: memref<?xi32>, %y: memref<?x2048xbf16>, %t: i64) {
  // expected-error@+1 {{rows_per_cta = 0; give at least 1}}
  tile.gather_rows tokens(%t) ins(%x : memref<?x2048xbf16>) offsets(%o : memref<129xi32>)
      source(%s : memref<?xi32>) outs(%y : memref<?x2048xbf16>) {top_k = 8 : i64, config = #tile.cpu_gather_rows}
  tile.return
}

// -----

tile.kernel @some_groups(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{this schedule does not select groups by their rows; remove 'group_rows'}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>) outs(%y : memref<?x128xbf16>)
      {group_rows = #tile.group_rows<min = 64>, config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 32, lanes = 8>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x128xi8>, %xs: memref<?x1xf32>, %w: memref<2x32x128xi8>, %ws: memref<2x32x1xf32>, %o: memref<3xi32>, %y: memref<?x32xbf16>, %t: i64) {
  // expected-error @below {{instruction_k = 4 needs a CPU with AVX512_VNNI or AVX_VNNI; give 1 for the target}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x128xi8>, memref<2x32x128xi8>) input_scale(%xs : memref<?x1xf32>) weight_scale(%ws : memref<2x32x1xf32>) offsets(%o : memref<3xi32>) outs(%y : memref<?x32xbf16>) {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>, config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 64, columns_per_cta = 32, lanes = 16, instruction_k = 4>}
  tile.return
}
