// Legal and illegal forms of tile.exchange.
// RUN: moe-opt %s --split-input-file --verify-diagnostics | moe-opt --split-input-file | FileCheck %s

// CHECK-LABEL: tile.kernel @gather(
// CHECK: tile.exchange all_gather tokens(%tokens) ins(%{{.*}}, %{{.*}} : memref<?x8xbf16>, memref<1xi32>) outs(%{{.*}}, %{{.*}} : memref<?x8xbf16>, memref<2xi32>) heaps(%{{.*}}, %{{.*}} : memref<?xi64>, memref<?xi64>) {config = #tile.gpu_exchange<ctas = 64, threads = 512, chunks = 4>}
tile.kernel @gather(%x: memref<?x8xbf16>, %n: memref<1xi32>, %y: memref<?x8xbf16>, %m: memref<2xi32>,
    %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  tile.exchange all_gather tokens(%tokens) ins(%x, %n : memref<?x8xbf16>, memref<1xi32>)
      outs(%y, %m : memref<?x8xbf16>, memref<2xi32>) heaps(%a, %b : memref<?xi64>, memref<?xi64>)
      {config = #tile.gpu_exchange<ctas = 64, threads = 512, chunks = 4>}
  tile.return
}

// Rows for destination ranks only, from a number of rows on; ids are gathered too.
// CHECK-LABEL: tile.kernel @destinations(
// CHECK: tile.exchange all_gather tokens(%tokens) ins(%{{.*}}, %[[IDS:.*]] : memref<?x256xbf16>, memref<?x2xi32>) outs(%{{.*}}, %{{.*}} : memref<?x256xbf16>, memref<?x2xi32>) destinations(%{{.*}} : memref<4xi32>) ids(%[[IDS]] : memref<?x2xi32>) routed [0] heaps({{.*}}) {config = #tile.gpu_exchange<ctas = 64, threads = 512, chunks = 4, least_rows = 256>}
tile.kernel @destinations(%x: memref<?x256xbf16>, %i: memref<?x2xi32>, %y: memref<?x256xbf16>, %j: memref<?x2xi32>,
    %o: memref<4xi32>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  tile.exchange all_gather tokens(%tokens) ins(%x, %i : memref<?x256xbf16>, memref<?x2xi32>)
      outs(%y, %j : memref<?x256xbf16>, memref<?x2xi32>) destinations(%o : memref<4xi32>) ids(%i : memref<?x2xi32>) routed [0]
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
      {config = #tile.gpu_exchange<ctas = 64, threads = 512, chunks = 4, least_rows = 256>}
  tile.return
}

// Sums of slots that the kernel makes itself.
// CHECK-LABEL: tile.kernel @sums_of(
// CHECK: tile.exchange all_reduce tokens(%tokens) ins({{.*}}) outs({{.*}}) sums_of(%{{.*}}, %{{.*}} : memref<?x8xf32>, memref<?x2xi32>) addend(%{{.*}} : memref<?x8xf32>) num_valid_tokens(%{{.*}} : memref<1xi32>) heaps(
tile.kernel @sums_of(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %r: memref<?x8xf32>, %p: memref<?x2xi32>,
    %s: memref<?x8xf32>, %v: memref<1xi32>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  tile.exchange all_reduce tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>) addend(%s : memref<?x8xf32>) num_valid_tokens(%v : memref<1xi32>)
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// Quantized values and scales, too.
// CHECK-LABEL: tile.kernel @unquantized(
// CHECK: tile.exchange all_gather to_results tokens(%tokens) ins({{.*}}) outs({{.*}}) unquantized(%{{.*}} : memref<?x256xbf16>) quantized [0, 1] by <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> heaps(
tile.kernel @unquantized(%q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %y: memref<?x256xf8E4M3FN>, %z: memref<?x2xf32>,
    %x: memref<?x256xbf16>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  tile.exchange all_gather to_results tokens(%tokens) ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
      outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>) unquantized(%x : memref<?x256xbf16>) quantized [0, 1]
      by <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// CHECK-LABEL: tile.kernel @quantized_rows(
// CHECK: unquantized(%{{.*}} : memref<?x48xf16>) quantized [1, 0] by <storage = i8, scale = f32, granularity = token, dynamic = true> heaps(
tile.kernel @quantized_rows(%q: memref<?x48xi8>, %s: memref<?x1xf32>, %y: memref<?x48xi8>, %z: memref<?x1xf32>,
    %x: memref<?x48xf16>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  tile.exchange all_gather to_results tokens(%tokens) ins(%s, %q : memref<?x1xf32>, memref<?x48xi8>)
      outs(%z, %y : memref<?x1xf32>, memref<?x48xi8>) unquantized(%x : memref<?x48xf16>) quantized [1, 0]
      by <storage = i8, scale = f32, granularity = token, dynamic = true>
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @by(%q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %y: memref<?x256xf8E4M3FN>, %z: memref<?x2xf32>,
    %x: memref<?x256xbf16>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{has one of 'unquantized' and 'by'; give both or neither}}
  tile.exchange all_gather tokens(%tokens) ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
      outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>) unquantized(%x : memref<?x256xbf16>) quantized [0, 1]
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @quant(%q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %y: memref<?x256xf8E4M3FN>, %z: memref<?x2xf32>,
    %x: memref<?x256xbf16>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{give a dynamic quantization to 'f8E4M3FN' with f32 for groups of [1, 128]}}
  tile.exchange all_gather tokens(%tokens) ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
      outs(%y, %z : memref<?x256xf8E4M3FN>, memref<?x2xf32>) unquantized(%x : memref<?x256xbf16>) quantized [0, 1]
      by <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 64], dynamic = true>
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

// A row of one group is quantized by row.
tile.kernel @static(%q: memref<?x128xf8E4M3FN>, %s: memref<?x1xf32>, %y: memref<?x128xf8E4M3FN>, %z: memref<?x1xf32>,
    %x: memref<?x128xbf16>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{give a dynamic quantization to 'f8E4M3FN' with f32 for groups of [1, 128] or by token}}
  tile.exchange all_gather tokens(%tokens) ins(%q, %s : memref<?x128xf8E4M3FN>, memref<?x1xf32>)
      outs(%y, %z : memref<?x128xf8E4M3FN>, memref<?x1xf32>) unquantized(%x : memref<?x128xbf16>) quantized [0, 1]
      by <storage = i8, scale = f32, granularity = token, dynamic = true>
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @groups_of_rows(%q: memref<?x256xi8>, %s: memref<?x1xf32>, %y: memref<?x256xi8>, %z: memref<?x1xf32>,
    %x: memref<?x256xbf16>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{give a dynamic quantization to 'i8' with f32 by token}}
  tile.exchange all_gather tokens(%tokens) ins(%q, %s : memref<?x256xi8>, memref<?x1xf32>)
      outs(%y, %z : memref<?x256xi8>, memref<?x1xf32>) unquantized(%x : memref<?x256xbf16>) quantized [0, 1]
      by <storage = i8, scale = f32, granularity = group, block = [1, 256], dynamic = true>
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @gathers(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %r: memref<?x8xf32>, %p: memref<?x2xi32>,
    %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{gathers rows and makes no sums; remove 'sums_of'}}
  tile.exchange all_gather tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>) heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @alone(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %s: memref<?x8xf32>, %a: memref<?xi64>, %b: memref<?xi64>,
    %tokens: i64) {
  // expected-error @+1 {{has 'addend' or 'num_valid_tokens' without 'sums_of'; give 'sums_of' too, or remove them}}
  tile.exchange all_reduce tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      addend(%s : memref<?x8xf32>) heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @columns(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %r: memref<?x4xf32>, %p: memref<?x2xi32>,
    %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{has rows of type 'memref<?x4xf32>' for sums of type 'memref<?x8xf32>'; give both the same type, of rank 2 with a dynamic number of rows}}
  tile.exchange all_reduce tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      sums_of(%r, %p : memref<?x4xf32>, memref<?x2xi32>) heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @position(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %r: memref<?x8xf32>, %p: memref<?xi32>,
    %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{has 'position' of type 'memref<?xi32>'; give i32 of shape rows x top_k}}
  tile.exchange all_reduce tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      sums_of(%r, %p : memref<?x8xf32>, memref<?xi32>) heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @two(%x: memref<?x8xf32>, %w: memref<?x8xf32>, %y: memref<?x8xf32>, %z: memref<?x8xf32>,
    %r: memref<?x8xf32>, %p: memref<?x2xi32>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{has 2 'ins'; with 'sums_of' give one}}
  tile.exchange all_reduce tokens(%tokens) ins(%x, %w : memref<?x8xf32>, memref<?x8xf32>)
      outs(%y, %z : memref<?x8xf32>, memref<?x8xf32>) sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>)
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @valid(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %r: memref<?x8xf32>, %p: memref<?x2xi32>,
    %v: memref<2xi32>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{has 'num_valid_tokens' of type 'memref<2xi32>'; give memref<1xi32>}}
  tile.exchange all_reduce tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>) num_valid_tokens(%v : memref<2xi32>)
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @shared(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %r: memref<?x8xf32>, %p: memref<?x2xi32>,
    %s: memref<?x8xbf16>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{has an 'addend' of type 'memref<?x8xbf16>'; give one of type 'memref<?x8xf32>'}}
  tile.exchange all_reduce tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>) addend(%s : memref<?x8xbf16>)
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @sums(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %i: memref<?x2xi32>, %o: memref<4xi32>,
    %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{gives all ranks the same sums; remove 'destinations', 'ids' and 'routed'}}
  tile.exchange all_reduce tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      destinations(%o : memref<4xi32>) ids(%i : memref<?x2xi32>) routed [0] heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @one(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %a: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{has 1 heaps; give one per rank, 2 to 16}}
  tile.exchange all_reduce tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      heaps(%a : memref<?xi64>)
  tile.return
}

// -----

tile.kernel @heap(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %a: memref<?xi64>, %b: memref<4xi64>, %tokens: i64) {
  // expected-error @+1 {{has a heap of type 'memref<4xi64>'; memref<?xi64> is accepted}}
  tile.exchange all_reduce tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      heaps(%a, %b : memref<?xi64>, memref<4xi64>)
  tile.return
}

// -----

tile.kernel @rows(%x: memref<1xi32>, %y: memref<3xi32>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{ins[0] is 'memref<1xi32>' and outs[0] is 'memref<3xi32>'; with 2 heaps they may differ only in the first dimension}}
  tile.exchange all_gather tokens(%tokens) ins(%x : memref<1xi32>) outs(%y : memref<3xi32>)
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @sum(%x: memref<?x8xi32>, %y: memref<?x8xi32>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{ins[0] has elements of type 'i32', which cannot be summed; f32, bf16 and f16 can}}
  tile.exchange reduce_scatter tokens(%tokens) ins(%x : memref<?x8xi32>) outs(%y : memref<?x8xi32>)
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @pairs(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{has 2 ins and 1 outs; give one or more ins and as many outs}}
  tile.exchange all_reduce tokens(%tokens) ins(%x, %x : memref<?x8xf32>, memref<?x8xf32>)
      outs(%y : memref<?x8xf32>) heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @twice(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{uses one memref twice; give each operand its own memref}}
  tile.exchange all_reduce tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      heaps(%a, %a : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @config(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  tile.exchange all_reduce tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      // expected-error @+1 {{'warps' is not a field of gpu.exchange; it has ctas, threads, chunks, least_rows}}
      heaps(%a, %b : memref<?xi64>, memref<?xi64>) {config = #tile.gpu_exchange<warps = 2>}
  tile.return
}

// -----

// CHECK-LABEL: tile.kernel @results
//       CHECK: tile.exchange all_gather to_results tokens
tile.kernel @results(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  tile.exchange all_gather to_results tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}

// -----

tile.kernel @sums(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %a: memref<?xi64>, %b: memref<?xi64>, %tokens: i64) {
  // expected-error @+1 {{is 'to_results', which only an all_gather may be; remove it}}
  tile.exchange all_reduce to_results tokens(%tokens) ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
      heaps(%a, %b : memref<?xi64>, memref<?xi64>)
  tile.return
}
