// RUN: moe-opt %s --tile-assign-config="lanes=16" --remarks-filter=tile-assign-config --remark-format=emitRemark --remark-policy=all 2> %t | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t
// RUN: moe-opt %s --tile-assign-config="lanes=8" | FileCheck %s --check-prefix=AVX2
// RUN: moe-opt %s --tile-assign-config="lanes=16 products=bf16" | FileCheck %s --check-prefix=BF16
// RUN: moe-opt %s --tile-assign-config="lanes=16 products=amx" --remarks-filter=tile-assign-config --remark-format=emitRemark --remark-policy=all 2>&1 | FileCheck %s --check-prefix=AMX
// RUN: moe-opt %s --tile-assign-config | FileCheck %s --check-prefix=HOST

// Without the option, the host's vector width is used.
// HOST-COUNT-10: config = #tile.cpu_

// Grouped: the largest BLOCK_N with at most 256 KiB of weights; with gate and up a column is a pair of weight rows.
// CHECK-LABEL: tile.kernel @experts_hidden
// CHECK-SAME: grid = #plan.expr<"3072">
// CHECK: config = #tile.cpu_gemm<register_rows = 4, register_columns = 2, block_k = 32, columns_per_cta = 32, lanes = 16>
// AVX2-LABEL: tile.kernel @experts_hidden
// AVX2: config = #tile.cpu_gemm<register_rows = 2, register_columns = 2, block_k = 16, columns_per_cta = 32, lanes = 8>
// BF16-LABEL: tile.kernel @experts_hidden
// BF16: config = #tile.cpu_gemm<register_rows = 4, register_columns = 2, block_k = 32, columns_per_cta = 32, lanes = 16, instruction_k = 2>
// AMX: the schedule's choice for 16 lanes with amx
// AMX-LABEL: tile.kernel @experts_hidden
// AMX-SAME: grid = #plan.expr<"768">
// AMX: config = #tile.cpu_gemm<register_rows = 32, register_columns = 16, block_k = 32, columns_per_cta = 128, lanes = 16, instruction_k = 32>
// REMARK: remark: [Passed] cpu.gemm | Category:tile-assign-config | Function=experts_hidden | Reason="the schedule's choice for 16 lanes", config="#tile.cpu_gemm<register_rows = 4, register_columns = 2, block_k = 32, columns_per_cta = 32, lanes = 16>", grid=3072
tile.kernel @experts_hidden(%x: memref<?x2048xbf16>, %w: memref<128x1536x2048xbf16>, %off: memref<129xi32>, %src: memref<?xi32>, %y: memref<?x768xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xbf16>, memref<128x1536x2048xbf16>) offsets(%off : memref<129xi32>) source(%src : memref<?xi32>) outs(%y : memref<?x768xbf16>) epilogue {
  ^bb0(%g: f32, %u: f32):
    %a = arith.mulf %g, %u : f32
    tile.yield %a : f32
  } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// CHECK-LABEL: tile.kernel @experts_out
// CHECK-SAME: grid = #plan.expr<"4096">
// CHECK: config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 32, columns_per_cta = 64, lanes = 16>
// AVX2-LABEL: tile.kernel @experts_out
// AVX2: config = #tile.cpu_gemm<register_rows = 2, register_columns = 4, block_k = 16, columns_per_cta = 64, lanes = 8>
// AMX-LABEL: tile.kernel @experts_out
// AMX: config = #tile.cpu_gemm<register_rows = 32, register_columns = 32, block_k = 32, columns_per_cta = 256, lanes = 16, instruction_k = 32>
tile.kernel @experts_out(%x: memref<?x768xbf16>, %w: memref<128x2048x768xbf16>, %off: memref<129xi32>, %y: memref<?x2048xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x768xbf16>, memref<128x2048x768xbf16>) offsets(%off : memref<129xi32>) outs(%y : memref<?x2048xbf16>)
  tile.return
}

// Dense: N tiles for many cores, rows in blocks. f32 needs no widening, so more
// rows fit into 16 registers.
// AMX-LABEL: tile.kernel @router_logits
// AMX-NOT: instruction_k
// CHECK-LABEL: tile.kernel @router_logits
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens, 64) * 8">
// CHECK: config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, block_k = 16, columns_per_cta = 16, lanes = 16, rows_per_cta = 64>
// AVX2-LABEL: tile.kernel @router_logits
// AVX2: config = #tile.cpu_gemm<register_rows = 3, register_columns = 4, block_k = 8, columns_per_cta = 16, lanes = 8, rows_per_cta = 64>
tile.kernel @router_logits(%x: memref<?x2048xf32>, %w: memref<128x2048xf32>, %y: memref<?x128xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xf32>, memref<128x2048xf32>) outs(%y : memref<?x128xf32>)
  tile.return
}

// Fewer columns than a tile has.
// CHECK-LABEL: tile.kernel @shared_gate
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens, 64)">
// CHECK: columns_per_cta = 4, lanes = 16, rows_per_cta = 64>
// AMX-LABEL: tile.kernel @shared_gate
// AMX: columns_per_cta = 4, lanes = 16, rows_per_cta = 64>
tile.kernel @shared_gate(%x: memref<?x64xbf16>, %w: memref<1x64xbf16>, %y: memref<?x1xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<1x64xbf16>) outs(%y : memref<?x1xf32>)
  tile.return
}

// CHECK-LABEL: tile.kernel @route_0
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens, 8)">
// CHECK: config = #tile.cpu_top_k<lanes = 16, rows_per_cta = 8>
// REMARK: cpu.top_k | Category:tile-assign-config | Function=route_0
tile.kernel @route_0(%l: memref<?x4xf32>, %ids: memref<?x2xi32>, %wt: memref<?x2xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x4xf32>) outs(%ids, %wt : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2>
  tile.return
}

// CHECK-LABEL: tile.kernel @route_1
// CHECK-SAME: grid = #plan.expr<"1">
// CHECK: config = #tile.cpu_sort_by_expert
tile.kernel @route_1(%ids: memref<?x2xi32>, %wt: memref<?x2xf32>, %off: memref<5xi32>, %pos: memref<?x2xi32>, %src: memref<?xi32>, %rw: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%ids, %wt : memref<?x2xi32>, memref<?x2xf32>) outs(%off, %pos, %src, %rw : memref<5xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 4 : i64}
  tile.return
}

// CHECK-LABEL: tile.kernel @weighted_input
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens, 4)">
// CHECK: config = #tile.cpu_row_map<lanes = 16, rows_per_cta = 4>
tile.kernel @weighted_input(%x: memref<?x4xf32>, %w: memref<?x1xf32>, %y: memref<?x4xf32>, %t: i64) {
  tile.row_map tokens(%t) ins(%x : memref<?x4xf32>) rows(%w : memref<?x1xf32>) outs(%y : memref<?x4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.mulf %a, %b : f32
    tile.yield %c : f32
  }
  tile.return
}

// An existing config is kept and determines the grid.
// CHECK-LABEL: tile.kernel @output
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens, 2)">
// CHECK: config = #tile.cpu_gather_reduce<register_columns = 8, lanes = 8, rows_per_cta = 2>
// REMARK: cpu.gather_reduce | Category:tile-assign-config | Function=output | Reason="given in the IR and legal"
tile.kernel @output(%r: memref<?x8xf32>, %pos: memref<?x2xi32>, %y: memref<?x8xf32>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%r, %pos : memref<?x8xf32>, memref<?x2xi32>) outs(%y : memref<?x8xf32>) {config = #tile.cpu_gather_reduce<register_columns = 8, lanes = 8, rows_per_cta = 2>}
  tile.return
}

// Block fp8: a block at a time is f32 in a near cache, whatever the depth; k divides a block.
// CHECK-LABEL: tile.kernel @experts_hidden_fp8
// CHECK-SAME: grid = #plan.expr<"3072">
// CHECK: config = #tile.cpu_gemm<register_rows = 4, register_columns = 2, block_k = 64, columns_per_cta = 32, lanes = 16>
// AVX2-LABEL: tile.kernel @experts_hidden_fp8
// AVX2: config = #tile.cpu_gemm<register_rows = 3, register_columns = 2, block_k = 32, columns_per_cta = 32, lanes = 8>
tile.kernel @experts_hidden_fp8(%x: memref<?x2048xf8E4M3FN>, %xs: memref<?x16xf32>, %w: memref<128x1536x2048xf8E4M3FN>, %ws: memref<128x12x16xf32>, %off: memref<129xi32>, %src: memref<?xi32>, %y: memref<?x768xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xf8E4M3FN>, memref<128x1536x2048xf8E4M3FN>) input_scale(%xs : memref<?x16xf32>) weight_scale(%ws : memref<128x12x16xf32>) offsets(%off : memref<129xi32>) source(%src : memref<?xi32>) outs(%y : memref<?x768xbf16>) epilogue {
  ^bb0(%g: f32, %u: f32):
    %a = arith.mulf %g, %u : f32
    tile.yield %a : f32
  } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// There are top_k positions per token.
// CHECK-LABEL: tile.kernel @experts_hidden_quantized
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens * 8, 4)">
// CHECK: config = #tile.cpu_quantize<lanes = 16, rows_per_cta = 4>
tile.kernel @experts_hidden_quantized(%x: memref<?x768xbf16>, %off: memref<129xi32>, %q: memref<?x768xf8E4M3FN>, %s: memref<?x6xf32>, %t: i64) {
  tile.quantize <storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true> tokens(%t) ins(%x : memref<?x768xbf16>) offsets(%off : memref<129xi32>) outs(%q, %s : memref<?x768xf8E4M3FN>, memref<?x6xf32>) {top_k = 8 : i64}
  tile.return
}

// CHECK-LABEL: tile.kernel @gather_rows
// CHECK-SAME: grid = #plan.expr<"ceildiv(tokens * 8, 4)">
// CHECK: config = #tile.cpu_gather_rows<rows_per_cta = 4>
tile.kernel @gather_rows(%x: memref<?x2048xbf16>, %o: memref<129xi32>, %s: memref<?xi32>, %y: memref<?x2048xbf16>, %t: i64) {
  tile.gather_rows tokens(%t) ins(%x : memref<?x2048xbf16>) offsets(%o : memref<129xi32>)
      source(%s : memref<?xi32>) outs(%y : memref<?x2048xbf16>) {top_k = 8 : i64}
  tile.return
}
