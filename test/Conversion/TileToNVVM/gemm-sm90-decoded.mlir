// Weights of 4 bits that are decoded in registers, on Hopper: to e4m3, and to bf16.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_90a --cse | FileCheck %s

// Magnitudes of e2m1 select bytes of a table, to which the group's step was added; signs are added behind the wait. A
// packed tile has two wgmmas, with rows in the 64-byte swizzle (2^63).
// CHECK-LABEL: func.func @steps
// CHECK:       nvvm.setmaxregister increase
// CHECK:       %[[S:.*]] = nvvm.prmt
// CHECK:       arith.addi %[[S]], %c336594944_i32
// CHECK:       arith.addi %{{.*}}, %c606084120_i32
// CHECK:       %[[M:.*]] = arith.andi %{{.*}}, %c2004318071_i32
// CHECK:       nvvm.prmt
// CHECK:       arith.shrui %[[M]]
// CHECK:       nvvm.prmt
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 1
// CHECK:       %[[SIGNS:.*]] = arith.andi %{{.*}}, %c-2139062144_i32
// CHECK:       arith.ori %{{.*}}, %[[SIGNS]]
// CHECK:       nvvm.wgmma.fence.aligned
// CHECK:       arith.ori %{{.*}}, %c-9223371899415822336_i64
// CHECK:       llvm.inline_asm {{.*}}wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3
// CHECK-NEXT:  nvvm.wgmma.commit.group.sync.aligned
// With two consumers, one wgmma runs while operands of the next are made.
// CHECK-NEXT:  nvvm.wgmma.wait.group.sync.aligned 1
// CHECK:       llvm.inline_asm {{.*}}wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3
// CHECK-NEXT:  nvvm.wgmma.commit.group.sync.aligned
#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>
tile.kernel @steps(%x: memref<?x256xf8E4M3FN>, %xs: memref<?x1xf32>, %w: memref<6x128x128xi8>, %ws: memref<6x128x8xi8>,
    %r: memref<6x128xf32>, %o: memref<7xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<6x128x128xi8>) input_scale(%xs : memref<?x1xf32>)
      weight_scale(%ws : memref<6x128x8xi8>) weight_global_scale(%r : memref<6x128xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x128xbf16>)
      {input_quant = #rows, weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = prepacked_e4m3, second_scale = f32>,
       strategy = #moe.strategy<prepack>, config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

// Sums of an int4 group start anew in the registers of the previous sums, which have been added, times their scale.
// CHECK-LABEL: func.func @groups
// CHECK:       nvvm.setmaxregister increase
// CHECK:       llvm.intr.fshr
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 0
// CHECK:       math.fma
// CHECK:       llvm.inline_asm {{.*}}wgmma.fence.sync.aligned;{{.*}}wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3
// A group of 128 has two packed tiles: wgmmas of the second one accumulate.
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 0
// CHECK-NOT:   math.fma
// CHECK:       nvvm.wgmma.fence.aligned
// CHECK-NOT:   math.fma
// CHECK:       scf.yield
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 0
// CHECK:       math.fma
#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>
tile.kernel @groups(%x: memref<?x256xf8E4M3FN>, %xs: memref<?x1xf32>, %w: memref<6x128x128xi8>, %ws: memref<6x128x4xi8>,
    %r: memref<6x128xf32>, %o: memref<7xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<6x128x128xi8>) input_scale(%xs : memref<?x1xf32>)
      weight_scale(%ws : memref<6x128x4xi8>) weight_global_scale(%r : memref<6x128xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x128xbf16>)
      {input_quant = #rows, weight_quant = #moe.quant<storage = i4, scale = bf16, granularity = group, block = [1, 128], packing = prepacked_e4m3, second_scale = f32>,
       strategy = #moe.strategy<prepack>, config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 128, stages = 4>}
  tile.return
}

// -----

// Quantized values of a stage are one box of a tensor map, scales another one. A tile of 8 rows is multiplied by warps,
// which load its rows themselves and wait for no wgmma; larger tiles by the warpgroup.
// CHECK-LABEL: func.func @halves
// CHECK:       nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK:       nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK-NOT:   nvvm.cp.async.bulk.shared.cluster.global
// CHECK:       nvvm.setmaxregister increase
// CHECK-NOT:   nvvm.wgmma.wait
// CHECK:       vector.shuffle {{.*}} [0, 0] : vector<2xbf16>
// CHECK:       nvvm.ldmatrix
// CHECK-COUNT-2: nvvm.mma.sync
// CHECK:       nvvm.ldmatrix
// CHECK-COUNT-2: nvvm.mma.sync
// CHECK-NOT:   nvvm.mma.sync
// Two wgmmas of a packed tile, with half of its fragments, run while the other half is made. The previous stage is
// released when the first of these run, since all wgmmas of that stage have ended then.
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 1
// CHECK-COUNT-8: math.fma {{.*}} : vector<2xbf16>
// CHECK-NOT:   math.fma
// CHECK:       nvvm.wgmma.fence.aligned
// CHECK-COUNT-2: llvm.inline_asm {{.*}}wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16
// CHECK-NEXT:  nvvm.wgmma.commit.group.sync.aligned
// CHECK-NOT:   nvvm.mbarrier.arrive
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 1
// CHECK-COUNT-8: math.fma {{.*}} : vector<2xbf16>
// CHECK-NOT:   math.fma
// CHECK-COUNT-2: llvm.inline_asm {{.*}}wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16
// CHECK-NEXT:  nvvm.wgmma.commit.group.sync.aligned
// CHECK:       nvvm.mbarrier.arrive
// CHECK:       scf.yield
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 0
tile.kernel @halves(%x: memref<?x256xbf16>, %w: memref<6x128x128xi8>, %ws: memref<6x128x8xi8>,
    %r: memref<6x128xf32>, %o: memref<7xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<6x128x128xi8>)
      weight_scale(%ws : memref<6x128x8xi8>) weight_global_scale(%r : memref<6x128xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x128xbf16>)
      {weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = prepacked, second_scale = f32>,
       strategy = #moe.strategy<prepack>, config = #tile.sm90_gemm<block_m = [8, 16], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

// With three consumers, all wgmmas of a packed tile are one group: those of the other two run while one dequantizes.
// CHECK-LABEL: func.func @three_consumers
// CHECK:       nvvm.setmaxregister increase
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 0
// CHECK-COUNT-4: llvm.inline_asm {{.*}}wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16
// CHECK-NEXT:  nvvm.wgmma.commit.group.sync.aligned
// CHECK:       nvvm.mbarrier.arrive
tile.kernel @three_consumers(%x: memref<?x256xbf16>, %w: memref<6x192x128xi8>, %ws: memref<6x192x8xi8>,
    %r: memref<6x192xf32>, %o: memref<7xi32>, %y: memref<?x192xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<6x192x128xi8>)
      weight_scale(%ws : memref<6x192x8xi8>) weight_global_scale(%r : memref<6x192xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x192xbf16>)
      {weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = prepacked, second_scale = f32>,
       strategy = #moe.strategy<prepack>, config = #tile.sm90_gemm<block_m = [16], block_n = 192, block_k = 64, stages = 4>}
  tile.return
}

// -----

// With minima, a zero point is subtracted ahead of the wait, and the rest is added behind it: first the value times the
// low part of the scale, then times its high part.
// CHECK-LABEL: func.func @minima
// CHECK:       nvvm.setmaxregister increase
// CHECK:       vector<8xi32>
// CHECK:       arith.subf {{.*}} : vector<2xbf16>
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 1
// CHECK:       %[[REST:.*]] = math.fma {{.*}} : vector<2xbf16>
// CHECK:       %[[WORD:.*]] = llvm.bitcast %[[REST]]
// CHECK:       %[[PAIR:.*]] = llvm.bitcast %[[WORD]]
// CHECK:       math.fma %{{.*}}, %{{.*}}, %[[PAIR]] : vector<2xbf16>
// CHECK:       llvm.inline_asm {{.*}}wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16
tile.kernel @minima(%x: memref<?x256xbf16>, %w: memref<6x128x128xi8>, %ws: memref<6x128x64xi8>,
    %r: memref<6x128xf32>, %o: memref<7xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<6x128x128xi8>)
      weight_scale(%ws : memref<6x128x64xi8>) weight_global_scale(%r : memref<6x128xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x128xbf16>)
      {weight_quant = #moe.quant<storage = i4, scale = f32, granularity = group, block = [1, 32], packing = prepacked, second_scale = f32, minimum = true>,
       strategy = #moe.strategy<prepack>, config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

// For f16 a minimum takes one fma with an f16 scale and rest; the scales with zero points and rests take three loads.
// CHECK-LABEL: func.func @minima_of_halves
// CHECK:       nvvm.setmaxregister increase
// CHECK:       alignment = 8 : i64} : !llvm.ptr<3> -> vector<6xi32>
// CHECK:       arith.subf {{.*}} : vector<2xf16>
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 1
// CHECK-COUNT-8: math.fma {{.*}} : vector<2xf16>
// CHECK-NOT:   math.fma
// CHECK:       llvm.inline_asm {{.*}}wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16
tile.kernel @minima_of_halves(%x: memref<?x256xf16>, %w: memref<6x128x128xi8>, %ws: memref<6x128x48xi8>,
    %r: memref<6x128xf32>, %o: memref<7xi32>, %y: memref<?x128xf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf16>, memref<6x128x128xi8>)
      weight_scale(%ws : memref<6x128x48xi8>) weight_global_scale(%r : memref<6x128xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x128xf16>)
      {weight_quant = #moe.quant<storage = i4, scale = f32, granularity = group, block = [1, 32], packing = prepacked_f16, second_scale = f32, minimum = true>,
       strategy = #moe.strategy<prepack>, config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

// Bits of e2m1 are shifted to the sign and the lowest exponent bits of an f16; a scale byte is the first bits of an
// f16.
// CHECK-LABEL: func.func @floats_of_halves
// CHECK:       nvvm.setmaxregister increase
// CHECK:       %[[BYTE:.*]] = arith.shli %{{.*}}, %c7_i32
// CHECK:       arith.andi %[[BYTE]], %c2139127680_i32
// CHECK:       arith.andi %[[CODES:.*]], %c-1912566272_i32
// CHECK:       %[[SECOND:.*]] = arith.shli %[[CODES]], %c3_i32
// CHECK:       arith.andi %[[SECOND]], %c-1912566272_i32
// CHECK:       %[[SIGNS:.*]] = arith.shli %[[CODES]], %c2_i32
// CHECK:       arith.andi %[[SIGNS]], %c-2147450880_i32
// CHECK:       %[[DIGITS:.*]] = arith.shli %[[CODES]], %c6_i32
// CHECK:       arith.andi %[[DIGITS]], %c234884608_i32
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 1
// CHECK:       math.fma {{.*}} : vector<2xf16>
// CHECK:       llvm.inline_asm {{.*}}wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16
tile.kernel @floats_of_halves(%x: memref<?x256xf16>, %w: memref<6x128x128xi8>, %ws: memref<6x128x8xi8>,
    %r: memref<6x128xf32>, %o: memref<7xi32>, %y: memref<?x128xf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf16>, memref<6x128x128xi8>)
      weight_scale(%ws : memref<6x128x8xi8>) weight_global_scale(%r : memref<6x128xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x128xf16>)
      {weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = prepacked_f16, second_scale = f32>,
       strategy = #moe.strategy<prepack>, config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

// For a code book all threads write all pairs of values, 32 copies each; a lane loads the pairs of its index bytes from
// its own copies.
// CHECK:       memref.global "private" constant @book_0 : memref<16xi32, 1 : i32> = dense<[49024, 48946, {{.*}}, 16185, 16256]>
// CHECK-LABEL: func.func @book
// CHECK:       scf.for %{{.*}} = %{{.*}} to %c2048 step %c384
// CHECK:         %[[HIGH:.*]] = arith.shli %{{.*}}, %c16_i32
// CHECK:         %[[PAIR:.*]] = arith.ori %{{.*}}, %[[HIGH]]
// CHECK:         vector.broadcast %[[PAIR]] : i32 to vector<4xi32>
// CHECK:         llvm.getelementptr %[[BOOK:[0-9]+]][
// CHECK:         llvm.store %{{.*}} : vector<4xi32>, !llvm.ptr<3>
// CHECK:       nvvm.barrier
// CHECK:       nvvm.setmaxregister increase
// CHECK:       %[[LANE:.*]] = arith.muli %{{.*}}, %c4_i32
// CHECK:       %[[STRIDES:.*]] = arith.andi %{{.*}}, %c32640_i32
// CHECK:       %[[OWN:.*]] = arith.ori %[[STRIDES]], %[[LANE]]
// CHECK:       %[[AT:.*]] = llvm.getelementptr %[[BOOK]][%[[OWN]]]
// CHECK:       llvm.load %[[AT]] {alignment = 4 : i64} : !llvm.ptr<3> -> i32
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 1
// CHECK:       math.fma {{.*}} : vector<2xbf16>
// CHECK:       llvm.inline_asm {{.*}}wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16
tile.kernel @book(%x: memref<?x256xbf16>, %w: memref<6x128x128xi8>, %ws: memref<6x128x16xi8>,
    %r: memref<6x128xf32>, %o: memref<7xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<6x128x128xi8>)
      weight_scale(%ws : memref<6x128x16xi8>) weight_global_scale(%r : memref<6x128xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x128xbf16>)
      {weight_quant = #moe.quant<storage = !moe.nf4, scale = f32, granularity = group, block = [1, 64], packing = prepacked, second_scale = f32>,
       strategy = #moe.strategy<prepack>, config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}

// -----

// With groups of 32 each wgmma starts new sums. Signs of e4m3 are inverted behind the wait, and power-of-two scales are
// shifted to the exponent of an f32.
// CHECK-LABEL: func.func @sums_of_products
// CHECK:       nvvm.setmaxregister increase
// CHECK:       %[[S:.*]] = arith.shli %[[SCALES:.*]], %c23_i32
// CHECK:       arith.andi %[[S]], %c2139095040_i32
// CHECK:       arith.shrui %[[SCALES]], %c1_i32
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 0
// CHECK:       math.fma
// CHECK:       arith.xori %{{.*}}, %c-2139062144_i32
// CHECK:       llvm.inline_asm {{.*}}wgmma.fence.sync.aligned;{{.*}}wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3
// CHECK-NEXT:  nvvm.wgmma.commit.group.sync.aligned
// CHECK:       nvvm.wgmma.wait.group.sync.aligned 0
// CHECK:       math.fma
// CHECK-NOT:   arith.xori
// CHECK:       llvm.inline_asm {{.*}}wgmma.fence.sync.aligned;{{.*}}wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3
// CHECK-NEXT:  nvvm.wgmma.commit.group.sync.aligned
#rows = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>
tile.kernel @sums_of_products(%x: memref<?x256xf8E4M3FN>, %xs: memref<?x1xf32>, %w: memref<6x128x256xi8>,
    %ws: memref<6x128x8xi8>, %r: memref<6x128xf32>, %o: memref<7xi32>, %y: memref<?x128xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<6x128x256xi8>) input_scale(%xs : memref<?x1xf32>)
      weight_scale(%ws : memref<6x128x8xi8>) weight_global_scale(%r : memref<6x128xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x128xbf16>)
      {input_quant = #rows, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = prepacked_e4m3, second_scale = f32>,
       strategy = #moe.strategy<prepack>, config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 64, stages = 4>}
  tile.return
}
