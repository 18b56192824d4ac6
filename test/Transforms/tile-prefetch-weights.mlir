// What launches could ask for ahead of the product that reads it.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-prefetch-weights=target=sm_90a | FileCheck %s
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-prefetch-weights="target=sm_90a bytes=4096" | FileCheck %s --check-prefix=BYTES
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a -o %t.before
// RUN: moe-opt %t.before --split-input-file --tile-prefetch-weights | diff - %t.before
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_80 -o %t.sm80
// RUN: moe-opt %t.sm80 --split-input-file --tile-prefetch-weights=target=sm_80 | diff - %t.sm80
// RUN: not moe-opt %s --split-input-file --tile-prefetch-weights=target=sm_70 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tile-prefetch-weights: target 'sm_70' is unknown; accepted are cpu, sm_80, sm_90a, sm_100a
// RUN: not moe-opt %s --split-input-file --tile-prefetch-weights="target=sm_90a bytes=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: tile-prefetch-weights: bytes = -1; at least 1, or 0 for the table's, is accepted

// The rank asks for the first product's weights, that one for the second's;
// what is between them on the stream reads none. Both variants agree.
// CHECK-LABEL: plan.program @layer
//       CHECK: plan.variant tokens 0 to 8
//  CHECK-NEXT: plan.launch @rank ins(%{{.*}}, %{{.*}}, %experts.w13 : {{.*}}) outs(%expert_offsets,
//  CHECK-NEXT: plan.launch @copy ins(%hidden_states : memref<?x64xbf16>)
//  CHECK-NEXT: plan.launch @hidden ins(%{{.*}}, %experts.w13, %expert_offsets, %source, %experts.w2 : {{.*}}) outs(
//  CHECK-NEXT: plan.launch @out ins(%{{.*}}, %experts.w2, %expert_offsets, %row_weight : {{.*}}) outs(
//       CHECK: plan.variant tokens 9 to 16
//  CHECK-NEXT: plan.launch @rank ins(%{{.*}}, %{{.*}}, %experts.w13 : {{.*}}) outs(%expert_offsets,
//  CHECK-NEXT: plan.launch @hidden ins(%{{.*}}, %experts.w13, %expert_offsets, %source, %experts.w2 :
// The weights stand behind the other inputs, and all multiprocessors take part.
// CHECK-LABEL: tile.kernel @rank(
//  CHECK-SAME: %[[AHEAD:[a-z0-9]+]]: memref<8x128x64xbf16>, %{{[a-z0-9]+}}: memref<9xi32>
//  CHECK-SAME: grid = #plan.expr<"max(min(ceildiv(tokens, 512), 128), 132)">
//       CHECK: prefetch(%[[AHEAD]] : memref<8x128x64xbf16>)
//  CHECK-SAME: prefetch_bytes = 131072 : i64
// CHECK-LABEL: tile.kernel @hidden(
//  CHECK-SAME: %[[AHEAD:[a-z0-9]+]]: memref<8x64x64xbf16>, %{{[a-z0-9]+}}: memref<?x64xbf16>
//       CHECK: prefetch(%[[AHEAD]] : memref<8x64x64xbf16>)
//       CHECK: prefetch_bytes = 65536 : i64
// CHECK-LABEL: tile.kernel @out(
//   CHECK-NOT: prefetch(
// CHECK-LABEL: tile.kernel @copy(
//   BYTES-DAG: prefetch(%{{.*}} : memref<8x128x64xbf16>) {{.*}}prefetch_bytes = 4096 : i64
plan.program @layer max_tokens 16 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x64xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x2xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<8x128x64xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<8x64x64xbf16>
  %output = plan.tensor output "output" rows <"tokens * 2"> : memref<?x64xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<9xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x2xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  %h = plan.buffer "experts_hidden" slot 4 rows <"tokens * 2"> : memref<?x64xbf16>
  %c = plan.buffer "copied" slot 5 rows <"tokens"> : memref<?x64xbf16>
  plan.variant tokens 0 to 8 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %position, %source, %weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @copy ins(%x : memref<?x64xbf16>) outs(%c : memref<?x64xbf16>)
    plan.launch @hidden ins(%c, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%output : memref<?x64xbf16>)
  }
  plan.variant tokens 9 to 16 {
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
        outs(%offsets, %position, %source, %weight : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x64xbf16>, memref<8x128x64xbf16>, memref<9xi32>, memref<?xi32>)
        outs(%h : memref<?x64xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>, memref<?x1xf32>)
        outs(%output : memref<?x64xbf16>)
  }
}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<9xi32>, %p: memref<?x2xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %t: i64) {
  tile.rank tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %w : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 8 : i64}
  tile.return
}
tile.kernel @hidden(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %s: memref<?xi32>,
    %h: memref<?x64xbf16>, %t: i64) {
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>)
      source(%s : memref<?xi32>) outs(%h : memref<?x64xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @out(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %v: memref<?x1xf32>,
    %y: memref<?x64xbf16>, %t: i64) {
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      rows(%v : memref<?x1xf32>) outs(%y : memref<?x64xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %z = arith.mulf %a, %b : f32
        tile.yield %z : f32
      }
  tile.return
}
tile.kernel @copy(%x: memref<?x64xbf16>, %y: memref<?x64xbf16>, %t: i64) {
  tile.row_map tokens(%t) ins(%x : memref<?x64xbf16>) outs(%y : memref<?x64xbf16>) {
    ^bb0(%v: f32):
      tile.yield %v : f32
  }
  tile.return
}

// -----

// One matrix is read whole. Nobody asks for weights with gaps, nor for an input,
// and @second is launched before different products.
// CHECK-LABEL: plan.program @dense
//       CHECK: plan.launch @first ins(%x, %a, %b : {{.*}}) outs(%h :
//       CHECK: plan.launch @first stream 1 ins(%x, %a, %b : {{.*}}) outs(%k :
//       CHECK: plan.launch @second stream 1 ins(%k, %b :
//       CHECK: plan.launch @second ins(%h, %b :
//       CHECK: plan.launch @gaps ins(%y, %c :
//       CHECK: plan.launch @input ins(%y, %v :
// CHECK-LABEL: tile.kernel @first(
//       CHECK: prefetch(%{{.*}} : memref<64x128xbf16>)
//  CHECK-SAME: prefetch_bytes = 16384 : i64
// CHECK-LABEL: tile.kernel @second(
//   CHECK-NOT: prefetch(
// CHECK-LABEL: tile.kernel @gaps(
//   CHECK-NOT: prefetch(
plan.program @dense max_tokens 16 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x64xbf16>
  %a = plan.tensor weight "a" : memref<128x64xbf16>
  %b = plan.tensor weight "b" : memref<64x128xbf16>
  %c = plan.tensor weight "c" : memref<64x64xbf16, strided<[?, 1]>>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x64xbf16>
  %h = plan.buffer "h" slot 0 rows <"tokens"> : memref<?x128xbf16>
  %k = plan.buffer "k" slot 1 rows <"tokens"> : memref<?x128xbf16>
  %y = plan.buffer "y" slot 2 rows <"tokens"> : memref<?x64xbf16>
  %u = plan.buffer "u" slot 3 rows <"tokens"> : memref<?x64xbf16>
  %d = plan.buffer "d" slot 4 rows <"tokens"> : memref<?x64xbf16>
  %v = plan.tensor input "v" : memref<64x64xbf16>
  plan.variant tokens 0 to 16 {
    plan.launch @first ins(%x, %a : memref<?x64xbf16>, memref<128x64xbf16>) outs(%h : memref<?x128xbf16>)
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.launch @first stream 1 ins(%x, %a : memref<?x64xbf16>, memref<128x64xbf16>) outs(%k : memref<?x128xbf16>)
    plan.launch @second stream 1 ins(%k, %b : memref<?x128xbf16>, memref<64x128xbf16>) outs(%u : memref<?x64xbf16>)
    plan.record event 1 stream 1
    plan.launch @second ins(%h, %b : memref<?x128xbf16>, memref<64x128xbf16>) outs(%y : memref<?x64xbf16>)
    plan.launch @gaps ins(%y, %c : memref<?x64xbf16>, memref<64x64xbf16, strided<[?, 1]>>) outs(%d : memref<?x64xbf16>)
    plan.wait event 1 stream 0
    plan.launch @input ins(%y, %v : memref<?x64xbf16>, memref<64x64xbf16>) outs(%z : memref<?x64xbf16>)
  }
}
tile.kernel @first(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>) outs(%y : memref<?x128xbf16>)
  tile.return
}
tile.kernel @second(%x: memref<?x128xbf16>, %w: memref<64x128xbf16>, %y: memref<?x64xbf16>, %t: i64) {
  tile.contract tokens(%t) ins(%x, %w : memref<?x128xbf16>, memref<64x128xbf16>) outs(%y : memref<?x64xbf16>)
  tile.return
}
tile.kernel @gaps(%x: memref<?x64xbf16>, %w: memref<64x64xbf16, strided<[?, 1]>>, %y: memref<?x64xbf16>, %t: i64) {
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x64xbf16, strided<[?, 1]>>) outs(%y : memref<?x64xbf16>)
  tile.return
}
tile.kernel @input(%x: memref<?x64xbf16>, %w: memref<64x64xbf16>, %y: memref<?x64xbf16>, %t: i64) {
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x64xbf16>) outs(%y : memref<?x64xbf16>)
  tile.return
}

// -----

// A dense product does not know which groups have rows.
// CHECK-LABEL: plan.program @unknown
//       CHECK: plan.launch @dense ins(%x, %a : memref
plan.program @unknown max_tokens 16 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x64xbf16>
  %o = plan.tensor input "o" : memref<9xi32>
  %a = plan.tensor weight "a" : memref<64x64xbf16>
  %b = plan.tensor weight "b" : memref<8x64x64xbf16>
  %y = plan.buffer "y" slot 0 rows <"tokens"> : memref<?x64xbf16>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x64xbf16>
  plan.variant tokens 0 to 16 {
    plan.launch @dense ins(%x, %a : memref<?x64xbf16>, memref<64x64xbf16>) outs(%y : memref<?x64xbf16>)
    plan.launch @grouped ins(%y, %b, %o : memref<?x64xbf16>, memref<8x64x64xbf16>, memref<9xi32>) outs(%z : memref<?x64xbf16>)
  }
}
tile.kernel @dense(%x: memref<?x64xbf16>, %w: memref<64x64xbf16>, %y: memref<?x64xbf16>, %t: i64) {
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<64x64xbf16>) outs(%y : memref<?x64xbf16>)
  tile.return
}
tile.kernel @grouped(%x: memref<?x64xbf16>, %w: memref<8x64x64xbf16>, %o: memref<9xi32>, %y: memref<?x64xbf16>, %t: i64) {
  tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x64x64xbf16>) offsets(%o : memref<9xi32>)
      outs(%y : memref<?x64xbf16>)
  tile.return
}
