// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_100a --convert-tile-to-nvvm=target=sm_100a --cse | FileCheck %s

#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, power_of_two = true>
#weights = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = [1, 32]>

// CHECK-LABEL: func.func @gate_up
// The thread that copies weights and the 128 that copy the rest fill a stage. One commit empties it, another completes
// sums, which 128 threads read.
// CHECK: nvvm.mbarrier.init {{.*}}, %c129_i32
// CHECK: nvvm.mbarrier.init {{.*}}, %c1_i32
// CHECK: nvvm.mbarrier.init {{.*}}, %c1_i32
// CHECK: nvvm.mbarrier.init {{.*}}, %c128_i32
// Tensor memory is allocated behind the wait for the previous launch.
// CHECK: nvvm.griddepcontrol wait
// CHECK: nvvm.tcgen05.alloc {{.*}}, %c512_i32
// CHECK: nvvm.tcgen05.relinquish_alloc_permit
// CHECK: nvvm.tcgen05.fence <before>
// CHECK: nvvm.barrier0
// CHECK: nvvm.tcgen05.fence <after>

// The warps that read sums: gate and up of 16 rows, a column per thread.
// CHECK: nvvm.mbarrier.try_wait
// CHECK: nvvm.tcgen05.fence <after>
// CHECK: scf.for
// CHECK: nvvm.tcgen05.ld {{.*}} : vector<16xi32>
// CHECK: nvvm.tcgen05.wait <load>
// CHECK: nvvm.tcgen05.ld {{.*}} : vector<16xi32>
// CHECK: nvvm.tcgen05.wait <load>
// CHECK-COUNT-16: memref.store {{.*}}xbf16>
// CHECK-NOT: memref.store
// CHECK: nvvm.tcgen05.fence <before>
// CHECK: nvvm.mbarrier.arrive

// The warps that copy rows, the scale words of two blocks, and the exponents of row scales.
// CHECK-COUNT-7: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK-NOT: , 16, cache
// CHECK-COUNT-2: nvvm.cp.async.shared.global {{.*}}, 4, cache = ca
// CHECK-NOT: , 4, cache
// CHECK: llvm.store
// CHECK: nvvm.cp.async.commit.group
// CHECK: nvvm.cp.async.wait.group 2
// CHECK: nvvm.fence.proxy
// CHECK: nvvm.mbarrier.arrive

// The thread that copies weights: a box of gate and one of up.
// CHECK: nvvm.mbarrier.arrive.expect_tx {{.*}}, %c32768_i32
// CHECK-COUNT-2: nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK-NOT: nvvm.cp.async.bulk.tensor

// The thread that multiplies: scales of gate, up and rows, then four MMAs of each block.
// CHECK: nvvm.mbarrier.try_wait
// CHECK: nvvm.mbarrier.try_wait
// CHECK: nvvm.tcgen05.fence <after>
// CHECK-COUNT-3: nvvm.tcgen05.cp
// CHECK-COUNT-8: tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X
// CHECK-NOT: tcgen05.mma
// CHECK: nvvm.tcgen05.commit
// CHECK: nvvm.tcgen05.commit

// CHECK: nvvm.barrier0
// CHECK: nvvm.tcgen05.dealloc
tile.kernel @gate_up(%x: memref<?x256xf8E4M3FN>, %w: memref<6x256x256xf8E4M3FN>, %a: memref<?x8xf32>,
    %b: memref<6x256x8xf8E8M0FNU>, %o: memref<7xi32>, %s: memref<?xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<6x256x256xf8E4M3FN>)
      input_scale(%a : memref<?x8xf32>) weight_scale(%b : memref<6x256x8xf8E8M0FNU>)
      offsets(%o : memref<7xi32>) source(%s : memref<?xi32>) outs(%y : memref<?x128xbf16>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %1 = arith.mulf %g, %u : f32
        tile.yield %1 : f32
      } {layout = #moe.weight_layout<order = gate_up>, input_quant = #rows, weight_quant = #weights}
  tile.return
}

// -----

#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, power_of_two = true>
#halves = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>

// Threads copy weights of 4 bits, 8 bytes of each of 8 rows of two blocks.
// CHECK-LABEL: func.func @four_bits
// CHECK: nvvm.mbarrier.init {{.*}}, %c128_i32
// CHECK-COUNT-16: nvvm.cp.async.shared.global {{.*}}, 8, cache = ca
// CHECK-NOT: , 8, cache
// CHECK-NOT: nvvm.cp.async.bulk.tensor
// CHECK: tcgen05.mma
tile.kernel @four_bits(%x: memref<?x256xf8E4M3FN>, %w: memref<6x512x128xi8>, %a: memref<?x8xf32>,
    %b: memref<6x512x8xf8E8M0FNU>, %o: memref<7xi32>, %y: memref<?x512xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<6x512x128xi8>)
      input_scale(%a : memref<?x8xf32>) weight_scale(%b : memref<6x512x8xf8E8M0FNU>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x512xbf16>) {input_quant = #rows, weight_quant = #halves}
  tile.return
}
