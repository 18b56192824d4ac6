// Clusters of two CTAs that share weights. Without `multicast_weights` there is none of this: gemm-sm90.mlir.
// RUN: moe-opt %s --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_90a --cse -o %t.mlir
// RUN: FileCheck %s --input-file=%t.mlir
// RUN: moe-opt %t.mlir --gpu-kernel-entry=target=sm_90a | FileCheck %s --check-prefix=ENTRY
// ENTRY: llvm.func @paired({{.*}} nvvm.cluster_dim = array<i32: 2, 1, 1>

// CHECK-LABEL: func.func @paired
// CHECK-SAME: moec.form = #tile.kernel_form<registers = 80, cluster = 2>
// A stage is empty if the eight warps of consumers of both CTAs have read it.
// CHECK: nvvm.mbarrier.init %{{.*}}, %c97_i32
// CHECK: nvvm.mbarrier.init %{{.*}}, %c16_i32
// All mbarriers are there before any CTA uses those of the other one.
// CHECK: nvvm.cluster.arrive
// CHECK-NEXT: nvvm.cluster.wait
// Each CTA waits for all weights, and copies half of them to both.
// CHECK: nvvm.read.ptx.sreg.cluster.ctarank
// CHECK: nvvm.mbarrier.arrive.expect_tx {{.*}}, %c16384_i32
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}} multicast_mask = %c3_i16
// A lane of each warp of consumers arrives at both CTAs; scope cluster would fence the GPU.
// CHECK-NOT: mem_scope<cluster>
// CHECK: nvvm.mapa {{.*}}, %c0_i32
// CHECK-NEXT: nvvm.mbarrier.arrive %{{[^ ]*}} : !llvm.ptr<7>
// CHECK-NEXT: nvvm.mapa {{.*}}, %c1_i32
// CHECK-NEXT: nvvm.mbarrier.arrive %{{[^ ]*}} : !llvm.ptr<7>
// CHECK-NOT: mem_scope<cluster>
// CHECK: nvvm.cluster.arrive
// CHECK-NEXT: nvvm.cluster.wait
// CHECK-NEXT: return
tile.kernel @paired(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %s: memref<?xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, multicast_weights>}
  tile.return
}

// One thread of a cluster draws tiles, and sends their number to both CTAs.
// CHECK-LABEL: func.func @drawn
// CHECK-NOT: mem_scope<cluster>
// CHECK: nvvm.read.ptx.sreg.cluster.ctarank
// CHECK: nvvm.mbarrier.arrive.expect_tx %[[BAR:.*]], %c4_i32
// CHECK-NEXT: %[[SLOT:.*]] = nvvm.mapa %[[NUMBER:.*]], %c0_i32
// CHECK-NEXT: llvm.inline_asm has_side_effects "st.async{{.*}} [$0], $1, [$2];", {{.*}} %[[SLOT]], %[[DRAWN:.*]], %[[BAR]] :
// CHECK-NEXT: %[[OTHER:.*]] = nvvm.mapa %{{.*}}, %c1_i32
// CHECK-NEXT: nvvm.mbarrier.arrive.expect_tx %[[OTHER]], %c4_i32
// CHECK-NEXT: %[[THERE:.*]] = nvvm.mapa %[[NUMBER]], %c1_i32
// CHECK-NEXT: llvm.inline_asm has_side_effects "st.async{{.*}} %[[THERE]], %[[DRAWN]], %[[OTHER]] :
// CHECK-NOT: mem_scope<cluster>
// CHECK: return
tile.kernel @drawn(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %s: memref<?xi32>, %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>) source(%s : memref<?xi32>)
      schedule(tile_counter = %c : memref<1xi32>) outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, dynamic_scheduler, multicast_weights>}
  tile.return
}
