// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_90a --cse | FileCheck %s
// RUN: not moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_80 2>&1 | FileCheck %s --check-prefix=SM80
// SM80: has the schedule 'sm90.gemm', and on this target it needs 'sm80.gemm'

// Tiles begin at multiples of the swizzle's period.
// CHECK: llvm.mlir.global external @moec_shared() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>

// Rows are copied 16 bytes at a time, weights as one box of gate and up.
// CHECK-LABEL: func.func @gathered
// CHECK-SAME: %[[MAP:[a-z0-9]+]]: !llvm.ptr)
// CHECK-SAME: moec.block = 384
// One warp prefetches maps, one initializes barriers, one builds the table of groups. One arrival for the box, 96 for
// rows; one of each consumer warp.
// CHECK: nvvm.prefetch tensormap, %[[MAP]]
// CHECK: nvvm.mbarrier.init %{{.*}}, %c97_i32
// CHECK: nvvm.mbarrier.init %{{.*}}, %c8_i32
// CHECK: nvvm.fence.mbarrier.init
// CHECK-NEXT: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
// CHECK: scf.if
// CHECK: memref.load %{{.*}} : memref<7xi32>
// CHECK: nvvm.shfl.sync up
// CHECK: llvm.store {{.*}} : vector<4xi32>, !llvm.ptr<3>
// CHECK: nvvm.barrier0
// CHECK: scf.if
// CHECK-NEXT: nvvm.setmaxregister decrease 88
// CHECK: scf.if
// CHECK: scf.for
// The search for the tile's group, by all lanes.
// CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> vector<4xi32>
// CHECK: nvvm.vote.sync ballot
// CHECK-NEXT: math.ctpop
// CHECK: scf.for
// CHECK: scf.if
// CHECK: scf.while
// CHECK-NEXT: nvvm.mbarrier.try_wait
// CHECK: nvvm.mbarrier.arrive.expect_tx
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}, %[[MAP]], {{.*}}, box[{{[^,]*}}, {{[^,]*}}, {{[^,]*}}, {{[^,]*}}, {{[^,]*}}] {moec.weights} : !llvm.ptr<7>, !llvm.ptr
// Rows of other warps, which do not wait for it.
// CHECK: } else {
// CHECK: memref.load %{{.*}} : memref<?xi32>
// CHECK: scf.for
// Copied data is published while no stage is free.
// CHECK: nvvm.mbarrier.test.wait
// CHECK: scf.if
// CHECK-NEXT: nvvm.cp.async.wait.group 0
// CHECK: nvvm.mbarrier.arrive
// CHECK: scf.while
// CHECK-NEXT: nvvm.mbarrier.try_wait
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK: nvvm.cp.async.commit.group
// Writes of threads are fenced for the tensor cores before they are published.
// CHECK: scf.if
// CHECK-NEXT: nvvm.cp.async.wait.group 2
// CHECK-NEXT: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
// CHECK: nvvm.mbarrier.arrive
// Rows of the next tile are looked up while the last ones arrive.
// CHECK: memref.load %{{.*}} : memref<?xi32>
// CHECK: nvvm.cp.async.wait.group 0
// CHECK: nvvm.fence.proxy
// CHECK: nvvm.mbarrier.arrive
// CHECK: } else {
// CHECK-NEXT: nvvm.setmaxregister increase 208
// CHECK: nvvm.wgmma.fence.aligned
// CHECK: nvvm.wgmma.mma_async {{.*}} <m = 64, n = 16, k = 16>, D[<f32>, <one>], A[<bf16>, <one>, <row>], B[<bf16>, <one>, <col>]
// CHECK-COUNT-7: nvvm.wgmma.mma_async
// CHECK: nvvm.wgmma.commit.group.sync.aligned
// CHECK-NEXT: nvvm.wgmma.wait.group.sync.aligned 1
// CHECK: nvvm.mbarrier.arrive
// CHECK: nvvm.wgmma.wait.group.sync.aligned 0
// No arithmetic on sums may move above the wait.
// CHECK: llvm.inline_asm has_side_effects "", "=f,
// CHECK: llvm.inline_asm has_side_effects "", "=f,
// CHECK: nvvm.mbarrier.arrive
// All warps of a consumer have read the previous tile's results.
// CHECK: %[[ID:.*]] = arith.addi %{{.*}}, %c1_i32 : i32
// CHECK-NEXT: nvvm.barrier id = %[[ID]] number_of_threads = %c128_i32
// CHECK: arith.mulf {{.*}} : vector<4xf32>
// CHECK: arith.truncf {{.*}} : vector<4xf32> to vector<4xbf16>
// CHECK: nvvm.stmatrix {{.*}} {eltType = #nvvm.ld_st_matrix_elt_type<b16>, layout = #nvvm.mma_layout<col>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>}
// Each warp of a consumer holds 8 of a block's 32 columns. The results are transposed to whole rows of all 64 columns:
// 128 bytes, stored by 8 threads.
// CHECK: nvvm.stmatrix
// CHECK-NOT: nvvm.stmatrix
// CHECK: nvvm.barrier id = %[[ID]] number_of_threads = %c128_i32
// CHECK: %[[ROW:.*]] = arith.divui %[[THREAD:.*]], %c8_i32 : i32
// CHECK-NEXT: %[[PIECE:.*]] = arith.remui %[[THREAD]], %c8_i32 : i32
// CHECK-NEXT: arith.muli %[[ROW]], %c144_i32 : i32
// CHECK-NEXT: arith.muli %[[PIECE]], %c16_i32 : i32
// CHECK: scf.if
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xi32>
// CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
tile.kernel @gathered(%x: memref<?x256xbf16>, %w: memref<6x512x256xbf16>, %o: memref<7xi32>,
    %s: memref<?xi32>, %y: memref<?x256xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<6x512x256xbf16>)
      offsets(%o : memref<7xi32>) source(%s : memref<?xi32>) outs(%y : memref<?x256xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {layout = #moe.weight_layout<order = gate_up>}
  tile.return
}

// -----

// f32 results are stored one by one, and invalid rows become zeros.
// CHECK-LABEL: func.func @dense
// CHECK: scf.for
// CHECK: vector.store {{.*}} : memref<?x128xf32>, vector<4xf32>
// CHECK: nvvm.setmaxregister decrease
// CHECK: nvvm.wgmma.mma_async
// CHECK-SAME: A[<f16>, <one>, <row>]
// CHECK-NOT: nvvm.stmatrix
// CHECK: memref.store {{.*}} : memref<?x128xf32>
tile.kernel @dense(%x: memref<?x64xf16>, %w: memref<128x64xf16>, %v: memref<1xi32>,
    %y: memref<?x128xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xf16>, memref<128x64xf16>)
      num_valid_tokens(%v : memref<1xi32>) outs(%y : memref<?x128xf32>)
  tile.return
}

// -----

// Rows of a buffer are copied by tensor maps, one per BLOCK_M; one thread starts all copies. Small tiles leave
// registers to the previous launch: 384 threads start with 80 each.
// CHECK-LABEL: func.func @mapped
// CHECK-SAME: %[[W:[a-z0-9]+]]: !llvm.ptr, %[[R0:[a-z0-9]+]]: !llvm.ptr, %[[R1:[a-z0-9]+]]: !llvm.ptr)
// CHECK-SAME: moec.form = #tile.kernel_form<registers = 80>
// CHECK: nvvm.setmaxregister decrease 56
// CHECK: scf.if
// CHECK: nvvm.mbarrier.arrive.expect_tx
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}, %[[W]], {{.*}} {moec.weights}
// CHECK: scf.if
// CHECK: nvvm.mbarrier.arrive.expect_tx
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}, %[[R1]], {{.*}} box[{{[^,]*}}, {{[^,]*}}] :
// CHECK: nvvm.mbarrier.arrive.expect_tx
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}, %[[R0]],
// CHECK-NOT: nvvm.cp.async
// CHECK: nvvm.setmaxregister increase 88
tile.kernel @mapped(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [8, 32], block_n = 128, block_k = 64, stages = 4, map_rows>}
  tile.return
}

// -----

// With ids all threads count them; unlike the others, the thread that copies weights does not wait for earlier
// launches.
// CHECK-LABEL: func.func @counts_ids
// CHECK-SAME: %[[IDS:[a-z0-9]+]]: memref<?x4xi32>, %{{[a-z0-9]+}}: memref<?x128xbf16>
// CHECK-NOT: nvvm.griddepcontrol
// CHECK-NOT: memref.load
// CHECK: llvm.load {{.*}} {alignment = 4 : i64, moec.weights} : !llvm.ptr<1> -> i32
// CHECK: llvm.store {{.*}} : i32, !llvm.ptr<3>
// CHECK: nvvm.barrier0
// CHECK: llvm.atomicrmw add {{.*}} syncscope("block") monotonic : !llvm.ptr<3>, i32
// CHECK: scf.for
// CHECK-COUNT-4: llvm.load {{.*}} {alignment = 4 : i64, moec.weights} : !llvm.ptr<1> -> i32
// CHECK-COUNT-4: llvm.atomicrmw add
// CHECK: nvvm.barrier0
// Prefix sums of rows and tiles over lanes.
// CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> i32
// CHECK: nvvm.bar.warp.sync
// CHECK-COUNT-10: nvvm.shfl.sync up
// CHECK: nvvm.barrier0
// CHECK: nvvm.setmaxregister decrease
// CHECK-NOT: nvvm.griddepcontrol
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}} {moec.weights}
// CHECK: } else {
// CHECK-NOT: memref.load
// CHECK: nvvm.griddepcontrol wait
// CHECK: memref.load {{.*}} : memref<?xi32>
// CHECK: nvvm.cp.async.commit.group
// At the end of its warpgroup.
// CHECK: nvvm.griddepcontrol wait
// CHECK: nvvm.setmaxregister increase
// CHECK-NEXT: nvvm.griddepcontrol wait
tile.kernel @counts_ids(%x: memref<?x64xbf16>, %w: memref<6x128x64xbf16>, %o: memref<7xi32>, %s: memref<?xi32>,
    %i: memref<?x4xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<6x128x64xbf16>) offsets(%o : memref<7xi32>)
      source(%s : memref<?xi32>) schedule(ids = %i : memref<?x4xi32>) outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>,
       num_experts = 6 : i64}
  tile.return
}

// -----

// The thread that copies rows also waits after it has started the first round of weight copies.
// CHECK-LABEL: func.func @counts_ids_mapped
// CHECK-SAME: memref<?x4xi32>, {{.*}} %[[W:[a-z0-9]+]]: !llvm.ptr, %[[R:[a-z0-9]+]]: !llvm.ptr)
// CHECK: nvvm.setmaxregister decrease
// CHECK-NOT: nvvm.griddepcontrol
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}, %[[W]], {{.*}} {moec.weights}
// CHECK-NOT: nvvm.cp.async
// CHECK: nvvm.griddepcontrol wait
// CHECK: nvvm.mbarrier.try_wait
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}, %[[W]],
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}}, %[[R]],
// CHECK: nvvm.griddepcontrol wait
// CHECK: nvvm.setmaxregister increase
// CHECK-NEXT: nvvm.griddepcontrol wait
tile.kernel @counts_ids_mapped(%x: memref<?x64xbf16>, %w: memref<3x128x64xbf16>, %o: memref<4xi32>,
    %i: memref<?x4xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<3x128x64xbf16>) offsets(%o : memref<4xi32>)
      schedule(ids = %i : memref<?x4xi32>) outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, map_rows>,
       local_experts = array<i64: 5, 0, 9>, num_experts = 12 : i64}
  tile.return
}

// -----

// With one block, each consumer multiplies half of a k tile and finishes half of the rows. Row operands of the epilogue
// are loaded before, a row per lane.
// CHECK-LABEL: func.func @shared_block
// CHECK: nvvm.setmaxregister increase
// CHECK: memref.load %{{.*}} : memref<?x1xf32>
// CHECK-NOT: memref.load
// CHECK: nvvm.wgmma.fence.aligned
// CHECK: nvvm.wgmma.mma_async
// CHECK-NOT: nvvm.wgmma.commit
// CHECK: nvvm.wgmma.mma_async
// CHECK-NOT: nvvm.wgmma.mma_async
// CHECK: nvvm.wgmma.wait.group.sync.aligned 0
// CHECK: nvvm.barrier id = %c4_i32 number_of_threads = %c256_i32
// CHECK: llvm.store %{{.*}} : vector<4xf32>, !llvm.ptr<3>
// CHECK: nvvm.barrier id = %c4_i32 number_of_threads = %c256_i32
// CHECK: llvm.load %{{.*}} : !llvm.ptr<3> -> vector<4xf32>
// CHECK: arith.addf
// CHECK: nvvm.shfl.sync idx
// CHECK: arith.mulf %{{.*}} : vector<4xf32>
tile.kernel @shared_block(%x: memref<?x64xbf16>, %w: memref<128x64xbf16>, %r: memref<?x1xf32>,
    %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<128x64xbf16>)
      rows(%r : memref<?x1xf32>) outs(%y : memref<?x128xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32):
        %1 = arith.mulf %a, %b : f32
        tile.yield %1 : f32
      } {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4, map_rows>}
  tile.return
}

// -----

// Rows on the M side: in tiles of 64 rows each consumer multiplies half of the weights, in tiles of 128 each has 64
// rows and all weights. A thread has two values of a row operand; lanes share a column operand. Results are rows.
// CHECK-LABEL: func.func @no_swap_ab
// CHECK: nvvm.setmaxregister increase
// CHECK: scf.if
// CHECK-COUNT-2: memref.load %{{.*}} : memref<?x1xf32>
// CHECK-COUNT-4: memref.load %{{.*}} : memref<256xbf16>
// CHECK: nvvm.wgmma.fence.aligned
// CHECK: nvvm.wgmma.mma_async {{.*}} <m = 64, n = 128, k = 16>
// CHECK: nvvm.shfl.sync idx
// CHECK: nvvm.stmatrix {{.*}} layout = #nvvm.mma_layout<row>
// CHECK: } else {
// CHECK-COUNT-2: memref.load %{{.*}} : memref<?x1xf32>
// CHECK-COUNT-8: memref.load %{{.*}} : memref<256xbf16>
// CHECK-NOT: memref.load
// CHECK: nvvm.wgmma.fence.aligned
// CHECK: nvvm.wgmma.mma_async {{.*}} <m = 64, n = 256, k = 16>
tile.kernel @no_swap_ab(%x: memref<?x64xbf16>, %w: memref<256x64xbf16>, %r: memref<?x1xf32>,
    %c: memref<256xbf16>, %y: memref<?x256xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<256x64xbf16>)
      rows(%r : memref<?x1xf32>) columns(%c : memref<256xbf16>)
      outs(%y : memref<?x256xbf16>) epilogue {
      ^bb0(%a: f32, %b: f32, %d: f32):
        %1 = arith.mulf %a, %b : f32
        %2 = arith.addf %1, %d : f32
        tile.yield %2 : f32
      } {config = #tile.sm90_gemm<block_m = [64, 128], block_n = 256, block_k = 64, stages = 4, map_rows, no_swap_ab>}
  tile.return
}

// -----

// With a dynamic tile scheduler all roles use tile numbers that one thread draws. The thread that copies boxes waits
// for them. In the warps that copy rows, one thread adds to the counter behind the last copies of a tile, waits until
// all warps have read the previous number, and stores the new one; the draw of the last number resets the counter.
// Consumers get it with the last stage of the tile.
// CHECK-LABEL: func.func @dynamic_scheduler
// CHECK: nvvm.mbarrier.init %{{.*}}, %{{.*}} : !llvm.ptr<3>, i32
// CHECK: nvvm.setmaxregister decrease
// CHECK: scf.while
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK-NOT: llvm.atomicrmw
// CHECK: nvvm.mbarrier.try_wait
// CHECK: llvm.load %{{.*}} : !llvm.ptr<3> -> i32
// CHECK: nvvm.mbarrier.arrive
// CHECK: scf.while
// CHECK: nvvm.cp.async.shared.global
// CHECK: llvm.atomicrmw add %[[COUNTER:[0-9a-z_]+]], %c1_i32 syncscope("device") monotonic : !llvm.ptr<1>, i32
// CHECK: nvvm.mbarrier.try_wait
// CHECK: llvm.store %{{.*}} : i32, !llvm.ptr<3>
// CHECK: nvvm.mbarrier.arrive
// CHECK: arith.cmpi eq
// CHECK: llvm.atomicrmw add %[[COUNTER]], %{{.*}} syncscope("device") monotonic
// CHECK: nvvm.setmaxregister increase
// CHECK: scf.while
// CHECK: nvvm.wgmma.mma_async
// CHECK: nvvm.stmatrix
// CHECK-NOT: llvm.atomicrmw
// CHECK-NOT: nvvm.mbarrier.try_wait
// CHECK: llvm.load %{{.*}} : !llvm.ptr<3> -> i32
tile.kernel @dynamic_scheduler(%x: memref<?x64xbf16>, %w: memref<8x128x64xbf16>, %o: memref<9xi32>, %s: memref<?xi32>,
    %y: memref<?x128xbf16>, %c: memref<1xi32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<8x128x64xbf16>) offsets(%o : memref<9xi32>)
      source(%s : memref<?xi32>) schedule(tile_counter = %c : memref<1xi32>) outs(%y : memref<?x128xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4, dynamic_scheduler>}
  tile.return
}

// -----

// With `rows` a group's tiles are traversed in raster groups of as many as fit (40 rows are two tiles of 16), with all
// five N tiles in each. All roles compute tiles in this way.
// CHECK-LABEL: func.func @raster_groups
// CHECK: nvvm.setmaxregister decrease
// CHECK: %[[TILES:.*]] = arith.subi
// CHECK: %[[IN_GROUP:.*]] = arith.subi %{{.*}}, %{{.*}} : i32
// CHECK: %[[BAND:.*]] = arith.divui %[[IN_GROUP]], %c10_i32
// CHECK: %[[IN_BAND:.*]] = arith.remui %[[IN_GROUP]], %c10_i32
// CHECK: %[[FIRST:.*]] = arith.muli %[[BAND]], %c2_i32
// CHECK: %[[LEFT:.*]] = arith.subi %[[TILES]], %[[FIRST]]
// CHECK: %[[OWN:.*]] = arith.minsi %[[LEFT]], %c2_i32
// CHECK: arith.divui %[[IN_BAND]], %[[OWN]]
// CHECK: arith.remui %[[IN_BAND]], %[[OWN]]
// Each round of the CTAs starts at another tile of the raster group.
// CHECK: %[[TILE:.*]] = arith.remui %{{.*}}, %[[OWN]]
// CHECK: %[[IN_ALL:.*]] = arith.addi %[[FIRST]], %[[TILE]]
// CHECK: arith.muli %[[IN_ALL]], %
// CHECK: arith.divui %{{.*}}, %c10_i32
// CHECK: nvvm.setmaxregister increase
// CHECK: arith.divui %{{.*}}, %c10_i32
tile.kernel @raster_groups(%x: memref<?x64xbf16>, %w: memref<4x320x64xbf16>, %o: memref<5xi32>, %y: memref<?x320xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<4x320x64xbf16>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x320xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4, l2_rows = 40>}
  tile.return
}

// -----

// CHECK-LABEL: func.func @one_raster_group
// CHECK: nvvm.setmaxregister decrease
// CHECK-NOT: %c10_i32
tile.kernel @one_raster_group(%x: memref<?x64xbf16>, %w: memref<4x320x64xbf16>, %o: memref<5xi32>, %y: memref<?x320xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<4x320x64xbf16>) offsets(%o : memref<5xi32>)
      outs(%y : memref<?x320xbf16>)
      {config = #tile.sm90_gemm<block_m = [16], block_n = 64, block_k = 64, stages = 4>}
  tile.return
}
