// RUN: moe-opt %s --tile-assign-config=target=sm_100a --split-input-file --verify-diagnostics

#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, power_of_two = true>
#weights = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = [1, 32]>

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<512x256xf8E4M3FN>, %a: memref<?x8xf32>,
    %b: memref<512x8xf8E8M0FNU>, %y: memref<?x512xbf16>, %t: i64) {
  // expected-error@+1 {{block_m = 24; give a multiple of 16 up to 128}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<512x256xf8E4M3FN>)
      input_scale(%a : memref<?x8xf32>) weight_scale(%b : memref<512x8xf8E8M0FNU>)
      outs(%y : memref<?x512xbf16>) {input_quant = #rows, weight_quant = #weights,
                                    config = #tile.sm100_gemm<block_m = 24, block_n = 128, stages = 4>}
  tile.return
}

// -----

#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, power_of_two = true>
#weights = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = [1, 32]>

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<512x256xf8E4M3FN>, %a: memref<?x8xf32>,
    %b: memref<512x8xf8E8M0FNU>, %y: memref<?x512xbf16>, %t: i64) {
  // expected-error@+1 {{block_m = 144; give a multiple of 16 up to 128}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<512x256xf8E4M3FN>)
      input_scale(%a : memref<?x8xf32>) weight_scale(%b : memref<512x8xf8E8M0FNU>)
      outs(%y : memref<?x512xbf16>) {input_quant = #rows, weight_quant = #weights,
                                    config = #tile.sm100_gemm<block_m = 144, block_n = 128, stages = 4>}
  tile.return
}

// -----

#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, power_of_two = true>
#weights = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = [1, 32]>

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<512x256xf8E4M3FN>, %a: memref<?x8xf32>,
    %b: memref<512x8xf8E8M0FNU>, %y: memref<?x512xbf16>, %t: i64) {
  // expected-error@+1 {{block_n = 384; give 128 or 256}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<512x256xf8E4M3FN>)
      input_scale(%a : memref<?x8xf32>) weight_scale(%b : memref<512x8xf8E8M0FNU>)
      outs(%y : memref<?x512xbf16>) {input_quant = #rows, weight_quant = #weights,
                                    config = #tile.sm100_gemm<block_m = 64, block_n = 384, stages = 4>}
  tile.return
}

// -----

#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, power_of_two = true>
#weights = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = [1, 32]>

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<512x256xf8E4M3FN>, %a: memref<?x8xf32>,
    %b: memref<512x8xf8E8M0FNU>, %y: memref<?x512xbf16>, %t: i64) {
  // expected-error@+1 {{block_n = 64; give 128 or 256}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<512x256xf8E4M3FN>)
      input_scale(%a : memref<?x8xf32>) weight_scale(%b : memref<512x8xf8E8M0FNU>)
      outs(%y : memref<?x512xbf16>) {input_quant = #rows, weight_quant = #weights,
                                    config = #tile.sm100_gemm<block_m = 64, block_n = 64, stages = 4>}
  tile.return
}

// -----

#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, power_of_two = true>
#weights = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = [1, 32]>

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<512x256xf8E4M3FN>, %a: memref<?x8xf32>,
    %b: memref<512x8xf8E8M0FNU>, %y: memref<?x512xbf16>, %t: i64) {
  // expected-error@+1 {{stages = 1; give 2 to 8}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<512x256xf8E4M3FN>)
      input_scale(%a : memref<?x8xf32>) weight_scale(%b : memref<512x8xf8E8M0FNU>)
      outs(%y : memref<?x512xbf16>) {input_quant = #rows, weight_quant = #weights,
                                    config = #tile.sm100_gemm<block_m = 64, block_n = 128, stages = 1>}
  tile.return
}

// -----

#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, power_of_two = true>
#weights = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = [1, 32]>

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<512x256xf8E4M3FN>, %a: memref<?x8xf32>,
    %b: memref<512x8xf8E8M0FNU>, %y: memref<?x512xbf16>, %t: i64) {
  // expected-error@+1 {{stages = 9; give 2 to 8}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<512x256xf8E4M3FN>)
      input_scale(%a : memref<?x8xf32>) weight_scale(%b : memref<512x8xf8E8M0FNU>)
      outs(%y : memref<?x512xbf16>) {input_quant = #rows, weight_quant = #weights,
                                    config = #tile.sm100_gemm<block_m = 64, block_n = 128, stages = 9>}
  tile.return
}

// -----

#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, power_of_two = true>
#weights = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = [1, 32]>

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<512x256xf8E4M3FN>, %a: memref<?x8xf32>,
    %b: memref<512x8xf8E8M0FNU>, %y: memref<?x512xbf16>, %t: i64) {
  // expected-error@+1 {{stages = 5 needs 243328 bytes of shared memory; give at most 232448}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<512x256xf8E4M3FN>)
      input_scale(%a : memref<?x8xf32>) weight_scale(%b : memref<512x8xf8E8M0FNU>)
      outs(%y : memref<?x512xbf16>) {input_quant = #rows, weight_quant = #weights,
                                    config = #tile.sm100_gemm<block_m = 112, block_n = 256, stages = 5>}
  tile.return
}

// -----

#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, power_of_two = true>
#weights = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = [1, 32]>

tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<512x256xf8E4M3FN>, %a: memref<?x8xf32>,
    %b: memref<512x8xf8E8M0FNU>, %y: memref<?x256xbf16>, %t: i64) {
  // expected-error@+1 {{block_n = 256; give 128}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<512x256xf8E4M3FN>)
      input_scale(%a : memref<?x8xf32>) weight_scale(%b : memref<512x8xf8E8M0FNU>)
      outs(%y : memref<?x256xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        tile.yield %g : f32
      } {input_quant = #rows, weight_quant = #weights, layout = #moe.weight_layout<order = gate_up>,
         config = #tile.sm100_gemm<block_m = 64, block_n = 256, stages = 2>}
  tile.return
}
