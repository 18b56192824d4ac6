// Gemms split by columns into several launches, each followed by a chunk of the combine.
// RUN: moe-opt %s --tile-rewrite-launches="only=split-columns set=split-columns.chunks=2 target=sm_90a" \
// RUN:   | FileCheck %s
// RUN: moe-opt %s --tile-rewrite-launches="only=split-columns set=split-columns.chunks=4 target=sm_90a" \
// RUN:   | FileCheck %s --check-prefix=FOUR
// RUN: moe-opt %s --tile-rewrite-launches="only=split-columns set=split-columns.chunks=3 target=sm_90a" \
// RUN:   --remarks-filter=tile-rewrite-launches 2>&1 | FileCheck %s --check-prefix=THREE
// A second run does not split again.
// RUN: moe-opt %s --tile-rewrite-launches="only=split-columns set=split-columns.chunks=2 target=sm_90a" -o %t.once
// RUN: moe-opt %t.once --tile-rewrite-launches="only=split-columns set=split-columns.chunks=2 target=sm_90a" | diff - %t.once
// All chunks share one kernel.
// RUN: moe-opt %t.once --tile-make-exchanges=target=sm_90a | FileCheck %s --check-prefix=KERNEL

// The first chunk follows its launch on the stream; the last one replaces the original.
//       CHECK: plan.variant tokens 0 to 16 {
//  CHECK-NEXT: plan.launch @rank ins(
//  CHECK-NEXT: plan.launch @out columns [0, 128] ins(%h, %w, %offsets, %weight, %source :
//  CHECK-NEXT: plan.record event 1 stream 0
//  CHECK-NEXT: plan.collective reduce_scatter dp columns [0, 128] ins(%partial : memref<?x256xbf16>) outs(%y : memref<?x256xbf16>)
//  CHECK-SAME: sums_of(%rows, %position : memref<?x256xbf16>, memref<?x2xi32>)
//  CHECK-NEXT: plan.wait event 1 stream 2
//  CHECK-NEXT: plan.launch @out columns [128, 128] stream 2 ins(%h, %w, %offsets, %weight, %source :
//  CHECK-NEXT: plan.record event 2 stream 2
//  CHECK-NEXT: plan.wait event 2 stream 0
//  CHECK-NEXT: plan.launch @sum ins(%rows, %position :
//  CHECK-NEXT: plan.record event 0 stream 0
//  CHECK-NEXT: plan.wait event 0 stream 1
//  CHECK-NEXT: plan.collective reduce_scatter dp columns [128, 128] ins(%partial :
//  CHECK-SAME: sums_of(%rows, %position :
//       CHECK: tile.kernel @out({{.*}}, %first_column: i64, %tokens: i64)
//       CHECK: tile.gemm {{.*}} first_column(%first_column) rows(
//       CHECK: dynamic_scheduler>, num_columns = 128 : i64}

// Each launch begins when the chunk before it can get its multiprocessors.
//        FOUR: plan.launch @out columns [0, 64] ins(
//   FOUR-NEXT: plan.record event 1 stream 0
//   FOUR-NEXT: plan.collective reduce_scatter dp columns [0, 64]
//   FOUR-NEXT: plan.wait event 1 stream 2
//   FOUR-NEXT: plan.launch @out columns [64, 64] stream 2
//   FOUR-NEXT: plan.record event 2 stream 2
//   FOUR-NEXT: plan.wait event 2 stream 0
//   FOUR-NEXT: plan.record event 3 stream 0
//   FOUR-NEXT: plan.collective reduce_scatter dp columns [64, 64]
//   FOUR-NEXT: plan.wait event 3 stream 2
//   FOUR-NEXT: plan.launch @out columns [128, 64] stream 2

//       THREE: split-columns
//  THREE-SAME: the columns cannot be split into 3 chunks of whole tiles
//   THREE-NOT: columns [

//      KERNEL: plan.collective reduce_scatter dp columns [0, 128] {{.*}} {plan.exchange_kernel = @reduce_scatter}
//      KERNEL: plan.collective reduce_scatter dp columns [128, 128] {{.*}} {plan.exchange_kernel = @reduce_scatter}
//      KERNEL: tile.kernel @reduce_scatter(
// KERNEL-SAME: %first_column: i64, %tokens: i64) {{.*}} grid = #plan.expr<"min(ceildiv(32 * tokens, 512), 64)">
//      KERNEL: tile.exchange reduce_scatter {{.*}} first_column(%first_column) {config = #tile.gpu_exchange<ctas = 64, threads = 512, chunks = 4>, num_columns = 128 : i64}
plan.program @layer max_tokens 16 mesh <dp = 2> {
  %i = plan.tensor input "i" rows <"tokens"> : memref<?x2xi32>
  %g = plan.tensor input "g" rows <"tokens"> : memref<?x2xf32>
  %h = plan.tensor input "h" rows <"tokens * 2"> : memref<?x64xbf16>
  %w = plan.tensor weight "w" : memref<8x256x64xbf16>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %offsets = plan.buffer "offsets" slot 0 : memref<9xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x2xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.buffer "weight" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  %counter = plan.buffer "counter" slot 4 : memref<1xi32>
  %rows = plan.buffer "rows" slot 5 rows <"tokens * 2"> : memref<?x256xbf16>
  %partial = plan.buffer "partial" slot 6 rows <"tokens"> : memref<?x256xbf16>
  plan.variant tokens 0 to 16 {
    plan.launch @rank ins(%i, %g : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %position, %source, %weight, %counter
             : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>, memref<1xi32>)
    plan.launch @out ins(%h, %w, %offsets, %weight, %source
        : memref<?x64xbf16>, memref<8x256x64xbf16>, memref<9xi32>, memref<?x1xf32>, memref<?xi32>)
        outs(%rows, %counter : memref<?x256xbf16>, memref<1xi32>)
    plan.launch @sum ins(%rows, %position : memref<?x256xbf16>, memref<?x2xi32>) outs(%partial : memref<?x256xbf16>)
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.collective reduce_scatter dp ins(%partial : memref<?x256xbf16>) outs(%y : memref<?x256xbf16>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %g: memref<?x2xf32>, %o: memref<9xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %c: memref<1xi32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %g : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) counter(%c : memref<1xi32>)
      {num_experts = 8 : i64}
  tile.return
}
tile.kernel @out(%x: memref<?x64xbf16>, %w: memref<8x256x64xbf16>, %o: memref<9xi32>, %r: memref<?x1xf32>,
    %s: memref<?xi32>, %y: memref<?x256xbf16>, %c: memref<1xi32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x256x64xbf16>) offsets(%o : memref<9xi32>)
      schedule(tile_counter = %c : memref<1xi32>) rows(%r : memref<?x1xf32>) outs(%y : memref<?x256xbf16>) epilogue {
      ^bb0(%v: f32, %m: f32):
        %z = arith.mulf %v, %m : f32
        tile.yield %z : f32
      } {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 8, map_rows, dynamic_scheduler>}
  tile.return
}
tile.kernel @sum(%r: memref<?x256xbf16>, %p: memref<?x2xi32>, %y: memref<?x256xbf16>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%r, %p : memref<?x256xbf16>, memref<?x2xi32>) outs(%y : memref<?x256xbf16>)
  tile.return
}
