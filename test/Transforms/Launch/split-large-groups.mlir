// Gemms with a separate launch for groups with many rows.
// DEFINE: %{configured} = --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=permute-rows target=sm_90a"
// RUN: moe-opt %s --split-input-file %{configured} --tile-rewrite-launches="only=split-large-groups target=sm_90a" | FileCheck %s
// A second run does not split again.
// RUN: moe-opt %s --split-input-file %{configured} --tile-rewrite-launches="only=split-large-groups target=sm_90a" -o %t.once
// RUN: moe-opt %t.once --split-input-file --tile-rewrite-launches="only=split-large-groups target=sm_90a" | diff - %t.once
// A forced config applies to all groups.
// DEFINE: %{low} = configs={hidden:block_m=32 block_n=128 stages=4}
// RUN: moe-opt %s --split-input-file --tile-assign-config="target=sm_90a %{low}" --tile-rewrite-launches="only=split-large-groups target=sm_90a %{low}" | FileCheck %s --check-prefix=LOW --implicit-check-not=hidden_large_groups
// LOW: plan.launch @out_large_groups_t8192
// A config forced for large groups is used wherever there may be such groups.
// DEFINE: %{both} = configs={hidden:block_m=16 block_n=64 stages=4,hidden_large_groups:block_m=64+96 block_n=128 stages=4}
// RUN: moe-opt %s --split-input-file --tile-assign-config="target=sm_90a %{both}" --tile-rewrite-launches="only=split-large-groups target=sm_90a %{both}" | FileCheck %s --check-prefix=FORCED
// Other targets do not support bounds on groups.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_80 -o %t.sm80
// RUN: moe-opt %t.sm80 --split-input-file --tile-rewrite-launches="only=split-large-groups target=sm_80" | diff - %t.sm80
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=cpu -o %t.cpu
// RUN: moe-opt %t.cpu --split-input-file --tile-rewrite-launches="only=split-large-groups" | diff - %t.cpu
// Split gemms neither count ids nor are joined.
// RUN: moe-opt %s --split-input-file %{configured} --tile-rewrite-launches="only=split-large-groups target=sm_90a" --tile-rewrite-launches="only=count-ids target=sm_90a" --tile-rewrite-launches="only=join-products target=sm_90a" --tile-rewrite-launches="only=dynamic-scheduler target=sm_90a" | FileCheck %s --check-prefix=BEHIND
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=split-large-groups target=sm_70" 2>&1 | FileCheck %s --check-prefix=TARGET
// TARGET: tile-rewrite-launches: target 'sm_70' is unknown; accepted are cpu, sm_80, sm_90a, sm_100a
// RUN: not moe-opt %s --split-input-file --tile-rewrite-launches="only=split-large-groups target=sm_90a configs=hidden" 2>&1 | FileCheck %s --check-prefix=CONFIG
// CONFIG: tile-rewrite-launches: config 'hidden': write KERNEL:TEXT
// RUN: not moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=split-large-groups target=sm_90a configs=hidden_large_groups:block_n=33" 2>&1 | FileCheck %s --check-prefix=ILLEGAL
// ILLEGAL: of kernel 'hidden_large_groups_t512' cannot run as 'block_n=33': block_n = 33; give 32, 64 or 128
// RUN: not moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=split-large-groups target=sm_90a configs={hidden_large_groups:sm80.gemm block_n=32}" 2>&1 | FileCheck %s --check-prefix=SCHEDULE
// SCHEDULE: of kernel 'hidden_large_groups_t512' cannot run as 'sm80.gemm block_n=32': the other groups run as sm90.gemm; give that schedule
// RUN: not moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --tile-rewrite-launches="only=split-large-groups target=sm_90a configs=hidden_large_groups:width=32" 2>&1 | FileCheck %s --check-prefix=FIELD
// FIELD: config 'hidden_large_groups:width=32': 'width=32' is not a field

// Long gemms with a small BLOCK_M. A launch of a copy on the same memory follows each launch. With fewer tokens the
// second gemm is too short, or one expert cannot get enough rows; with more tokens BLOCK_M is large.
//  CHECK-LABEL: plan.program @layer
//        CHECK: plan.variant tokens 0 to 512 {
//   CHECK-NEXT: plan.launch @rank
//   CHECK-NEXT: plan.launch @hidden_t512
//   CHECK-NEXT: plan.launch @out_t512
//   CHECK-NEXT: }
//        CHECK: plan.variant tokens 513 to 4096 {
//   CHECK-NEXT: plan.launch @rank
//   CHECK-NEXT: plan.launch @gather_rows
//   CHECK-NEXT: plan.launch @hidden_t8192 ins([[HIDDEN:.*]]) outs([[H:%experts_hidden : .*]])
//   CHECK-NEXT: plan.launch @hidden_large_groups_t8192 ins([[HIDDEN]]) outs([[H]])
//   CHECK-NEXT: plan.launch @out_t8192 ins([[OUT:.*]]) outs([[Y:%output : .*]])
//   CHECK-NEXT: plan.launch @out_large_groups_t8192 ins([[OUT]]) outs([[Y]])
//   CHECK-NEXT: }
//        CHECK: plan.variant tokens 4097 to 8192 {
//   CHECK-NEXT: plan.launch @rank
//   CHECK-NEXT: plan.launch @gather_rows
//   CHECK-NEXT: plan.launch @hidden_t8192
//   CHECK-NEXT: plan.launch @hidden_large_groups_t8192
//   CHECK-NEXT: plan.launch @out_t8192
//   CHECK-NEXT: plan.launch @out_large_groups_t8192
//   CHECK-NEXT: }
//        CHECK: plan.variant tokens 8193 to 16384 {
//   CHECK-NEXT: plan.launch @rank
//   CHECK-NEXT: plan.launch @gather_rows
//   CHECK-NEXT: plan.launch @hidden_t16384
//   CHECK-NEXT: plan.launch @out_t16384
//   CHECK-NEXT: }
//        CHECK: tile.kernel @hidden_t512(
//    CHECK-NOT: group_rows
//        CHECK: tile.kernel @hidden_t8192([[ARGUMENTS:.*]]) attributes {
//        CHECK: block_m = [{{[^]]*}}], {{[^>]*}}, map_rows, dynamic_scheduler>, group_rows = #tile.group_rows<max = [[#ROWS:]]>, layout = 
//        CHECK: tile.kernel @hidden_large_groups_t8192([[ARGUMENTS]]) attributes {
//   CHECK-SAME: load = #tile.load<min_tokens = 513, max_tokens = 8192, experts = 128>
//        CHECK: block_m = [{{1..}}], {{[^>]*}}, map_rows, dynamic_scheduler>, group_rows = #tile.group_rows<min = [[#ROWS+1]]>, layout = 
//        CHECK: tile.kernel @hidden_t16384(
//    CHECK-NOT: group_rows
//        CHECK: tile.kernel @out_t8192(
//        CHECK: group_rows = #tile.group_rows<max = [[#ROWS:]]>
//        CHECK: tile.kernel @out_large_groups_t8192(
//        CHECK: group_rows = #tile.group_rows<min = [[#ROWS+1]]>
//    CHECK-NOT: group_rows
// With up to 512 tokens, a quarter of them makes a large group.
// FORCED-LABEL: plan.program @layer
//       FORCED: plan.launch @hidden_t512
//  FORCED-NEXT: plan.launch @hidden_large_groups_t512
//       FORCED: plan.launch @hidden_t16384
//  FORCED-NEXT: plan.launch @hidden_large_groups_t16384
//       FORCED: tile.kernel @hidden_t512(
//       FORCED: block_m = [16], {{.*}}, stages = 4, dynamic_scheduler>, group_rows = #tile.group_rows<max = 127>, layout = 
//       FORCED: tile.kernel @hidden_large_groups_t512(
//       FORCED: block_m = [64, 96], block_n = 128, block_k = 64, stages = 4, dynamic_scheduler>, group_rows = #tile.group_rows<min = 128>, layout = 
// BEHIND-LABEL: plan.program @layer
//       BEHIND: plan.variant tokens 513 to 4096 {
//       BEHIND: plan.launch @hidden_t8192 ins({{.*}}, %topk_ids : {{.*}}) outs(%experts_hidden, %[[COUNTER:[a-z_]+]] :
//  BEHIND-NEXT: plan.launch @hidden_large_groups_t8192 ins(%hidden_states_in_order, %experts.w13, %expert_offsets : {{.*}}) outs(%experts_hidden, %[[COUNTER]] :
//  BEHIND-NEXT: plan.launch @out_t8192 ins({{.*}}, %topk_ids : {{.*}}) outs(%output, %[[COUNTER]] :
//  BEHIND-NEXT: plan.launch @out_large_groups_t8192 ins(%experts_hidden, %experts.w2, %expert_offsets, %row_weight : {{.*}}) outs(%output, %[[COUNTER]] :
//  BEHIND-NEXT: }
plan.program @layer max_tokens 16384 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x5120xbf16>
  %i = plan.tensor input "topk_ids" rows <"tokens"> : memref<?x1xi32>
  %r = plan.tensor input "topk_weights" rows <"tokens"> : memref<?x1xf32>
  %w13 = plan.tensor weight "experts.w13" : memref<128x16384x5120xbf16>
  %w2 = plan.tensor weight "experts.w2" : memref<128x5120x8192xbf16>
  %y = plan.tensor output "output" rows <"tokens"> : memref<?x5120xbf16>
  %offsets = plan.buffer "expert_offsets" slot 0 : memref<129xi32>
  %position = plan.buffer "position" slot 1 rows <"tokens"> : memref<?x1xi32>
  %source = plan.buffer "source" slot 2 rows <"tokens"> : memref<?xi32>
  %weight = plan.buffer "row_weight" slot 3 rows <"tokens"> : memref<?x1xf32>
  %h = plan.buffer "experts_hidden" slot 4 rows <"tokens"> : memref<?x8192xbf16>
  plan.variant tokens 0 to 512 {
    plan.launch @rank ins(%i, %r : memref<?x1xi32>, memref<?x1xf32>)
        outs(%offsets, %position, %source, %weight : memref<129xi32>, memref<?x1xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden_t512 ins(%x, %w13, %offsets, %source : memref<?x5120xbf16>, memref<128x16384x5120xbf16>, memref<129xi32>, memref<?xi32>)
        outs(%h : memref<?x8192xbf16>)
    plan.launch @out_t512 ins(%h, %w2, %offsets, %weight : memref<?x8192xbf16>, memref<128x5120x8192xbf16>, memref<129xi32>, memref<?x1xf32>)
        outs(%y : memref<?x5120xbf16>)
  }
  plan.variant tokens 513 to 4096 {
    plan.launch @rank ins(%i, %r : memref<?x1xi32>, memref<?x1xf32>)
        outs(%offsets, %position, %source, %weight : memref<129xi32>, memref<?x1xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden_t8192 ins(%x, %w13, %offsets, %source : memref<?x5120xbf16>, memref<128x16384x5120xbf16>, memref<129xi32>, memref<?xi32>)
        outs(%h : memref<?x8192xbf16>)
    plan.launch @out_t8192 ins(%h, %w2, %offsets, %weight : memref<?x8192xbf16>, memref<128x5120x8192xbf16>, memref<129xi32>, memref<?x1xf32>)
        outs(%y : memref<?x5120xbf16>)
  }
  plan.variant tokens 4097 to 8192 {
    plan.launch @rank ins(%i, %r : memref<?x1xi32>, memref<?x1xf32>)
        outs(%offsets, %position, %source, %weight : memref<129xi32>, memref<?x1xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden_t8192 ins(%x, %w13, %offsets, %source : memref<?x5120xbf16>, memref<128x16384x5120xbf16>, memref<129xi32>, memref<?xi32>)
        outs(%h : memref<?x8192xbf16>)
    plan.launch @out_t8192 ins(%h, %w2, %offsets, %weight : memref<?x8192xbf16>, memref<128x5120x8192xbf16>, memref<129xi32>, memref<?x1xf32>)
        outs(%y : memref<?x5120xbf16>)
  }
  plan.variant tokens 8193 to 16384 {
    plan.launch @rank ins(%i, %r : memref<?x1xi32>, memref<?x1xf32>)
        outs(%offsets, %position, %source, %weight : memref<129xi32>, memref<?x1xi32>, memref<?xi32>, memref<?x1xf32>)
    plan.launch @hidden_t16384 ins(%x, %w13, %offsets, %source : memref<?x5120xbf16>, memref<128x16384x5120xbf16>, memref<129xi32>, memref<?xi32>)
        outs(%h : memref<?x8192xbf16>)
    plan.launch @out_t16384 ins(%h, %w2, %offsets, %weight : memref<?x8192xbf16>, memref<128x5120x8192xbf16>, memref<129xi32>, memref<?x1xf32>)
        outs(%y : memref<?x5120xbf16>)
  }
}
tile.kernel @rank(%i: memref<?x1xi32>, %r: memref<?x1xf32>, %o: memref<129xi32>, %p: memref<?x1xi32>, %s: memref<?xi32>,
    %w: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x1xi32>, memref<?x1xf32>)
      outs(%o, %p, %s, %w : memref<129xi32>, memref<?x1xi32>, memref<?xi32>, memref<?x1xf32>) {num_experts = 128 : i64}
  tile.return
}
tile.kernel @hidden_t512(%x: memref<?x5120xbf16>, %w: memref<128x16384x5120xbf16>, %o: memref<129xi32>,
    %s: memref<?xi32>, %h: memref<?x8192xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 512, top_k = 1, experts = 128>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x5120xbf16>, memref<128x16384x5120xbf16>)
      offsets(%o : memref<129xi32>) source(%s : memref<?xi32>) outs(%h : memref<?x8192xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %one = arith.constant 1.0 : f32
        %n = arith.negf %g : f32
        %e = math.exp %n : f32
        %d = arith.addf %one, %e : f32
        %q = arith.divf %g, %d : f32
        %y = arith.mulf %q, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @hidden_t8192(%x: memref<?x5120xbf16>, %w: memref<128x16384x5120xbf16>, %o: memref<129xi32>,
    %s: memref<?xi32>, %h: memref<?x8192xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 513, max_tokens = 8192, top_k = 1, experts = 128>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x5120xbf16>, memref<128x16384x5120xbf16>)
      offsets(%o : memref<129xi32>) source(%s : memref<?xi32>) outs(%h : memref<?x8192xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %one = arith.constant 1.0 : f32
        %n = arith.negf %g : f32
        %e = math.exp %n : f32
        %d = arith.addf %one, %e : f32
        %q = arith.divf %g, %d : f32
        %y = arith.mulf %q, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @hidden_t16384(%x: memref<?x5120xbf16>, %w: memref<128x16384x5120xbf16>, %o: memref<129xi32>,
    %s: memref<?xi32>, %h: memref<?x8192xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 8193, max_tokens = 16384, top_k = 1, experts = 128>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x5120xbf16>, memref<128x16384x5120xbf16>)
      offsets(%o : memref<129xi32>) source(%s : memref<?xi32>) outs(%h : memref<?x8192xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %one = arith.constant 1.0 : f32
        %n = arith.negf %g : f32
        %e = math.exp %n : f32
        %d = arith.addf %one, %e : f32
        %q = arith.divf %g, %d : f32
        %y = arith.mulf %q, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @out_t512(%h: memref<?x8192xbf16>, %w: memref<128x5120x8192xbf16>, %o: memref<129xi32>,
    %r: memref<?x1xf32>, %y: memref<?x5120xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 512, top_k = 1, experts = 128>} {
  tile.gemm tokens(%t) ins(%h, %w : memref<?x8192xbf16>, memref<128x5120x8192xbf16>)
      offsets(%o : memref<129xi32>) rows(%r : memref<?x1xf32>) outs(%y : memref<?x5120xbf16>) epilogue {
      ^bb0(%v: f32, %q: f32):
        %z = arith.mulf %v, %q : f32
        tile.yield %z : f32
      }
  tile.return
}
tile.kernel @out_t8192(%h: memref<?x8192xbf16>, %w: memref<128x5120x8192xbf16>, %o: memref<129xi32>,
    %r: memref<?x1xf32>, %y: memref<?x5120xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 513, max_tokens = 8192, top_k = 1, experts = 128>} {
  tile.gemm tokens(%t) ins(%h, %w : memref<?x8192xbf16>, memref<128x5120x8192xbf16>)
      offsets(%o : memref<129xi32>) rows(%r : memref<?x1xf32>) outs(%y : memref<?x5120xbf16>) epilogue {
      ^bb0(%v: f32, %q: f32):
        %z = arith.mulf %v, %q : f32
        tile.yield %z : f32
      }
  tile.return
}
tile.kernel @out_t16384(%h: memref<?x8192xbf16>, %w: memref<128x5120x8192xbf16>, %o: memref<129xi32>,
    %r: memref<?x1xf32>, %y: memref<?x5120xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 8193, max_tokens = 16384, top_k = 1, experts = 128>} {
  tile.gemm tokens(%t) ins(%h, %w : memref<?x8192xbf16>, memref<128x5120x8192xbf16>)
      offsets(%o : memref<129xi32>) rows(%r : memref<?x1xf32>) outs(%y : memref<?x5120xbf16>) epilogue {
      ^bb0(%v: f32, %q: f32):
        %z = arith.mulf %v, %q : f32
        tile.yield %z : f32
      }
  tile.return
}

// -----

// Not split: a short gemm, one without groups, one without a load.
// CHECK-LABEL: plan.program @others
//   CHECK-NOT: large_groups
//   CHECK-NOT: group_rows
// FORCED-LABEL: plan.program @others
//       FORCED: plan.launch @dense
//  FORCED-NEXT: plan.launch @unknown
//  FORCED-NEXT: plan.record
//  FORCED-NEXT: plan.wait
//  FORCED-NEXT: plan.launch @hidden stream 1
//  FORCED-NEXT: plan.launch @hidden_large_groups stream 1
//  FORCED-NEXT: plan.record
plan.program @others max_tokens 8192 {
  %x = plan.tensor input "hidden_states" rows <"tokens"> : memref<?x2048xbf16>
  %w13 = plan.tensor weight "experts.w13" : memref<128x1536x2048xbf16>
  %offsets = plan.tensor input "expert_offsets" : memref<129xi32>
  %source = plan.tensor input "source" rows <"tokens * 8"> : memref<?xi32>
  %h = plan.tensor output "experts_hidden" rows <"tokens * 8"> : memref<?x768xbf16>
  %xd = plan.tensor input "x" rows <"tokens"> : memref<?x8192xbf16>
  %w = plan.tensor weight "w" : memref<131072x8192xbf16>
  %v = plan.tensor weight "v" : memref<128x16384x8192xbf16>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x131072xbf16>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x16384xbf16>
  plan.variant tokens 0 to 8192 {
    plan.launch @dense ins(%xd, %w : memref<?x8192xbf16>, memref<131072x8192xbf16>) outs(%y : memref<?x131072xbf16>)
    plan.launch @unknown ins(%xd, %v, %offsets : memref<?x8192xbf16>, memref<128x16384x8192xbf16>, memref<129xi32>) outs(%z : memref<?x16384xbf16>)
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.launch @hidden stream 1 ins(%x, %w13, %offsets, %source : memref<?x2048xbf16>, memref<128x1536x2048xbf16>, memref<129xi32>, memref<?xi32>)
        outs(%h : memref<?x768xbf16>)
    plan.record event 1 stream 1
    plan.wait event 1 stream 0
  }
}
tile.kernel @hidden(%x: memref<?x2048xbf16>, %w: memref<128x1536x2048xbf16>, %o: memref<129xi32>,
    %s: memref<?xi32>, %h: memref<?x768xbf16>, %t: i64) attributes {load = #tile.load<min_tokens = 0, max_tokens = 8192, top_k = 8, experts = 128>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x2048xbf16>, memref<128x1536x2048xbf16>)
      offsets(%o : memref<129xi32>) source(%s : memref<?xi32>) outs(%h : memref<?x768xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %y = arith.mulf %g, %u : f32
        tile.yield %y : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}
tile.kernel @dense(%x: memref<?x8192xbf16>, %w: memref<131072x8192xbf16>, %y: memref<?x131072xbf16>, %t: i64)
    attributes {load = #tile.load<min_tokens = 513, max_tokens = 8192, top_k = 1, experts = 1>} {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x8192xbf16>, memref<131072x8192xbf16>) outs(%y : memref<?x131072xbf16>)
  tile.return
}
tile.kernel @unknown(%x: memref<?x8192xbf16>, %v: memref<128x16384x8192xbf16>, %o: memref<129xi32>, %z: memref<?x16384xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %v : memref<?x8192xbf16>, memref<128x16384x8192xbf16>) offsets(%o : memref<129xi32>) outs(%z : memref<?x16384xbf16>)
  tile.return
}
