// Every op of the dialect with every operand, through the printer and back.
// RUN: moe-opt %s | moe-opt | FileCheck %s
// RUN: moe-opt %s --mlir-print-op-generic | moe-opt | FileCheck %s

// CHECK-LABEL: tile.kernel @route(
// CHECK-SAME: %[[LOGITS:[a-z0-9]+]]: memref<?x8xf32>
// CHECK-SAME: %[[TOKENS:[a-z0-9]+]]: i64) {
tile.kernel @route(%logits: memref<?x8xf32>, %bias: memref<8xf32>, %scale: memref<8xf32>,
    %input_ids: memref<?xi32>, %table: memref<10x2xi32>, %valid: memref<1xi32>,
    %ids: memref<?x2xi32>, %weights: memref<?x2xf32>,
    %offsets: memref<4xi32>, %position: memref<?x2xi32>, %source: memref<?xi32>,
    %row_weight: memref<?x1xf32>, %tokens: i64) {
  // CHECK-NEXT: tile.top_k tokens(%[[TOKENS]]) logits(%[[LOGITS]] : memref<?x8xf32>)
  // CHECK-SAME: selection_bias(%{{[a-z0-9]+}} : memref<8xf32>)
  // CHECK-SAME: expert_scale(%{{[a-z0-9]+}} : memref<8xf32>)
  // CHECK-SAME: num_valid_tokens(%{{[a-z0-9]+}} : memref<1xi32>)
  // CHECK-SAME: outs(%[[IDS:[a-z0-9]+]], %[[WEIGHTS:[a-z0-9]+]] : memref<?x2xi32>, memref<?x2xf32>)
  // CHECK-SAME: <top_k = 2, renormalize = true> score {
  // CHECK: } weight {
  // CHECK: }
  tile.top_k tokens(%tokens) logits(%logits : memref<?x8xf32>)
      selection_bias(%bias : memref<8xf32>) expert_scale(%scale : memref<8xf32>)
      num_valid_tokens(%valid : memref<1xi32>)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>)
      <top_k = 2, renormalize = true> score {
      ^bb0(%l: f32):
        %s = math.absf %l : f32
        tile.yield %s : f32
      } weight {
      ^bb0(%v: f32):
        tile.yield %v : f32
      }
  // CHECK: tile.top_k tokens(%[[TOKENS]]) logits(%[[LOGITS]] : memref<?x8xf32>)
  // CHECK-SAME: input_ids(%{{[a-z0-9]+}} : memref<?xi32>)
  // CHECK-SAME: hash_table(%{{[a-z0-9]+}} : memref<10x2xi32>)
  // CHECK-SAME: <top_k = 2, select = hash> {config = #tile.cpu_top_k<rows_per_cta = 8>}
  tile.top_k tokens(%tokens) logits(%logits : memref<?x8xf32>)
      input_ids(%input_ids : memref<?xi32>) hash_table(%table : memref<10x2xi32>)
      outs(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>)
      <top_k = 2, select = hash> {config = #tile.cpu_top_k<rows_per_cta = 8>}
  // CHECK-NEXT: tile.sort_by_expert tokens(%[[TOKENS]]) ids(%[[IDS]], %[[WEIGHTS]] : memref<?x2xi32>, memref<?x2xf32>)
  // CHECK-SAME: num_valid_tokens(%{{[a-z0-9]+}} : memref<1xi32>)
  // CHECK-SAME: outs(%{{.*}} : memref<4xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
  // CHECK-SAME: {local_experts = array<i64: 7, 0, 3>, num_experts = 8 : i64, num_zero_experts = 1 : i64}
  tile.sort_by_expert tokens(%tokens) ids(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>)
      num_valid_tokens(%valid : memref<1xi32>)
      outs(%offsets, %position, %source, %row_weight
           : memref<4xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 8 : i64, num_zero_experts = 1 : i64, local_experts = array<i64: 7, 0, 3>}
  // CHECK-NEXT: tile.sort_by_expert tokens(%[[TOKENS]]) ids(%[[IDS]], %[[WEIGHTS]] : memref<?x2xi32>, memref<?x2xf32>) outs(
  // CHECK-SAME: {config = #tile.cpu_sort_by_expert, num_experts = 3 : i64}
  tile.sort_by_expert tokens(%tokens) ids(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>)
      outs(%offsets, %position, %source, %row_weight
           : memref<4xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 3 : i64, config = #tile.cpu_sort_by_expert}
  // CHECK-NEXT: tile.return
  tile.return
}

// CHECK-LABEL: tile.kernel @counted
tile.kernel @counted(%ids: memref<?x2xi32>, %weights: memref<?x2xf32>, %valid: memref<1xi32>,
    %counts: memref<16x2xi32>, %offsets: memref<3xi32>, %position: memref<?x2xi32>, %source: memref<?xi32>,
    %row_weight: memref<?x1xf32>, %counter: memref<1xi32>, %tokens: i64) {
  // CHECK: tile.count_slots tokens(%{{.*}}) ids(%{{.*}} : memref<?x2xi32>) num_valid_tokens(%{{.*}} : memref<1xi32>)
  // CHECK-SAME: outs(%{{.*}} : memref<16x2xi32>) {chunk_tokens = 4 : i64, local_experts = array<i64: 5, 3>, num_experts = 8 : i64}
  tile.count_slots tokens(%tokens) ids(%ids : memref<?x2xi32>) num_valid_tokens(%valid : memref<1xi32>)
      outs(%counts : memref<16x2xi32>)
      {num_experts = 8 : i64, local_experts = array<i64: 5, 3>, chunk_tokens = 4 : i64}
  // CHECK-NEXT: tile.sort_by_expert {{.*}} num_valid_tokens(%{{.*}} : memref<1xi32>) counts(%{{.*}} : memref<16x2xi32>) outs(
  // CHECK-SAME: counter(%{{.*}} : memref<1xi32>) {chunk_tokens = 4 : i64,
  tile.sort_by_expert tokens(%tokens) ids(%ids, %weights : memref<?x2xi32>, memref<?x2xf32>)
      num_valid_tokens(%valid : memref<1xi32>) counts(%counts : memref<16x2xi32>)
      outs(%offsets, %position, %source, %row_weight
           : memref<3xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) counter(%counter : memref<1xi32>)
      {num_experts = 8 : i64, local_experts = array<i64: 5, 3>, chunk_tokens = 4 : i64}
  tile.return
}

// CHECK-LABEL: tile.kernel @grouped
// CHECK-SAME: attributes {grid = #plan.expr<"256">} {
tile.kernel @grouped(%x: memref<?x16xbf16>, %w: memref<4x24x16xbf16>, %offsets: memref<5xi32>,
    %source: memref<?xi32>, %ids: memref<?x2xi32>, %counter: memref<1xi32>, %rows: memref<?x1xf32>,
    %columns: memref<4x24xbf16>, %y: memref<?x12xbf16>, %tokens: i64) attributes {grid = #plan.expr<"256">} {
  // CHECK-NEXT: tile.gemm tokens(%{{[a-z0-9]+}}) ins(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x16xbf16>, memref<4x24x16xbf16>)
  // CHECK-SAME: offsets(%{{[a-z0-9]+}} : memref<5xi32>)
  // CHECK-SAME: source(%{{[a-z0-9]+}} : memref<?xi32>)
  // CHECK-SAME: schedule(ids = %{{[a-z0-9]+}} : memref<?x2xi32>, tile_counter = %{{[a-z0-9]+}} : memref<1xi32>)
  // CHECK-SAME: rows(%{{[a-z0-9]+}} : memref<?x1xf32>)
  // CHECK-SAME: columns(%{{[a-z0-9]+}} : memref<4x24xbf16>)
  // CHECK-SAME: outs(%{{[a-z0-9]+}} : memref<?x12xbf16>) epilogue {
  // CHECK: } {config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, columns_per_cta = 32, lanes = 16>, group_rows = #tile.group_rows<min = 3, max = 64>, layout = #moe.weight_layout<order = interleaved>, local_experts = array<i64: 4, 0, 2, 5>, num_experts = 6 : i64}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xbf16>, memref<4x24x16xbf16>)
      offsets(%offsets : memref<5xi32>) source(%source : memref<?xi32>) schedule(ids = %ids : memref<?x2xi32>, tile_counter = %counter : memref<1xi32>)
      rows(%rows : memref<?x1xf32>) columns(%columns : memref<4x24xbf16>)
      outs(%y : memref<?x12xbf16>) epilogue {
      ^bb0(%gate: f32, %up: f32, %row: f32, %gateBias: f32, %upBias: f32):
        %a = arith.addf %gate, %gateBias : f32
        %b = arith.addf %up, %upBias : f32
        %c = arith.mulf %a, %b : f32
        tile.yield %c : f32
      } {layout = #moe.weight_layout<order = interleaved>, num_experts = 6 : i64,
         local_experts = array<i64: 4, 0, 2, 5>, group_rows = #tile.group_rows<min = 3, max = 64>,
         config = #tile.cpu_gemm<register_rows = 4, register_columns = 4, columns_per_cta = 32, lanes = 16>}
  tile.return
}

// CHECK-LABEL: tile.kernel @dense
tile.kernel @dense(%x: memref<?x16xf32>, %w: memref<8x16xf32>, %bias: memref<8xf32>,
    %addend: memref<?x8xbf16>, %valid: memref<1xi32>, %y: memref<?x8xbf16>, %z: memref<?x8xf32>,
    %tokens: i64) {
  // CHECK-NEXT: tile.gemm
  // CHECK-SAME: num_valid_tokens(%{{[a-z0-9]+}} : memref<1xi32>)
  // CHECK-SAME: columns(%{{[a-z0-9]+}} : memref<8xf32>)
  // CHECK-SAME: elementwise(%{{[a-z0-9]+}} : memref<?x8xbf16>)
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>)
      num_valid_tokens(%valid : memref<1xi32>) columns(%bias : memref<8xf32>)
      elementwise(%addend : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>) epilogue {
      ^bb0(%acc: f32, %b: f32, %e: f32):
        %s = arith.addf %acc, %b : f32
        %t = arith.addf %s, %e : f32
        tile.yield %t : f32
      }
  // CHECK: tile.gemm tokens(%{{[a-z0-9]+}}) ins(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x16xf32>, memref<8x16xf32>) outs(%{{[a-z0-9]+}} : memref<?x8xf32>){{$}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x16xf32>, memref<8x16xf32>)
      outs(%z : memref<?x8xf32>)
  tile.return
}

// CHECK-LABEL: tile.kernel @rows
tile.kernel @rows(%x: memref<?x16xf16>, %w: memref<?x1xf32>, %y: memref<?x16xf16>, %tokens: i64) {
  // CHECK-NEXT: tile.row_map tokens(%{{[a-z0-9]+}}) ins(%{{[a-z0-9]+}} : memref<?x16xf16>) rows(%{{[a-z0-9]+}} : memref<?x1xf32>) outs(%{{[a-z0-9]+}} : memref<?x16xf16>) {
  tile.row_map tokens(%tokens) ins(%x : memref<?x16xf16>) rows(%w : memref<?x1xf32>)
      outs(%y : memref<?x16xf16>) {
      ^bb0(%v: f32, %r: f32):
        %z = arith.mulf %v, %r : f32
        tile.yield %z : f32
      }
  // CHECK: tile.row_map tokens(%{{[a-z0-9]+}}) ins(%{{[a-z0-9]+}} : memref<?x16xf16>) outs(%{{[a-z0-9]+}} : memref<?x16xf16>) {
  // CHECK: } {config = #tile.cpu_row_map<lanes = 8, rows_per_cta = 4>}
  tile.row_map tokens(%tokens) ins(%x : memref<?x16xf16>) outs(%y : memref<?x16xf16>) {
      ^bb0(%v: f32):
        tile.yield %v : f32
      } {config = #tile.cpu_row_map<lanes = 8, rows_per_cta = 4>}
  tile.return
}

// CHECK-LABEL: tile.kernel @place
tile.kernel @place(%ids: memref<?x2xi32>, %table: memref<8xi32>, %valid: memref<4xi32>, %places: memref<8x3xi32>,
    %counts: memref<8xi32>, %mask: memref<?xi8>, %other: memref<?x2xi32>, %x: memref<?x16xf16>,
    %e: memref<?x16xf16>, %placed: memref<?x2xi32>, %y: memref<?x16xf16>, %tokens: i64) {
  // CHECK-NEXT: tile.place_ids tokens(%{{[a-z0-9]+}}) ins(%{{[a-z0-9]+}} : memref<?x2xi32>) table(%{{[a-z0-9]+}} : memref<8xi32>) num_valid_tokens(%{{[a-z0-9]+}} : memref<4xi32>) outs(%{{[a-z0-9]+}} : memref<?x2xi32>) {config = #tile.gpu_place_ids<slots_per_cta = 64>}
  tile.place_ids tokens(%tokens) ins(%ids : memref<?x2xi32>) table(%table : memref<8xi32>)
      num_valid_tokens(%valid : memref<4xi32>) outs(%placed : memref<?x2xi32>)
      {config = #tile.gpu_place_ids<slots_per_cta = 64>}
  // CHECK-NEXT: tile.place_ids tokens(%{{[a-z0-9]+}}) ins(%{{[a-z0-9]+}} : memref<?x2xi32>) table(%{{[a-z0-9]+}} : memref<8x3xi32>) replica_counts(%{{[a-z0-9]+}} : memref<8xi32>) is_padding(%{{[a-z0-9]+}} : memref<?xi8>) outs(
  tile.place_ids tokens(%tokens) ins(%ids : memref<?x2xi32>) table(%places : memref<8x3xi32>)
      replica_counts(%counts : memref<8xi32>) is_padding(%mask : memref<?xi8>) outs(%other : memref<?x2xi32>)
  // CHECK: tile.place_ids {{.*}} {zero_experts = array<i64: 8, 2>}
  tile.place_ids tokens(%tokens) ins(%ids : memref<?x2xi32>) outs(%placed : memref<?x2xi32>)
      {zero_experts = array<i64: 8, 2>}
  // CHECK: tile.row_map {{.*}} elementwise(%{{[a-z0-9]+}} : memref<?x16xf16>) outs(
  tile.row_map tokens(%tokens) ins(%x : memref<?x16xf16>) elementwise(%e : memref<?x16xf16>)
      outs(%y : memref<?x16xf16>) {
      ^bb0(%v: f32, %o: f32):
        %z = arith.addf %v, %o : f32
        tile.yield %z : f32
      }
  tile.return
}

// CHECK-LABEL: tile.kernel private @reduce
tile.kernel private @reduce(%rows: memref<?x16xbf16>, %position: memref<?x2xi32>,
    %x: memref<?x16xbf16>, %weights: memref<?x2xf32>, %addend: memref<?x16xbf16>,
    %valid: memref<1xi32>, %y: memref<?x16xbf16>, %tokens: i64) {
  // CHECK-NEXT: tile.gather_reduce tokens(%{{[a-z0-9]+}}) ins(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x16xbf16>, memref<?x2xi32>)
  // CHECK-SAME: identity(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x16xbf16>, memref<?x2xf32>)
  // CHECK-SAME: addend(%{{[a-z0-9]+}} : memref<?x16xbf16>)
  // CHECK-SAME: num_valid_tokens(%{{[a-z0-9]+}} : memref<1xi32>)
  // CHECK-SAME: outs(%{{[a-z0-9]+}} : memref<?x16xbf16>) {moe.name = ["output"]}
  tile.gather_reduce tokens(%tokens) ins(%rows, %position : memref<?x16xbf16>, memref<?x2xi32>)
      identity(%x, %weights : memref<?x16xbf16>, memref<?x2xf32>)
      addend(%addend : memref<?x16xbf16>) num_valid_tokens(%valid : memref<1xi32>)
      outs(%y : memref<?x16xbf16>) {moe.name = ["output"]}
  // CHECK-NEXT: tile.gather_reduce tokens(%{{[a-z0-9]+}}) ins(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x16xbf16>, memref<?x2xi32>) outs(%{{[a-z0-9]+}} : memref<?x16xbf16>) {config
  tile.gather_reduce tokens(%tokens) ins(%rows, %position : memref<?x16xbf16>, memref<?x2xi32>)
      outs(%y : memref<?x16xbf16>) {config = #tile.cpu_gather_reduce<rows_per_cta = 1>}
  tile.return
}

// CHECK-LABEL: tile.kernel @ordered
tile.kernel @ordered(%x: memref<?x200xf8E4M3FN>, %s: memref<?x2xf32>, %offsets: memref<5xi32>,
    %source: memref<?xi32>, %y: memref<?x200xf8E4M3FN>, %z: memref<?x2xf32>, %tokens: i64) {
  // CHECK-NEXT: tile.gather_rows tokens(%{{[a-z0-9]+}}) ins(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x200xf8E4M3FN>, memref<?x2xf32>)
  // CHECK-SAME: offsets(%{{[a-z0-9]+}} : memref<5xi32>) source(%{{[a-z0-9]+}} : memref<?xi32>)
  // CHECK-SAME: outs(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x200xf8E4M3FN>, memref<?x2xf32>) {top_k = 2 : i64}
  tile.gather_rows tokens(%tokens) ins(%x, %s : memref<?x200xf8E4M3FN>, memref<?x2xf32>)
      offsets(%offsets : memref<5xi32>) source(%source : memref<?xi32>)
      outs(%y, %z : memref<?x200xf8E4M3FN>, memref<?x2xf32>) {top_k = 2 : i64}
  // CHECK-NEXT: tile.gather_rows tokens(%{{[a-z0-9]+}}) ins(%{{[a-z0-9]+}} : memref<?x2xf32>)
  // CHECK-SAME: {config = #tile.cpu_gather_rows<rows_per_cta = 4>, top_k = 1 : i64}
  tile.gather_rows tokens(%tokens) ins(%s : memref<?x2xf32>)
      offsets(%offsets : memref<5xi32>) source(%source : memref<?xi32>)
      outs(%z : memref<?x2xf32>) {top_k = 1 : i64, config = #tile.cpu_gather_rows<rows_per_cta = 4>}
  tile.return
}

// CHECK-LABEL: tile.kernel @columns
tile.kernel @columns(%x: memref<?x200xf16>, %c: memref<1x200xi32>, %y: memref<?x200xf16>, %tokens: i64) {
  // CHECK-NEXT: tile.gather_rows tokens(%{{[a-z0-9]+}}) ins(%{{[a-z0-9]+}} : memref<?x200xf16>)
  // CHECK-SAME: columns(%{{[a-z0-9]+}} : memref<1x200xi32>) outs(%{{[a-z0-9]+}} : memref<?x200xf16>){{$}}
  tile.gather_rows tokens(%tokens) ins(%x : memref<?x200xf16>) columns(%c : memref<1x200xi32>)
      outs(%y : memref<?x200xf16>)
  tile.return
}

// CHECK-LABEL: tile.kernel @empty(%{{[a-z0-9]+}}: i64) {
// CHECK-NEXT: tile.return
tile.kernel @empty(%tokens: i64) {
  tile.return
}

// CHECK-LABEL: tile.kernel @waits(%{{[a-z0-9]+}}: i64) attributes {form = #tile.kernel_form<resident = true>, grid = #plan.expr<"132">} {
// CHECK-NEXT: tile.return
tile.kernel @waits(%tokens: i64) attributes {form = #tile.kernel_form<resident = true>, grid = #plan.expr<"132">} {
  tile.return
}
