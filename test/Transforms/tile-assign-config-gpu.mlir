// RUN: moe-opt %s --tile-assign-config=target=sm_80 | FileCheck %s --check-prefixes=CHECK,SM80
// RUN: moe-opt %s --tile-assign-config=target=sm_90a | FileCheck %s

// A router's gemm is narrow: few columns make few CTAs.
// SM80-LABEL: tile.kernel @router
// SM80-SAME: block = 128 : i64
// SM80-SAME: grid = #plan.expr<"ceildiv(tokens, 64) * 4">
// SM80-SAME: shared = 41472 : i64
// SM80: #tile.sm80_gemm<block_m = 64, block_n = 32, block_k = 64, vector_width = 4>
tile.kernel @router(%x: memref<?x2048xbf16>, %w: memref<128x2048xbf16>, %y: memref<?x128xf32>,
    %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xbf16>, memref<128x2048xbf16>)
      outs(%y : memref<?x128xf32>)
  tile.return
}

// BLOCK_K of f32 is smaller, with equal bytes.
// CHECK-LABEL: tile.kernel @experts
// CHECK-SAME: grid = #plan.expr<"12">
// CHECK: #tile.sm80_gemm<block_m = 64, block_n = 64, block_k = 16, vector_width = 4>
tile.kernel @experts(%x: memref<?x64xf32>, %w: memref<6x256x64xf32>, %o: memref<7xi32>,
    %s: memref<?xi32>, %y: memref<?x128xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xf32>, memref<6x256x64xf32>)
      offsets(%o : memref<7xi32>) source(%s : memref<?xi32>) outs(%y : memref<?x128xf32>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// CHECK-LABEL: tile.kernel @top_k
// CHECK-SAME: block = 128 : i64
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens, 4)">
// CHECK-SAME: shared = 0 : i64
// CHECK: #tile.gpu_top_k<threads = 128, tokens_per_cta = 4>
tile.kernel @top_k(%l: memref<?x128xf32>, %i: memref<?x8xi32>, %w: memref<?x8xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x128xf32>)
      outs(%i, %w : memref<?x8xi32>, memref<?x8xf32>) <top_k = 8, softmax = all>
  tile.return
}

// Many CTAs, fewer for few tokens, and one for none.
// CHECK-LABEL: tile.kernel @rank
// CHECK-SAME: block = 1024 : i64
// CHECK-SAME: grid = #plan.expr<"max(min(ceildiv(tokens, 128), 128), 1)">
// CHECK: #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 128, experts_at_once = 1024>
tile.kernel @rank(%i: memref<?x8xi32>, %w: memref<?x8xf32>, %o: memref<1025xi32>,
    %p: memref<?x8xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x8xi32>, memref<?x8xf32>)
      outs(%o, %p, %s, %r : memref<1025xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 1024 : i64}
  tile.return
}

// Counters for all experts do not fit: 1024 experts at a time.
// CHECK-LABEL: tile.kernel @rank_rounds
// CHECK: #tile.gpu_sort_by_expert<threads = 1024, tokens_per_cta = 128, experts_at_once = 1024>
tile.kernel @rank_rounds(%i: memref<?x8xi32>, %w: memref<?x8xf32>, %o: memref<20001xi32>,
    %p: memref<?x8xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x8xi32>, memref<?x8xf32>)
      outs(%o, %p, %s, %r : memref<20001xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 20000 : i64}
  tile.return
}

// A row that does not fit into shared memory is not kept there.
// CHECK-LABEL: tile.kernel @top_k_long
// CHECK: #tile.gpu_top_k<threads = 128, tokens_per_cta = 4>
tile.kernel @top_k_long(%l: memref<?x100000xf32>, %i: memref<?x8xi32>, %w: memref<?x8xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x100000xf32>)
      outs(%i, %w : memref<?x8xi32>, memref<?x8xf32>) <top_k = 8, softmax = all>
  tile.return
}

// No vector of a thread may cross the end of a row: 37 columns are processed one by one.
// CHECK-LABEL: tile.kernel @row_map
// CHECK-SAME: block = 64 : i64
// CHECK-SAME: grid = #plan.expr<"tokens">
// CHECK: #tile.gpu_row_map<columns_per_cta = 64, vector_width = 1>
tile.kernel @row_map(%x: memref<?x37xbf16>, %y: memref<?x37xbf16>, %t: i64) {
  tile.row_map tokens(%t) ins(%x : memref<?x37xbf16>) outs(%y : memref<?x37xbf16>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
    }
  tile.return
}

// CHECK-LABEL: tile.kernel @gather_reduce
// CHECK-SAME: grid = #plan.expr<"min(tokens, 4096) * 2">
// CHECK: #tile.gpu_gather_reduce<columns_per_cta = 1024, vector_width = 8, token_stride = 4096>
tile.kernel @gather_reduce(%x: memref<?x2048xf16>, %p: memref<?x2xi32>, %y: memref<?x2048xf16>,
    %t: i64) {
  tile.gather_reduce tokens(%t) ins(%x, %p : memref<?x2048xf16>, memref<?x2xi32>)
      outs(%y : memref<?x2048xf16>)
  tile.return
}

// One warp for each of the most positions.
// CHECK-LABEL: tile.kernel @gather_rows
// CHECK-SAME: block = 256 : i64
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens * 8, 8)">
// CHECK-SAME: shared = 0 : i64
// CHECK: #tile.gpu_gather_rows<warps = 8>
tile.kernel @gather_rows(%x: memref<?x2048xbf16>, %o: memref<129xi32>, %s: memref<?xi32>, %y: memref<?x2048xbf16>, %t: i64) {
  tile.gather_rows tokens(%t) ins(%x : memref<?x2048xbf16>) offsets(%o : memref<129xi32>)
      source(%s : memref<?xi32>) outs(%y : memref<?x2048xbf16>) {top_k = 8 : i64}
  tile.return
}

// CHECK-LABEL: tile.kernel @gather_rows_by_hand
// CHECK-SAME: block = 96 : i64
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens * 8, 3)">
tile.kernel @gather_rows_by_hand(%x: memref<?x2048xbf16>, %o: memref<129xi32>, %s: memref<?xi32>, %y: memref<?x2048xbf16>, %t: i64) {
  tile.gather_rows tokens(%t) ins(%x : memref<?x2048xbf16>) offsets(%o : memref<129xi32>)
      source(%s : memref<?xi32>) outs(%y : memref<?x2048xbf16>) {top_k = 8 : i64, config = #tile.gpu_gather_rows<warps = 3>}
  tile.return
}
