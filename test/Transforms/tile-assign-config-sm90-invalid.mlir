// RUN: moe-opt %s --tile-assign-config=target=sm_90a --split-input-file --verify-diagnostics

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{tile_rows = []; give at least one height}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_columns = 128, step = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{tile_rows has 12; give multiples of 8 up to 256}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [12], tile_columns = 128, step = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{tile_rows has 264; give multiples of 8 up to 256}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [8, 264], tile_columns = 128, step = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{tile_columns = 32; give 64, 128 or 256}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [8], tile_columns = 32, step = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<256x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{tile_columns = 256; give 32, 64 or 128}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<256x64xbf16>)
      outs(%y : memref<?x128xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        tile.yield %g : f32
      } {config = #tile.sm90_contract<tile_rows = [8], tile_columns = 256, step = 64, stages = 4>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{step = 32; give 64}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [8], tile_columns = 128, step = 32, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{tile_columns = 256, tile_rows up to 256 needs 256 accumulators per thread; give at most 160}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [256], tile_columns = 256, step = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{stages = 2; give 3 to 16}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [8], tile_columns = 128, step = 64, stages = 2>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{stages = 16 needs 284960 bytes of shared memory; give at most 232448}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [8], tile_columns = 128, step = 64, stages = 16>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<2x128x64xbf16>, %o: memref<3xi32>,
    %s: memref<?xi32>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{map_rows = true, but rows come by 'source', which no map knows}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<2x128x64xbf16>)
      offsets(%o : memref<3xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [8], tile_columns = 128, step = 64, stages = 4, map_rows>}
  tile.return
}

// -----

// Consumers that share a block exchange the sums of half of the rows.
tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{tile_rows has 24; give multiples of 16 up to 64 with tile_columns = 64}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [16, 24], tile_columns = 64, step = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{tile_rows has 80; give multiples of 16 up to 64 with tile_columns = 64}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [80], tile_columns = 64, step = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<24x64xbf16>, %y: memref<?x12xf32>, %t: i64) {
  // expected-error@+1 {{the result has 12 columns, and gate and up are copied by 8 columns}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<24x64xbf16>)
      outs(%y : memref<?x12xf32>) epilogue {
      ^bb0(%g: f32, %u: f32):
        tile.yield %g : f32
      } {config = #tile.sm90_contract<tile_rows = [8], tile_columns = 64, step = 64, stages = 4>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// -----

// Input rows are the instruction's M side.
tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{tile_rows up to 32; give 64 or 128 as the highest with rows_on_m = true, and lower ones in multiples of 8}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [32], tile_columns = 128, step = 64, stages = 4, rows_on_m>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{tile_rows has 192; give 64 or 128 as the highest with rows_on_m = true, and lower ones in multiples of 8}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [64, 192], tile_columns = 128, step = 64, stages = 4, rows_on_m>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{tile_rows has 72; give 64 or 128 as the highest with rows_on_m = true, and lower ones in multiples of 8}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [72, 128], tile_columns = 128, step = 64, stages = 4, rows_on_m>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{tile_columns = 64 with rows_on_m = true; give 128 or 256}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [64], tile_columns = 64, step = 64, stages = 4, rows_on_m>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  // expected-error@+1 {{queue = true without 'offsets'; only tiles of groups are queued}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 128, step = 64, stages = 4, queue>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{queue = false, but there are 'tickets'; give true, or no tickets}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>) schedule(tickets = %c : memref<1xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 128, step = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{queue = true of products that are one kernel, whose tiles have a fixed order}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 128, step = 64, stages = 4, queue>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{of two products of a kernel the first one signals and the next one awaits that; run tile-rewrite-launches}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%y : memref<?x128xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 128, step = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %h: memref<?x64xbf16>, %y: memref<?x64xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{of two products of a kernel the first one signals and the next one awaits that; run tile-rewrite-launches}}
  tile.contract tokens(%t) ins(%h, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(awaits = %c : memref<1xi32>)
      outs(%y : memref<?x64xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 64, step = 64, stages = 4, map_rows>}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%h : memref<?x64xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 64, step = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %v: memref<8x64x64xbf16>, %o: memref<9xi32>, %h: memref<?x64xbf16>, %y: memref<?x64xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{of two products of a kernel their groups differ}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%h : memref<?x64xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 64, step = 64, stages = 4>, group_rows = #tile.group_rows<max = 64>}
  tile.contract tokens(%t) ins(%h, %v : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(awaits = %c : memref<1xi32>)
      outs(%y : memref<?x64xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 64, step = 64, stages = 4>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %v: memref<8x64x64xbf16>, %o: memref<9xi32>, %h: memref<?x64xbf16>, %y: memref<?x64xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{of two products of a kernel stages = 4 and 5 of one ring}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%h : memref<?x64xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 64, step = 64, stages = 4>}
  tile.contract tokens(%t) ins(%h, %v : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(awaits = %c : memref<1xi32>)
      outs(%y : memref<?x64xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 64, step = 64, stages = 5, map_rows>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %v: memref<8x64x64xbf16>, %o: memref<9xi32>, %h: memref<?x64xbf16>, %y: memref<?x64xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{of two products of a kernel their tile_rows differ, and the table of tiles is one}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%h : memref<?x64xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 64, step = 64, stages = 4>}
  tile.contract tokens(%t) ins(%h, %v : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(awaits = %c : memref<1xi32>)
      outs(%y : memref<?x64xbf16>) {config = #tile.sm90_contract<tile_rows = [32], tile_columns = 64, step = 64, stages = 4, map_rows>}
  tile.return
}

// -----

tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %v: memref<8x64x64xbf16>, %o: memref<9xi32>, %h: memref<?x64xbf16>, %y: memref<?x64xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{of two products of a kernel map_rows = true of the first: the ring's barriers count the threads that copy its rows}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%h : memref<?x64xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 64, step = 64, stages = 4, map_rows>}
  tile.contract tokens(%t) ins(%h, %v : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(awaits = %c : memref<1xi32>)
      outs(%y : memref<?x64xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 64, step = 64, stages = 4, map_rows>}
  tile.return
}

// -----

tile.kernel @others_schedule(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %h: memref<?x64xbf16>,
    %v: memref<8x64x64xbf16>, %y: memref<?x64xbf16>, %c: memref<1xi32>, %t: i64) {
  // expected-error@+1 {{of two products of a kernel the other one has the schedule sm80.contract; give both sm90.contract}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(signals = %c : memref<1xi32>)
      outs(%h : memref<?x64xbf16>) {config = #tile.sm90_contract<tile_rows = [16], tile_columns = 64, step = 64, stages = 4>}
  tile.contract tokens(%t) ins(%h, %v : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>) schedule(awaits = %c : memref<1xi32>)
      outs(%y : memref<?x64xbf16>) {config = #tile.sm80_contract<tile_rows = 32, tile_columns = 32, step = 64, vector_width = 8>}
  tile.return
}

// -----

// Tensor cores have fewer shapes for int8.
tile.kernel @widths_of_int8(%x: memref<?x256xi8>, %w: memref<256x256xi8>, %a: memref<?x1xf32>, %b: memref<256x1xf32>,
    %y: memref<?x256xbf16>, %t: i64) {
  // expected-error@+1 {{tile_rows has 40; give multiples of 8 up to 256, of int8 8, 24 or multiples of 16}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x256xi8>, memref<256x256xi8>) input_scale(%a : memref<?x1xf32>)
      weight_scale(%b : memref<256x1xf32>) outs(%y : memref<?x256xbf16>)
      {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>,
       config = #tile.sm90_contract<tile_rows = [8, 16, 24, 40], tile_columns = 128, step = 128, stages = 4>}
  tile.return
}

// -----

// A kernel quantizes the rows that its product multiplies, and no others.
tile.kernel @other_rows(%h: memref<?x256xbf16>, %x: memref<?x256xf8E4M3FN>, %w: memref<8x128x256xf8E4M3FN>, %ws: memref<8x128x1xf32>,
    %o: memref<9xi32>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x1xf32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t) ins(%h : memref<?x256xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x1xf32>) {config = #tile.sm80_quantize<elements_per_cta = 1024, vector_width = 8>, top_k = 2 : i64}
  // expected-error@+1 {{its kernel cannot quantize its rows: it reads other rows}}
  tile.contract tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<8x128x256xf8E4M3FN>)
      input_scale(%s : memref<?x1xf32>) weight_scale(%ws : memref<8x128x1xf32>) offsets(%o : memref<9xi32>)
      schedule(awaits = %c : memref<1xi32>) outs(%y : memref<?x128xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
       config = #tile.sm90_contract<tile_rows = [16], tile_columns = 64, step = 128, stages = 4>}
  tile.return
}

// -----

tile.kernel @long_rows(%h: memref<?x2176xbf16>, %w: memref<8x128x2176xf8E4M3FN>, %ws: memref<8x128x1xf32>,
    %o: memref<9xi32>, %q: memref<?x2176xf8E4M3FN>, %s: memref<?x1xf32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t) ins(%h : memref<?x2176xbf16>) offsets(%o : memref<9xi32>)
      outs(%q, %s : memref<?x2176xf8E4M3FN>, memref<?x1xf32>) {config = #tile.sm80_quantize<elements_per_cta = 1024, vector_width = 8>, top_k = 2 : i64}
  // expected-error@+1 {{its kernel cannot quantize its rows: a warp cannot hold a row of them, or its elements do not share a scale}}
  tile.contract tokens(%t) ins(%q, %w : memref<?x2176xf8E4M3FN>, memref<8x128x2176xf8E4M3FN>)
      input_scale(%s : memref<?x1xf32>) weight_scale(%ws : memref<8x128x1xf32>) offsets(%o : memref<9xi32>)
      schedule(awaits = %c : memref<1xi32>) outs(%y : memref<?x128xbf16>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel>,
       config = #tile.sm90_contract<tile_rows = [16], tile_columns = 64, step = 128, stages = 4>}
  tile.return
}
