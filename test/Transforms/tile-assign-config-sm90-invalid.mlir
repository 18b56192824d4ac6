// RUN: moe-opt %s --tile-assign-config=target=sm_90a --split-input-file --verify-diagnostics

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{block_m = []; give at least one value}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{block_m has 12; give multiples of 8 up to 256}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [12], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{block_m has 264; give multiples of 8 up to 256}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [8, 264], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{block_n = 32; give 64, 128 or 256}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [8], block_n = 32, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<256x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{block_n = 256; give 32, 64 or 128}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<256x64xbf16>)
      outs(%y : memref<?x128xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        tile.yield %g : f32
      } {config = #tile.sm90_gemm<block_m = [8], block_n = 256, block_k = 64, stages = 4>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{block_k = 32; give 64}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [8], block_n = 128, block_k = 32, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{block_n = 256, block_m up to 256 needs 256 accumulators per thread; give at most 160}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [256], block_n = 256, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{stages = 2; give 3 to 16}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [8], block_n = 128, block_k = 64, stages = 2>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{stages = 16 needs 284960 bytes of shared memory; give at most 232448}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [8], block_n = 128, block_k = 64, stages = 16>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x128x64xbf16>, %o: memref<3xi32>,
    %s: memref<?xi32>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{map_rows = true, but a tensor map cannot gather rows by 'source'}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x128x64xbf16>)
      offsets(%o : memref<3xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [8], block_n = 128, block_k = 64, stages = 4, map_rows>}
  tile.return
}

// -----

// Consumers that share a block exchange the sums of half of the rows.
tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{block_m has 24; give multiples of 16 up to 64 with block_n = 64}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16, 24], block_n = 64, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{block_m has 80; give multiples of 16 up to 64 with block_n = 64}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [80], block_n = 64, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<24x64xbf16>, %y: memref<?x12xf32>, %t: i64) {
  // expected-error@+1 {{the result has 12 columns, but gate and up rows are copied 8 at a time}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<24x64xbf16>)
      outs(%y : memref<?x12xf32>) epilogue {
      ^bb0(%g: f32, %u: f32):
        tile.yield %g : f32
      } {config = #tile.sm90_gemm<block_m = [8], block_n = 64, block_k = 64, stages = 4>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// -----

// Input rows are the instruction's M side.
tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{block_m up to 32; with no_swap_ab = true, give 64 or 128 as the largest and multiples of 8 below}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [32], block_n = 128, block_k = 64, stages = 4, no_swap_ab>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{block_m has 192; with no_swap_ab = true, give 64 or 128 as the largest and multiples of 8 below}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [64, 192], block_n = 128, block_k = 64, stages = 4, no_swap_ab>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{block_m has 72; with no_swap_ab = true, give 64 or 128 as the largest and multiples of 8 below}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [72, 128], block_n = 128, block_k = 64, stages = 4, no_swap_ab>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{block_n = 64 with no_swap_ab = true; give 128 or 256}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [64], block_n = 64, block_k = 64, stages = 4, no_swap_ab>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{dynamic_scheduler = true needs a grouped gemm; give 'offsets', or dynamic_scheduler = false}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, dynamic_scheduler>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{dynamic_scheduler = false, but the gemm has 'tile_counter'; give dynamic_scheduler = true, or remove 'tile_counter'}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>) schedule(tile_counter = %c : memref<1xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{multicast_weights = true, but a dense gemm has no groups whose tiles could be paired; give false}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, multicast_weights>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{multicast_weights = true, but CTAs that wait for each other run without clusters; give false}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, multicast_weights>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{dynamic_scheduler = true, but tiles of joined gemms have a fixed order}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, dynamic_scheduler>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{of two joined gemms, the first must signal and the second await the same counter; run tile-rewrite-launches}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %h: memref<?x64xbf16>, %y: memref<?x64xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{of two joined gemms, the first must signal and the second await the same counter; run tile-rewrite-launches}}
  tile.gemm tokens(%t) ins(%h, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(awaits = %c : memref<1xi32>)
      outs(%y : memref<?x64xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4, map_rows>}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%h : memref<?x64xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %v: memref<8x64x64xbf16>, %o: memref<9xi32>, %h: memref<?x64xbf16>, %y: memref<?x64xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{two gemms cannot be joined: their groups differ}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%h : memref<?x64xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4>, group_rows = #tile.group_rows<max = 64>}
  tile.gemm tokens(%t) ins(%h, %v : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(awaits = %c : memref<1xi32>)
      outs(%y : memref<?x64xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %v: memref<8x64x64xbf16>, %o: memref<9xi32>, %h: memref<?x64xbf16>, %y: memref<?x64xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{two gemms cannot be joined: stages = 4 and 5 for one pipeline}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%h : memref<?x64xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4>}
  tile.gemm tokens(%t) ins(%h, %v : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(awaits = %c : memref<1xi32>)
      outs(%y : memref<?x64xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 5, map_rows>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %v: memref<8x64x64xbf16>, %o: memref<9xi32>, %h: memref<?x64xbf16>, %y: memref<?x64xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{two gemms cannot be joined: their block_m differ, but they share one tile table}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%h : memref<?x64xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4>}
  tile.gemm tokens(%t) ins(%h, %v : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(awaits = %c : memref<1xi32>)
      outs(%y : memref<?x64xbf16>) {config = #tile.sm90_gemm<block_m = [32], block_n = 64, block_k = 64, stages = 4, map_rows>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %v: memref<8x64x64xbf16>, %o: memref<9xi32>, %h: memref<?x64xbf16>, %y: memref<?x64xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{two gemms cannot be joined: the first has map_rows = true, but the pipeline's barriers count the threads that copy its rows}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%h : memref<?x64xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4, map_rows>}
  tile.gemm tokens(%t) ins(%h, %v : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(awaits = %c : memref<1xi32>)
      outs(%y : memref<?x64xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4, map_rows>}
  tile.return
}

// -----

tile.kernel @others_schedule(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %h: memref<?x64xbf16>,
    %v: memref<8x64x64xbf16>, %y: memref<?x64xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{the other one of two joined gemms has the schedule sm80.gemm; give both sm90.gemm}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%h : memref<?x64xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4>}
  tile.gemm tokens(%t) ins(%h, %v : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(awaits = %c : memref<1xi32>)
      outs(%y : memref<?x64xbf16>) {config = #tile.sm80_gemm<block_m = 32, block_n = 32, block_k = 64, vector_width = 8>}
  tile.return
}

// -----

// Tensor cores have fewer shapes for int8.
tile.kernel @widths_of_int8(%x: memref<?x256xi8>, %w: memref<256x256xi8>, %a: memref<?x1xf32>, %b: memref<256x1xf32>,
    %y: memref<?x256xbf16>, %t: i64) {
  // expected-error@+1 {{block_m has 40; give multiples of 8 up to 256, for int8 8, 24 or multiples of 16}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xi8>, memref<256x256xi8>) input_scale(%a : memref<?x1xf32>)
      weight_scale(%b : memref<256x1xf32>) outs(%y : memref<?x256xbf16>)
      {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>,
       config = #tile.sm90_gemm<block_m = [8, 16, 24, 40], block_n = 128, block_k = 128, stages = 4>}
  tile.return
}

// -----

// A kernel quantizes the rows that its product multiplies, and no others.
tile.kernel @other_rows(%h: memref<?x256xbf16>, %x: memref<?x256xf8E4M3FN>, %w: memref<8x128x256xf8E4M3FN>, %ws: memref<8x128x1xf32>,
    %o: memref<9xi32>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x1xf32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t) ins(%h : memref<?x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x1xf32>) {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>, top_k = 2 : i64}
  // expected-error@+1 {{the kernel cannot quantize the gemm's rows: the gemm reads other rows}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x128x256xf8E4M3FN>)
      input_scale(%s : memref<?x1xf32>) weight_scale(%ws : memref<8x128x1xf32>) offsets(%o : memref<9xi32>)
      schedule(awaits = %c : memref<1xi32>) outs(%y : memref<?x128xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
       config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 128, stages = 4>}
  tile.return
}

// -----

tile.kernel @long_rows(%h: memref<?x2176xbf16>, %w: memref<8x128x2176xf8E4M3FN>, %ws: memref<8x128x1xf32>,
    %o: memref<9xi32>, %q: memref<?x2176xf8E4M3FN>, %s: memref<?x1xf32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t) ins(%h : memref<?x2176xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x2176xf8E4M3FN>, memref<?x1xf32>) {config = #tile.gpu_quantize<elements_per_cta = 1024, vector_width = 8>, top_k = 2 : i64}
  // expected-error@+1 {{the kernel cannot quantize the gemm's rows: a warp cannot hold a row in registers, or a row has several scales}}
  tile.gemm tokens(%t) ins(%q, %w : memref<?x2176xf8E4M3FN>, memref<8x128x2176xf8E4M3FN>)
      input_scale(%s : memref<?x1xf32>) weight_scale(%ws : memref<8x128x1xf32>) offsets(%o : memref<9xi32>)
      schedule(awaits = %c : memref<1xi32>) outs(%y : memref<?x128xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
       config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 128, stages = 4>}
  tile.return
}

// -----

tile.kernel @adapters(%x: memref<?x64xbf16>, %w: memref<3x128x64xbf16>, %o: memref<4xi32>, %s: memref<?x16xbf16>,
    %i: memref<?x1xi32>, %b: memref<33x3x128x16xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{there are 33 adapters, but at most 32 may follow each other along K; give 'shrunk' as f32}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<3x128x64xbf16>) offsets(%o : memref<4xi32>)
      shrunk(%s : memref<?x16xbf16>) adapters(%i : memref<?x1xi32>) b(%b : memref<33x3x128x16xbf16>)
      outs(%y : memref<?x128xbf16>) epilogue {
    ^bb0(%sum: f32, %update: f32):
      %v = arith.addf %sum, %update : f32
      tile.yield %v : f32
    } {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @adapters(%x: memref<?x64xbf16>, %w: memref<3x128x64xbf16>, %o: memref<4xi32>, %s: memref<?x20xbf16>,
    %i: memref<?x1xi32>, %b: memref<2x3x128x20xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{rank 20 is no multiple of 8; give 'shrunk' as f32}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<3x128x64xbf16>) offsets(%o : memref<4xi32>)
      shrunk(%s : memref<?x20xbf16>) adapters(%i : memref<?x1xi32>) b(%b : memref<2x3x128x20xbf16>)
      outs(%y : memref<?x128xbf16>) epilogue {
    ^bb0(%sum: f32, %update: f32):
      %v = arith.addf %sum, %update : f32
      tile.yield %v : f32
    } {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @adapters(%x: memref<?x64xbf16>, %w: memref<3x128x64xbf16>, %o: memref<4xi32>, %s: memref<?x16xbf16>,
    %i: memref<?x1xi32>, %b: memref<2x3x128x16xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{the epilogue does more with updates than to add them to sums; give 'shrunk' as f32}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<3x128x64xbf16>) offsets(%o : memref<4xi32>)
      shrunk(%s : memref<?x16xbf16>) adapters(%i : memref<?x1xi32>) b(%b : memref<2x3x128x16xbf16>)
      outs(%y : memref<?x128xbf16>) epilogue {
    ^bb0(%sum: f32, %update: f32):
      %v = arith.mulf %sum, %update : f32
      tile.yield %v : f32
    } {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @adapters(%x: memref<?x64xbf16>, %w: memref<3x128x64xbf16>, %o: memref<4xi32>, %s: memref<?x16xbf16>,
    %i: memref<?x1xi32>, %b: memref<2x3x128x16xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{multicast_weights = true, but each CTA copies the adapters of its own rows; give false}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<3x128x64xbf16>) offsets(%o : memref<4xi32>)
      shrunk(%s : memref<?x16xbf16>) adapters(%i : memref<?x1xi32>) b(%b : memref<2x3x128x16xbf16>)
      outs(%y : memref<?x128xbf16>) epilogue {
    ^bb0(%sum: f32, %update: f32):
      %v = arith.addf %sum, %update : f32
      tile.yield %v : f32
    } {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, multicast_weights>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<4x256x256xf8E4M3FN>, %b: memref<4x2x2xf32>, %o: memref<5xi32>,
    %y: memref<?x256xbf16>, %t: i64) {
  // expected-error@+1 {{map_rows = true, but a tensor map cannot quantize rows}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<4x256x256xf8E4M3FN>)
      weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>) outs(%y : memref<?x256xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, quantizes_input,
       config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 128, stages = 4, map_rows>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<4x256x256xf8E4M3FN>, %b: memref<4x2x2xf32>, %o: memref<5xi32>,
    %y: memref<?x256xbf16>, %t: i64) {
  // expected-error@+1 {{block_m up to 40, but rows are quantized as they are copied; give at most 32}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<4x256x256xf8E4M3FN>)
      weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>) outs(%y : memref<?x256xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, quantizes_input,
       config = #tile.sm90_gemm<block_m = [8, 40], block_n = 128, block_k = 128, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x640xbf16>, %w: memref<4x256x640xf8E4M3FN>, %b: memref<4x2x5xf32>, %o: memref<5xi32>,
    %y: memref<?x256xbf16>, %t: i64) {
  // expected-error@+1 {{stages = 4, but warps quantize k tiles in turn, and may leave as many of 5 to others; give at least 5}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x640xbf16>, memref<4x256x640xf8E4M3FN>)
      weight_scale(%b : memref<4x2x5xf32>) offsets(%o : memref<5xi32>) outs(%y : memref<?x256xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, quantizes_input,
       config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 128, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<4x256x256xf8E4M3FN>, %b: memref<4x2x2xf32>, %o: memref<5xi32>,
    %y: memref<?x256xbf16>, %t: i64) {
  // expected-error@+1 {{multicast_weights = true, but each CTA quantizes its own rows; give false}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<4x256x256xf8E4M3FN>)
      weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>) outs(%y : memref<?x256xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, quantizes_input,
       config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 128, stages = 4, multicast_weights>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<4x256x256xf8E4M3FN>, %b: memref<4x256x1xf32>, %o: memref<5xi32>,
    %y: memref<?x256xbf16>, %t: i64) {
  // expected-error@+1 {{rows that are quantized as they are copied need a given scale or scales of 128 elements, those of a k tile; remove 'quantizes_input', and quantize by a tile.quantize}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<4x256x256xf8E4M3FN>)
      weight_scale(%b : memref<4x256x1xf32>) offsets(%o : memref<5xi32>) outs(%y : memref<?x256xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>, quantizes_input,
       config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 128, stages = 4>}
  tile.return
}

// -----

// Other schedules copy rows as they are.
tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<4x256x256xf8E4M3FN>, %b: memref<4x2x2xf32>, %o: memref<5xi32>,
    %y: memref<?x256xbf16>, %t: i64) {
  // expected-error@+1 {{this schedule does not quantize the rows that it copies; remove 'quantizes_input', and quantize by a tile.quantize}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<4x256x256xf8E4M3FN>)
      weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>) outs(%y : memref<?x256xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, quantizes_input,
       config = #tile.sm80_gemm<block_m = 16, block_n = 64, block_k = 64, vector_width = 8>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<128x256xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{split_k = 3; give 0, 2, 4 or 8}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<128x256xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, split_k = 3>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<8x128x256xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{split_k = 8, but there are 4 k tiles; give at most that many CTAs}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<8x128x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, split_k = 8>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<8x128x256xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{split_k = 2, but block_m is up to 40; give values up to 32 without no_swap_ab, or split_k = 0}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<8x128x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16, 40], block_n = 128, block_k = 64, stages = 4, split_k = 2>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<8x128x256xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{split_k = 2, but block_m is up to 64; give values up to 32 without no_swap_ab, or split_k = 0}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<8x128x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16, 64], block_n = 128, block_k = 64, stages = 4, no_swap_ab, split_k = 2>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<8x128x256xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{split_k = 2, but multicast_weights has clusters of its own; give 0}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<8x128x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, multicast_weights, split_k = 2>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<8x128x256xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{split_k = 2, but clusters take tiles in a fixed order, without dynamic_scheduler; give 0}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<8x128x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, dynamic_scheduler, split_k = 2>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<8x128x256xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{split_k = 2, but CTAs that wait for each other run without clusters; give 0}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<8x128x256xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, split_k = 2>}
  tile.return
}

// -----

tile.kernel @adapters(%x: memref<?x256xbf16>, %w: memref<3x128x256xbf16>, %o: memref<4xi32>, %s: memref<?x16xbf16>,
    %i: memref<?x1xi32>, %b: memref<2x3x128x16xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{split_k = 2, but the k tiles of adapters are not split; give 0}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<3x128x256xbf16>) offsets(%o : memref<4xi32>)
      shrunk(%s : memref<?x16xbf16>) adapters(%i : memref<?x1xi32>) b(%b : memref<2x3x128x16xbf16>)
      outs(%y : memref<?x128xbf16>) epilogue {
    ^bb0(%sum: f32, %update: f32):
      %v = arith.addf %sum, %update : f32
      tile.yield %v : f32
    } {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, split_k = 2>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x256xbf16>, %w: memref<4x256x256xf8E4M3FN>, %b: memref<4x2x2xf32>, %o: memref<5xi32>,
    %y: memref<?x256xbf16>, %t: i64) {
  // expected-error@+1 {{split_k = 2, but threads that quantize rows take the k tiles in turns; give 0}}
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<4x256x256xf8E4M3FN>)
      weight_scale(%b : memref<4x2x2xf32>) offsets(%o : memref<5xi32>) outs(%y : memref<?x256xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, quantizes_input,
       config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 128, stages = 4, split_k = 2>}
  tile.return
}
