// A kernel makes the sums that it moves if a launch made them for it alone and its inputs are kept until then: these
// buffers live longer. The launch stays, for runtimes that do not use the kernel.
// RUN: moe-opt %s --pass-pipeline="builtin.module(plan.program(plan-assign-slots),tile-make-exchanges{target=sm_90a})" \
// RUN:   --split-input-file | FileCheck %s

// %p no longer shares a slot with %n, which the steps in between write.
// CHECK-LABEL: plan.program @layer
//       CHECK: plan.buffer "p" slot [[P:[0-9]+]]
//   CHECK-NOT: plan.buffer "n" slot [[P]]
//       CHECK: plan.launch @sum ins(%r, %p, %s, %v :
//       CHECK: plan.collective reduce_scatter dp ins(%a : memref<?x256xbf16>) outs(%y : memref<?x256xbf16>)
//  CHECK-SAME: destinations(%o : memref<4xi32>) ids(%i, %b : memref<?x2xi32>, memref<?x2xi32>) routed [0]
//  CHECK-SAME: sums_of(%r, %p : memref<?x256xbf16>, memref<?x2xi32>) addend(%s : memref<?x256xbf16>) num_valid_tokens(%v : memref<1xi32>)
//  CHECK-SAME: {plan.exchange_kernel = @reduce_scatter}
// CHECK-LABEL: tile.kernel @reduce_scatter(
//  CHECK-SAME: %[[A:[a-z0-9]+]]: memref<?x256xbf16>, %[[Y:[a-z0-9]+]]: memref<?x256xbf16>,
//  CHECK-SAME: %{{[a-z0-9]+}}: memref<?x2xi32>, %{{[a-z0-9]+}}: memref<?x2xi32>, %{{[a-z0-9]+}}: memref<4xi32>,
//  CHECK-SAME: %[[R:[a-z0-9]+]]: memref<?x256xbf16>, %[[P:[a-z0-9]+]]: memref<?x2xi32>, %[[S:[a-z0-9]+]]: memref<?x256xbf16>,
//  CHECK-SAME: %[[V:[a-z0-9]+]]: memref<1xi32>, %{{[a-z0-9]+}}: memref<?xi64>, %{{[a-z0-9]+}}: memref<?xi64>, %tokens: i64
// A warp has 2 times 32 chunks of 16 bytes, and a row has 32.
//  CHECK-SAME: grid = #plan.expr<"min(ceildiv(32 * tokens, 512), 64)">
//       CHECK: tile.exchange reduce_scatter tokens(%tokens) ins(%[[A]] : memref<?x256xbf16>) outs(%[[Y]] : memref<?x256xbf16>)
//  CHECK-SAME: sums_of(%[[R]], %[[P]] : memref<?x256xbf16>, memref<?x2xi32>) addend(%[[S]] : memref<?x256xbf16>) num_valid_tokens(%[[V]] : memref<1xi32>)
plan.program @layer max_tokens 16 mesh <dp = 2, tp = 1> {
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %b = plan.tensor input "b" rows <"tokens"> : memref<?x2xi32>
  %v = plan.tensor input "v" : memref<1xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %r = plan.buffer "r" rows <"tokens * 2"> : memref<?x256xbf16>
  %p = plan.buffer "p" rows <"tokens"> : memref<?x2xi32>
  %s = plan.buffer "s" rows <"tokens"> : memref<?x256xbf16>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x256xbf16>
  %n = plan.buffer "n" rows <"tokens"> : memref<?x2xi32>
  plan.variant tokens 0 to 16 {
    plan.launch @make ins(%b : memref<?x2xi32>) outs(%r, %p, %s : memref<?x256xbf16>, memref<?x2xi32>, memref<?x256xbf16>)
    plan.launch @sum ins(%r, %p, %s, %v : memref<?x256xbf16>, memref<?x2xi32>, memref<?x256xbf16>, memref<1xi32>)
        outs(%a : memref<?x256xbf16>)
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.launch @other stream 1 ins(%b : memref<?x2xi32>) outs(%n : memref<?x2xi32>)
    plan.record event 1 stream 1
    plan.collective reduce_scatter dp ins(%a : memref<?x256xbf16>) outs(%y : memref<?x256xbf16>)
        destinations(%o : memref<4xi32>) ids(%i, %b : memref<?x2xi32>, memref<?x2xi32>) routed [0]
    plan.wait event 1 stream 0
  }
}
tile.kernel @make(%b: memref<?x2xi32>, %r: memref<?x256xbf16>, %p: memref<?x2xi32>, %s: memref<?x256xbf16>, %t: i64) {
  tile.return
}
tile.kernel @other(%b: memref<?x2xi32>, %n: memref<?x2xi32>, %t: i64) {
  tile.return
}
tile.kernel @sum(%r: memref<?x256xbf16>, %p: memref<?x2xi32>, %s: memref<?x256xbf16>, %v: memref<1xi32>,
    %a: memref<?x256xbf16>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%r, %p : memref<?x256xbf16>, memref<?x2xi32>) addend(%s : memref<?x256xbf16>)
      num_valid_tokens(%v : memref<1xi32>) outs(%a : memref<?x256xbf16>)
  tile.return
}

// -----

// Not for sums that other steps read too, after which a launch may begin early, of rows that are overwritten before
// they are moved, and of more slots than a warp has lanes.
// CHECK-LABEL: plan.program @not
//   CHECK-NOT: sums_of
plan.program @not max_tokens 16 mesh <dp = 2, tp = 1> {
  %r = plan.tensor input "r" rows <"tokens * 2"> : memref<?x8xbf16>
  %w = plan.tensor input "w" rows <"tokens"> : memref<?x40xi32>
  %p = plan.tensor input "p" rows <"tokens"> : memref<?x2xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x8xbf16>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xbf16>
  %q = plan.buffer "q" rows <"tokens"> : memref<?x2xi32>
  plan.variant tokens 0 to 3 {
    plan.launch @sum ins(%r, %p : memref<?x8xbf16>, memref<?x2xi32>) outs(%a : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
    plan.launch @copy ins(%a : memref<?x8xbf16>) outs(%z : memref<?x8xbf16>)
  }
  plan.variant tokens 4 to 7 {
    plan.launch @sum ins(%r, %p : memref<?x8xbf16>, memref<?x2xi32>) outs(%a : memref<?x8xbf16>)
    plan.launch @copy ins(%r : memref<?x8xbf16>) outs(%z : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
  }
  plan.variant tokens 8 to 11 {
    plan.launch @ids ins(%p : memref<?x2xi32>) outs(%q : memref<?x2xi32>)
    plan.launch @sum ins(%r, %q : memref<?x8xbf16>, memref<?x2xi32>) outs(%a : memref<?x8xbf16>)
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.launch @ids stream 1 ins(%p : memref<?x2xi32>) outs(%q : memref<?x2xi32>)
    plan.launch @copy stream 1 ins(%r : memref<?x8xbf16>) outs(%z : memref<?x8xbf16>)
    plan.record event 1 stream 1
    plan.wait event 1 stream 0
    plan.collective reduce_scatter dp ins(%a : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
  }
  plan.variant tokens 12 to 16 {
    plan.launch @copy ins(%r : memref<?x8xbf16>) outs(%z : memref<?x8xbf16>)
    plan.launch @wide ins(%r, %w : memref<?x8xbf16>, memref<?x40xi32>) outs(%a : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
  }
}
tile.kernel @ids(%p: memref<?x2xi32>, %q: memref<?x2xi32>, %t: i64) {
  tile.return
}
tile.kernel @copy(%r: memref<?x8xbf16>, %z: memref<?x8xbf16>, %t: i64) {
  tile.return
}
tile.kernel @sum(%r: memref<?x8xbf16>, %p: memref<?x2xi32>, %a: memref<?x8xbf16>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%r, %p : memref<?x8xbf16>, memref<?x2xi32>) outs(%a : memref<?x8xbf16>)
  tile.return
}
tile.kernel @wide(%r: memref<?x8xbf16>, %p: memref<?x40xi32>, %a: memref<?x8xbf16>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%r, %p : memref<?x8xbf16>, memref<?x40xi32>) outs(%a : memref<?x8xbf16>)
  tile.return
}

// -----

// With few rows a warp has fewer chunks, so that a row is spread over more multiprocessors, as long as 64 CTAs of 16
// warps have the rows of all variants in one round, 14 each.
// CHECK-LABEL: plan.program @rows
//       CHECK: plan.variant tokens 0 to 8
//       CHECK: plan.exchange_kernel = @reduce_scatter}
//       CHECK: plan.variant tokens 9 to 146
//       CHECK: plan.exchange_kernel = @reduce_scatter}
//       CHECK: plan.variant tokens 147 to 148
//       CHECK: plan.exchange_kernel = @reduce_scatter_0}
//       CHECK: tile.kernel @reduce_scatter(
//  CHECK-SAME: grid = #plan.expr<"min(ceildiv(448 * tokens, 512), 64)">
//       CHECK: config = #tile.gpu_exchange<ctas = 64, threads = 512, chunks = 2>
//       CHECK: tile.kernel @reduce_scatter_0(
//  CHECK-SAME: grid = #plan.expr<"min(ceildiv(224 * tokens, 512), 64)">
//       CHECK: config = #tile.gpu_exchange<ctas = 64, threads = 512, chunks = 4>
plan.program @rows max_tokens 148 mesh <dp = 2, tp = 1> {
  %p = plan.tensor input "p" rows <"tokens"> : memref<?x8xi32>
  %r = plan.tensor input "r" rows <"tokens * 8"> : memref<?x7168xbf16>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x7168xbf16>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x7168xbf16>
  plan.variant tokens 0 to 8 {
    plan.launch @sum ins(%r, %p : memref<?x7168xbf16>, memref<?x8xi32>) outs(%a : memref<?x7168xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x7168xbf16>) outs(%y : memref<?x7168xbf16>)
  }
  plan.variant tokens 9 to 146 {
    plan.launch @sum ins(%r, %p : memref<?x7168xbf16>, memref<?x8xi32>) outs(%a : memref<?x7168xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x7168xbf16>) outs(%y : memref<?x7168xbf16>)
  }
  plan.variant tokens 147 to 148 {
    plan.launch @sum ins(%r, %p : memref<?x7168xbf16>, memref<?x8xi32>) outs(%a : memref<?x7168xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x7168xbf16>) outs(%y : memref<?x7168xbf16>)
  }
}
tile.kernel @sum(%r: memref<?x7168xbf16>, %p: memref<?x8xi32>, %a: memref<?x7168xbf16>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%r, %p : memref<?x7168xbf16>, memref<?x8xi32>) outs(%a : memref<?x7168xbf16>)
  tile.return
}
