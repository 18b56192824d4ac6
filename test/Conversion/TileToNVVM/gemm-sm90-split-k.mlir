// Clusters whose CTAs share the k tiles of one tile. Without `split_k` there is none of this: gemm-sm90.mlir.
// RUN: moe-opt %s --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_90a --cse -o %t.mlir
// RUN: FileCheck %s --input-file=%t.mlir
// RUN: moe-opt %t.mlir --gpu-kernel-entry=target=sm_90a | FileCheck %s --check-prefix=ENTRY
// RUN: moe-opt %s --tile-assign-config=target=sm_90a | FileCheck %s --check-prefix=GRID
// Clusters of four run on 128 of 132 multiprocessors.
// GRID: tile.kernel @grouped({{.*}} grid = #plan.expr<"128">
// GRID: tile.kernel @dense({{.*}} grid = #plan.expr<"min(ceildiv(tokens, 16) * 4, 132)">
// ENTRY: llvm.func @grouped({{.*}} nvvm.cluster_dim = array<i32: 4, 1, 1>

// CHECK-LABEL: func.func @grouped
// CHECK-SAME: moec.form = #tile.kernel_form<registers = 80, cluster = 4>
// A stage is empty if the CTA's own eight warps of consumers have read it.
// CHECK: nvvm.mbarrier.init %{{.*}}, %c97_i32
// CHECK: nvvm.mbarrier.init %{{.*}}, %c8_i32
// Each consumer of the first CTA waits for sums; its warps have read them.
// CHECK: nvvm.mbarrier.init %{{.*}}, %c2_i32
// CHECK: nvvm.mbarrier.init %{{.*}}, %c8_i32
// All mbarriers are there before any CTA uses those of another one, which consumers do. Copies begin before.
// CHECK: nvvm.cluster.arrive
// CHECK-NEXT: nvvm.barrier
// The first two CTAs have two of six k tiles and the others one: the CTA's k tile is its step times 4, plus its rank.
// CHECK: %[[RANK:.*]] = nvvm.read.ptx.sreg.cluster.ctarank range <i32, 0, 4>
// CHECK-NEXT: %[[LEFT:.*]] = arith.subi %c9_i32, %[[RANK]]
// CHECK-NEXT: arith.divui %[[LEFT]], %c4_i32
// CHECK: %[[BEFORE:.*]] = arith.muli %{{.*}}, %c4_i32 overflow<nsw>
// CHECK-NEXT: arith.addi %[[BEFORE]], %[[RANK]]
// CHECK-NOT: multicast_mask
// The first CTA waits for 16 rows of 64 sums from three others for each consumer, adds them, and lets the others go on.
// CHECK: nvvm.mbarrier.arrive.expect_tx %[[FULL:.*]], %c12288_i32
// CHECK-NOT: mem_scope<cluster>
// CHECK: %[[ONE:.*]] = nvvm.mapa %[[EMPTY:.*]], %c1_i32
// CHECK-NEXT: nvvm.mbarrier.arrive %[[ONE]] : !llvm.ptr<7>
// CHECK-NEXT: nvvm.mapa %[[EMPTY]], %c2_i32
// CHECK: nvvm.mapa %[[EMPTY]], %c3_i32
// The others send four sums at once.
// CHECK: %[[THERE:.*]] = nvvm.mapa %[[FULL]], %c0_i32
// CHECK: %[[TO:.*]] = nvvm.mapa %{{.*}}, %c0_i32
// CHECK: st.async.{{.*}}.v4.b32 {{.*}} %[[TO]], %{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}}, %[[THERE]] :
// CHECK-NOT: mem_scope<cluster>
// CHECK: nvvm.cluster.arrive
// CHECK-NEXT: nvvm.cluster.wait
// CHECK-NEXT: return
tile.kernel @grouped(%x: memref<?x384xbf16>, %w: memref<8x128x384xbf16>, %o: memref<9xi32>, %s: memref<?xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x384xbf16>, memref<8x128x384xbf16>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, split_k = 4>}
  tile.return
}

tile.kernel @dense(%x: memref<?x256xbf16>, %w: memref<256x256xbf16>, %y: memref<?x256xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<256x256xbf16>)
      outs(%y : memref<?x256xbf16>) {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, split_k = 2>}
  tile.return
}
