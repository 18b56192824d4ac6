// Kernels other than the experts' gemms have separate ranges, which do not copy the gemms.
// RUN: moe-opt %s --tile-specialize=target=sm_90a | FileCheck %s
// RUN: moe-opt %s --tile-specialize="target=sm_90a max-kernels=9" | FileCheck %s --check-prefix=FEW
// RUN: moe-opt %s --tile-specialize="target=sm_90a configs={out@1-16:block_n=64}" | FileCheck %s --check-prefix=FORCED
// RUN: moe-opt %s --tile-specialize="target=sm_90a few-tokens=1" -o %t.few.mlir
// RUN: FileCheck %s --input-file=%t.few.mlir --check-prefix=SPLIT
// Kernels of other tokens are those without the split.
// RUN: moe-opt %s --tile-specialize=target=sm_90a | grep "tile.kernel @" > %t.kernels
// RUN: grep "tile.kernel @" %t.few.mlir | grep -v "_t1(" | diff - %t.kernels

// The experts' gemms have kernels of one token, other launches share theirs.
// SPLIT-LABEL: plan.program @layer
//       SPLIT: plan.variant tokens 0 to 1 {
//       SPLIT: plan.launch @logits_t[[#FIRST:]] ins
//       SPLIT: plan.launch @hidden_t1 ins
//       SPLIT: plan.launch @out_t1 ins
//       SPLIT: plan.variant tokens 2 to [[#FIRST]] {
//       SPLIT: plan.launch @logits_t[[#FIRST]] ins
//       SPLIT: plan.launch @hidden_t[[#HIDDEN:]] ins
//       SPLIT: plan.launch @out_t[[#HIDDEN]] ins
//   SPLIT-DAG: tile.kernel @hidden_t1({{.*}}load = #tile.load<min_tokens = 0, max_tokens = 1,
//   SPLIT-DAG: tile.kernel @out_t1({{.*}}load = #tile.load<min_tokens = 0, max_tokens = 1,
//   SPLIT-DAG: tile.kernel @hidden_t[[#HIDDEN]]({{.*}}load = #tile.load<min_tokens = 0, max_tokens = [[#HIDDEN]],

// A range of the program ends wherever a range of a kernel does.
// CHECK-LABEL: plan.program @layer
//       CHECK: plan.variant tokens 0 to [[#FIRST:]] {
//       CHECK: plan.launch @logits_t[[#FIRST]] ins
//       CHECK: plan.launch @hidden_t[[#HIDDEN:]] ins
//       CHECK: plan.launch @out_t[[#HIDDEN]] ins
//       CHECK: plan.variant tokens [[#FIRST+1]] to [[#SECOND:]] {
//       CHECK: plan.launch @logits_t[[#SECOND]] ins
//       CHECK: plan.launch @hidden_t[[#HIDDEN]] ins
//       CHECK: plan.launch @out_t[[#HIDDEN]] ins
//       CHECK: plan.variant tokens {{[0-9]+}} to 16384 {
//       CHECK: plan.launch @logits_t16384 ins
//   CHECK-NOT: plan.variant
//       CHECK: tile.kernel @logits_t[[#FIRST]]({{.*}}load = #tile.load<min_tokens = 0, max_tokens = [[#FIRST]]>
//       CHECK: tile.kernel @hidden_t[[#HIDDEN]]({{.*}}load = #tile.load<min_tokens = 0, max_tokens = [[#HIDDEN]], top_k = 8, experts = 128>

// If there are too many kernels, those that lose least are merged.
//         FEW: tile.kernel @logits_t
//         FEW: tile.kernel @hidden_t
// FEW-COUNT-2: tile.kernel @out_t
//         FEW: tile.kernel @sum

// The range of a forced config splits all kernels.
//      FORCED: plan.variant tokens 0 to 16 {
//      FORCED: plan.launch @logits_t16 ins
//      FORCED: plan.launch @hidden_t16 ins
//      FORCED: plan.launch @out_t16 ins
plan.program @layer max_tokens 16384 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x2048xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x8xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x8xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<128x1536x2048xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<128x2048x768xbf16>
  %gate = plan.tensor weight "gate.weight" : memref<512x2048xbf16>
  %logits = plan.tensor output "router_logits" rows <"tokens"> : memref<?x512xf32>
  %output = plan.tensor output "output" rows <"tokens"> : memref<?x2048xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<129xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x8xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens * 8"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens * 8"> : memref<?x1xf32>
  %h = plan.buffer "experts_hidden" slot 4 rows <"tokens * 8"> : memref<?x768xbf16>
  %y = plan.buffer "experts_out" slot 5 rows <"tokens * 8"> : memref<?x2048xbf16>
  plan.variant tokens 0 to 16384 {
    plan.launch @logits ins(%x, %gate : memref<?x2048xbf16>, memref<512x2048xbf16>) outs(%logits : memref<?x512xf32>)
    plan.launch @route ins(%i, %r : memref<?x8xi32>, memref<?x8xf32>)
        outs(%offsets, %position, %source, %weight : memref<129xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden ins(%x, %w13, %offsets, %source : memref<?x2048xbf16>, memref<128x1536x2048xbf16>, memref<129xi32>, memref<?xi32>)
        outs(%h : memref<?x768xbf16>)
    plan.launch @out ins(%h, %w2, %offsets, %weight : memref<?x768xbf16>, memref<128x2048x768xbf16>, memref<129xi32>, memref<?x1xf32>)
        outs(%y : memref<?x2048xbf16>)
    plan.launch @sum ins(%y, %position : memref<?x2048xbf16>, memref<?x8xi32>) outs(%output : memref<?x2048xbf16>)
  }
}
tile.kernel @logits(%x: memref<?x2048xbf16>, %w: memref<512x2048xbf16>, %y: memref<?x512xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xbf16>, memref<512x2048xbf16>) outs(%y : memref<?x512xf32>)
  tile.return
}
tile.kernel @route(%i: memref<?x8xi32>, %r: memref<?x8xf32>, %o: memref<129xi32>, %p: memref<?x8xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x8xi32>, memref<?x8xf32>)
      outs(%o, %p, %s, %w : memref<129xi32>, memref<?x8xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 128 : i64}
  tile.return
}
tile.kernel @hidden(%x: memref<?x2048xbf16>, %w: memref<128x1536x2048xbf16>, %o: memref<129xi32>, %s: memref<?xi32>,
    %y: memref<?x768xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xbf16>, memref<128x1536x2048xbf16>)
      offsets(%o : memref<129xi32>) source(%s : memref<?xi32>) outs(%y : memref<?x768xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @out(%x: memref<?x768xbf16>, %w: memref<128x2048x768xbf16>, %o: memref<129xi32>, %r: memref<?x1xf32>,
    %y: memref<?x2048xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x768xbf16>, memref<128x2048x768xbf16>)
      offsets(%o : memref<129xi32>) rows(%r : memref<?x1xf32>) outs(%y : memref<?x2048xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %1 = arith.mulf %a, %b : f32
        tile.yield %1 : f32
      }
  tile.return
}
tile.kernel @sum(%x: memref<?x2048xbf16>, %p: memref<?x8xi32>, %y: memref<?x2048xbf16>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%x, %p : memref<?x2048xbf16>, memref<?x8xi32>) outs(%y : memref<?x2048xbf16>)
  tile.return
}
