// A kernel quantizes the rows that it gathers if a launch did that for it alone and its inputs are kept until then.
// The launch stays, for runtimes that do not use the kernel.
// RUN: moe-opt %s --pass-pipeline="builtin.module(plan.program(plan-assign-slots),tile-make-exchanges{target=sm_90a})" \
// RUN:   --split-input-file | FileCheck %s

// %h no longer shares a slot with %n, which the step in between writes.
// CHECK-LABEL: plan.program @layer
//       CHECK: plan.buffer "h" slot [[H:[0-9]+]]
//   CHECK-NOT: plan.buffer "n" slot [[H]]
//       CHECK: plan.launch @quantize tokens <"ceildiv(tokens, 2)"> ins(%h :
//       CHECK: plan.collective all_gather dp to_results ins(%i, %q, %s :
//  CHECK-SAME: destinations(%o : memref<4xi32>) ids(%i : memref<?x2xi32>) routed [1, 2]
//  CHECK-SAME: unquantized(%h : memref<?x256xbf16>) quantized [1, 2] {plan.exchange_kernel = @all_gather}
// CHECK-LABEL: tile.kernel @all_gather(
//  CHECK-SAME: memref<4xi32>, %[[H:[a-z0-9]+]]: memref<?x256xbf16>, %{{[a-z0-9]+}}: memref<?xi64>,
//       CHECK: tile.exchange all_gather to_results tokens(%tokens)
//  CHECK-SAME: unquantized(%[[H]] : memref<?x256xbf16>) quantized [1, 2]
//  CHECK-SAME: by <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>
plan.program @layer max_tokens 16 mesh <dp = 2, tp = 1> {
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %o = plan.tensor weight "o" : memref<4xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %h = plan.buffer "h" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %q = plan.buffer "q" rows <"ceildiv(tokens, 2)"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "s" rows <"ceildiv(tokens, 2)"> : memref<?x2xf32>
  %b = plan.buffer "b" rows <"tokens"> : memref<?x2xi32>
  %p = plan.buffer "p" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %r = plan.buffer "r" rows <"tokens"> : memref<?x2xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x256xbf16>
  %n = plan.buffer "n" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  plan.variant tokens 0 to 16 {
    plan.launch @make tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x256xbf16>) outs(%h : memref<?x256xbf16>)
    plan.launch @quantize tokens <"ceildiv(tokens, 2)"> ins(%h : memref<?x256xbf16>)
        outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.launch @make tokens <"ceildiv(tokens, 2)"> stream 1 ins(%x : memref<?x256xbf16>) outs(%n : memref<?x256xbf16>)
    plan.record event 1 stream 1
    plan.collective all_gather dp ins(%i, %q, %s : memref<?x2xi32>, memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%b, %p, %r : memref<?x2xi32>, memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        destinations(%o : memref<4xi32>) ids(%i : memref<?x2xi32>) routed [1, 2]
    plan.wait event 1 stream 0
    plan.launch @experts ins(%b, %p, %r : memref<?x2xi32>, memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%a : memref<?x256xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x256xbf16>) outs(%y : memref<?x256xbf16>)
  }
}
tile.kernel @make(%x: memref<?x256xbf16>, %h: memref<?x256xbf16>, %t: i64) {
  tile.return
}
tile.kernel @experts(%b: memref<?x2xi32>, %p: memref<?x256xf8E4M3FN>, %r: memref<?x2xf32>, %a: memref<?x256xbf16>, %t: i64) {
  tile.return
}
tile.kernel @quantize(%x: memref<?x256xbf16>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t)
      ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  tile.return
}

// -----

// Not for values that other steps read too, like a shared expert; after whose launch another one may begin early;
// that are in one call with a row for all ranks; or with one scale per row, if rows are not whole chunks or exceed a
// CTA.
// CHECK-LABEL: plan.program @not
//   CHECK-NOT: unquantized
plan.program @not max_tokens 16 mesh <dp = 2, tp = 1> {
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %p = plan.buffer "p" rows <"tokens"> : memref<?x256xf8E4M3FN>
  %r = plan.buffer "r" rows <"tokens"> : memref<?x2xf32>
  %l = plan.buffer "l" rows <"tokens"> : memref<?x1xf32>
  %e = plan.tensor input "e" rows <"ceildiv(tokens, 2)"> : memref<?x264xbf16>
  %f = plan.buffer "f" rows <"ceildiv(tokens, 2)"> : memref<?x264xf8E4M3FN>
  %g = plan.buffer "g" rows <"tokens"> : memref<?x264xf8E4M3FN>
  %t = plan.tensor input "t" rows <"ceildiv(tokens, 2)"> : memref<?x32784xbf16>
  %u = plan.buffer "u" rows <"ceildiv(tokens, 2)"> : memref<?x32784xf8E4M3FN>
  %v = plan.buffer "v" rows <"tokens"> : memref<?x32784xf8E4M3FN>
  %z = plan.buffer "z" rows <"ceildiv(tokens, 2)"> : memref<?x256xf8E4M3FN>
  %q = plan.buffer "q" rows <"ceildiv(tokens, 2)"> : memref<?x256xf8E4M3FN>
  %s = plan.buffer "s" rows <"ceildiv(tokens, 2)"> : memref<?x2xf32>
  %m = plan.buffer "m" rows <"ceildiv(tokens, 2)"> : memref<?x1xf32>
  plan.variant tokens 0 to 3 {
    plan.launch @quantize tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x256xbf16>)
        outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%p, %r : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.launch @copy tokens <"ceildiv(tokens, 2)"> ins(%q : memref<?x256xf8E4M3FN>) outs(%z : memref<?x256xf8E4M3FN>)
  }
  plan.variant tokens 4 to 7 {
    plan.launch @quantize tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x256xbf16>)
        outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.launch @nothing tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x256xbf16>) outs(%z : memref<?x256xf8E4M3FN>)
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%p, %r : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  }
  plan.variant tokens 8 to 11 {
    plan.launch @quantize tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x256xbf16>)
        outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
    plan.collective all_gather dp ins(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
        outs(%p, %r : memref<?x256xf8E4M3FN>, memref<?x2xf32>) destinations(%o : memref<4xi32>) ids(%i : memref<?x2xi32>) routed [0]
  }
  plan.variant tokens 12 to 16 {
    plan.launch @odd_rows tokens <"ceildiv(tokens, 2)"> ins(%e : memref<?x264xbf16>)
        outs(%f, %m : memref<?x264xf8E4M3FN>, memref<?x1xf32>)
    plan.collective all_gather dp ins(%f, %m : memref<?x264xf8E4M3FN>, memref<?x1xf32>)
        outs(%g, %l : memref<?x264xf8E4M3FN>, memref<?x1xf32>)
    plan.launch @long_rows tokens <"ceildiv(tokens, 2)"> ins(%t : memref<?x32784xbf16>)
        outs(%u, %m : memref<?x32784xf8E4M3FN>, memref<?x1xf32>)
    plan.collective all_gather dp ins(%u, %m : memref<?x32784xf8E4M3FN>, memref<?x1xf32>)
        outs(%v, %l : memref<?x32784xf8E4M3FN>, memref<?x1xf32>)
  }
}
tile.kernel @copy(%q: memref<?x256xf8E4M3FN>, %z: memref<?x256xf8E4M3FN>, %t: i64) {
  tile.return
}
tile.kernel @nothing(%x: memref<?x256xbf16>, %z: memref<?x256xf8E4M3FN>, %t: i64) {
  tile.return
}
tile.kernel @odd_rows(%x: memref<?x264xbf16>, %q: memref<?x264xf8E4M3FN>, %s: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t)
      ins(%x : memref<?x264xbf16>) outs(%q, %s : memref<?x264xf8E4M3FN>, memref<?x1xf32>)
  tile.return
}
tile.kernel @long_rows(%x: memref<?x32784xbf16>, %q: memref<?x32784xf8E4M3FN>, %s: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t)
      ins(%x : memref<?x32784xbf16>) outs(%q, %s : memref<?x32784xf8E4M3FN>, memref<?x1xf32>)
  tile.return
}
tile.kernel @quantize(%x: memref<?x256xbf16>, %q: memref<?x256xf8E4M3FN>, %s: memref<?x2xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t)
      ins(%x : memref<?x256xbf16>) outs(%q, %s : memref<?x256xf8E4M3FN>, memref<?x2xf32>)
  tile.return
}
