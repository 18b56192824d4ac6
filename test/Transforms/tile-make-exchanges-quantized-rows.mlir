// A kernel also quantizes the rows that it gathers by one scale each, if a launch did that for it alone. A CTA has
// whole rows; the chunks per thread determine the warps of a row, which are more if there are few rows. On a target
// without instructions to convert to e4m3, such a launch stays.
// RUN: moe-opt %s --pass-pipeline="builtin.module(plan.program(plan-assign-slots),tile-make-exchanges{target=sm_90a})" | FileCheck %s
// RUN: moe-opt %s --pass-pipeline="builtin.module(plan.program(plan-assign-slots),tile-make-exchanges{target=sm_80})" \
// RUN:   | FileCheck %s --check-prefix=SM80
// RUN: not moe-opt %s -o /dev/null \
// RUN:   --pass-pipeline="builtin.module(plan.program(plan-assign-slots),tile-make-exchanges{target=sm_90a configs=all_gather:threads=96})" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=THREADS
// RUN: not moe-opt %s -o /dev/null \
// RUN:   --pass-pipeline="builtin.module(plan.program(plan-assign-slots),tile-make-exchanges{target=sm_90a configs=all_gather:threads=1024,all_gather:chunks=8})" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=BARRIERS

// THREADS: cannot run as #tile.gpu_exchange<ctas = 64, threads = 96, chunks = 1>: threads = 96, but the threads that quantize one row are 512; give a multiple of that, or more chunks
// BARRIERS: cannot run as #tile.gpu_exchange<ctas = 64, threads = 1024, chunks = 8>: threads = 1024 quantize 16 rows at once; only 15 have barriers, so give fewer threads

// CHECK-LABEL: plan.program @floats
// CHECK-COUNT-3: unquantized(%x : memref<?x7168xbf16>) quantized [0, 1] {plan.exchange_kernel = @all_gather{{(_[0-9])?}}}
// CHECK-LABEL: plan.program @integers
// CHECK-COUNT-3: unquantized(%x : memref<?x7168xbf16>) quantized [0, 1] {plan.exchange_kernel = @all_gather{{(_[0-9])?}}}
// One chunk per thread, two, then four. Rows have 16, 8 and 4 warps.
// CHECK: tile.kernel @all_gather(
// CHECK: by <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> heaps
// CHECK-SAME: chunks = 1>
// CHECK: tile.kernel @all_gather_0(
// CHECK: by <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> heaps
// CHECK-SAME: chunks = 2>
// CHECK: tile.kernel @all_gather_1(
// CHECK: by <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> heaps
// CHECK-SAME: chunks = 4>
// CHECK: by <storage = i8, scale = f32, granularity = token, dynamic = true> heaps
// CHECK-SAME: chunks = 1>
// CHECK: by <storage = i8, scale = f32, granularity = token, dynamic = true> heaps
// CHECK-SAME: chunks = 2>
// CHECK: by <storage = i8, scale = f32, granularity = token, dynamic = true> heaps
// CHECK-SAME: chunks = 4>

// SM80-LABEL: plan.program @floats
//   SM80-NOT: unquantized
// SM80-LABEL: plan.program @integers
// SM80-COUNT-3: unquantized(
plan.program @floats max_tokens 4096 mesh <dp = 2, tp = 1> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x7168xbf16>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x7168xbf16>
  %q = plan.buffer "q" rows <"ceildiv(tokens, 2)"> : memref<?x7168xf8E4M3FN>
  %s = plan.buffer "s" rows <"ceildiv(tokens, 2)"> : memref<?x1xf32>
  %p = plan.buffer "p" rows <"tokens"> : memref<?x7168xf8E4M3FN>
  %r = plan.buffer "r" rows <"tokens"> : memref<?x1xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x7168xbf16>
  plan.variant tokens 0 to 128 {
    plan.launch @quantize_floats tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x7168xbf16>)
        outs(%q, %s : memref<?x7168xf8E4M3FN>, memref<?x1xf32>)
    plan.collective all_gather dp ins(%q, %s : memref<?x7168xf8E4M3FN>, memref<?x1xf32>)
        outs(%p, %r : memref<?x7168xf8E4M3FN>, memref<?x1xf32>)
    plan.launch @experts_floats ins(%p, %r : memref<?x7168xf8E4M3FN>, memref<?x1xf32>) outs(%a : memref<?x7168xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x7168xbf16>) outs(%y : memref<?x7168xbf16>)
  }
  plan.variant tokens 129 to 256 {
    plan.launch @quantize_floats tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x7168xbf16>)
        outs(%q, %s : memref<?x7168xf8E4M3FN>, memref<?x1xf32>)
    plan.collective all_gather dp ins(%q, %s : memref<?x7168xf8E4M3FN>, memref<?x1xf32>)
        outs(%p, %r : memref<?x7168xf8E4M3FN>, memref<?x1xf32>)
    plan.launch @experts_floats ins(%p, %r : memref<?x7168xf8E4M3FN>, memref<?x1xf32>) outs(%a : memref<?x7168xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x7168xbf16>) outs(%y : memref<?x7168xbf16>)
  }
  plan.variant tokens 257 to 4096 {
    plan.launch @quantize_floats tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x7168xbf16>)
        outs(%q, %s : memref<?x7168xf8E4M3FN>, memref<?x1xf32>)
    plan.collective all_gather dp ins(%q, %s : memref<?x7168xf8E4M3FN>, memref<?x1xf32>)
        outs(%p, %r : memref<?x7168xf8E4M3FN>, memref<?x1xf32>)
    plan.launch @experts_floats ins(%p, %r : memref<?x7168xf8E4M3FN>, memref<?x1xf32>) outs(%a : memref<?x7168xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x7168xbf16>) outs(%y : memref<?x7168xbf16>)
  }
}
tile.kernel @quantize_floats(%x: memref<?x7168xbf16>, %q: memref<?x7168xf8E4M3FN>, %s: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true> tokens(%t)
      ins(%x : memref<?x7168xbf16>) outs(%q, %s : memref<?x7168xf8E4M3FN>, memref<?x1xf32>)
  tile.return
}
tile.kernel @experts_floats(%p: memref<?x7168xf8E4M3FN>, %r: memref<?x1xf32>, %a: memref<?x7168xbf16>, %t: i64) {
  tile.return
}
plan.program @integers max_tokens 4096 mesh <dp = 2, tp = 1> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x7168xbf16>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x7168xbf16>
  %q = plan.buffer "q" rows <"ceildiv(tokens, 2)"> : memref<?x7168xi8>
  %s = plan.buffer "s" rows <"ceildiv(tokens, 2)"> : memref<?x1xf32>
  %p = plan.buffer "p" rows <"tokens"> : memref<?x7168xi8>
  %r = plan.buffer "r" rows <"tokens"> : memref<?x1xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x7168xbf16>
  plan.variant tokens 0 to 128 {
    plan.launch @quantize_integers tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x7168xbf16>)
        outs(%q, %s : memref<?x7168xi8>, memref<?x1xf32>)
    plan.collective all_gather dp ins(%q, %s : memref<?x7168xi8>, memref<?x1xf32>)
        outs(%p, %r : memref<?x7168xi8>, memref<?x1xf32>)
    plan.launch @experts_integers ins(%p, %r : memref<?x7168xi8>, memref<?x1xf32>) outs(%a : memref<?x7168xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x7168xbf16>) outs(%y : memref<?x7168xbf16>)
  }
  plan.variant tokens 129 to 256 {
    plan.launch @quantize_integers tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x7168xbf16>)
        outs(%q, %s : memref<?x7168xi8>, memref<?x1xf32>)
    plan.collective all_gather dp ins(%q, %s : memref<?x7168xi8>, memref<?x1xf32>)
        outs(%p, %r : memref<?x7168xi8>, memref<?x1xf32>)
    plan.launch @experts_integers ins(%p, %r : memref<?x7168xi8>, memref<?x1xf32>) outs(%a : memref<?x7168xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x7168xbf16>) outs(%y : memref<?x7168xbf16>)
  }
  plan.variant tokens 257 to 4096 {
    plan.launch @quantize_integers tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x7168xbf16>)
        outs(%q, %s : memref<?x7168xi8>, memref<?x1xf32>)
    plan.collective all_gather dp ins(%q, %s : memref<?x7168xi8>, memref<?x1xf32>)
        outs(%p, %r : memref<?x7168xi8>, memref<?x1xf32>)
    plan.launch @experts_integers ins(%p, %r : memref<?x7168xi8>, memref<?x1xf32>) outs(%a : memref<?x7168xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x7168xbf16>) outs(%y : memref<?x7168xbf16>)
  }
}
tile.kernel @quantize_integers(%x: memref<?x7168xbf16>, %q: memref<?x7168xi8>, %s: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = i8, scale = f32, granularity = token, dynamic = true> tokens(%t)
      ins(%x : memref<?x7168xbf16>) outs(%q, %s : memref<?x7168xi8>, memref<?x1xf32>)
  tile.return
}
tile.kernel @experts_integers(%p: memref<?x7168xi8>, %r: memref<?x1xf32>, %a: memref<?x7168xbf16>, %t: i64) {
  tile.return
}
