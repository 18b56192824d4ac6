// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_90a --cse | FileCheck %s

// Rows on M, 64 for each consumer: four lanes hold a row, and warps do not wait for others.
// CHECK-LABEL: func.func @no_swap_ab
// CHECK: nvvm.setmaxregister increase
// CHECK-NOT: nvvm.barrier
// CHECK: math.fma
// A stage is released; then the warp has read the previous tile's results from the buffer.
// CHECK: nvvm.bar.warp.sync
// CHECK: nvvm.bar.warp.sync
// CHECK-NEXT: nvvm.vote.sync ballot
// Results are rounded, two in a register.
// CHECK: arith.truncf {{.*}} : vector<8xf32> to vector<8xbf16>
// CHECK-NEXT: vector.bitcast {{.*}} : vector<8xbf16> to vector<4xi32>
// CHECK: arith.maximumf {{.*}} : vector<2xbf16>
// CHECK: nvvm.shfl.sync bfly
// CHECK: nvvm.shfl.sync bfly
// CHECK-NOT: nvvm.shfl.sync
// The scale, by a constant, and its reciprocal.
// CHECK: arith.cmpf oeq
// CHECK: nvvm.rcp.approx.ftz.f
// CHECK: nvvm.convert.f32x2.to.f8x2
// Two quantized values of a row.
// CHECK: llvm.store {{.*}} {alignment = 2 : i64} : i16, !llvm.ptr<3>
// CHECK: nvvm.bar.warp.sync
// 16 quantized values of a row.
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xi32>
// CHECK-NEXT: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
// CHECK-NOT: nvvm.bar.warp.sync
// CHECK: llvm.store {{.*}} {alignment = 4 : i64} : f32, !llvm.ptr<1>
// CHECK-NOT: nvvm.stmatrix
tile.kernel @no_swap_ab(%x: memref<?x256xf8E4M3FN>, %w: memref<6x256x256xf8E4M3FN>, %xs: memref<?x2xf32>,
    %ws: memref<6x2x2xf32>, %o: memref<7xi32>, %y: memref<?x128xf8E4M3FN>, %ys: memref<?x1xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<6x256x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<6x2x2xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x128xf8E4M3FN>) result_scale(%ys : memref<?x1xf32>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %p = arith.mulf %g, %u : f32
        tile.yield %p : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16,
         config = #tile.sm90_gemm<block_m = [128], block_n = 128, block_k = 128, stages = 4, map_rows, no_swap_ab>}
  tile.return
}

// -----

// In tiles of 64 rows, consumers synchronize to share magnitudes; after that all have read the previous tile's results.
// In tiles of 128 rows a warp uses another part of the buffer than in tiles of 64, so a consumer's warps synchronize.
// CHECK-LABEL: func.func @two_block_m
// CHECK: nvvm.setmaxregister increase
// CHECK-NOT: number_of_threads = %c128_i32
// CHECK-COUNT-2: nvvm.barrier id = %{{.*}} number_of_threads = %c256_i32
// CHECK-NOT: nvvm.barrier
// CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %c128_i32
// CHECK-NEXT: nvvm.vote.sync ballot
// CHECK-NOT: nvvm.barrier
tile.kernel @two_block_m(%x: memref<?x256xf8E4M3FN>, %w: memref<6x256x256xf8E4M3FN>, %xs: memref<?x2xf32>,
    %ws: memref<6x2x2xf32>, %o: memref<7xi32>, %y: memref<?x128xf8E4M3FN>, %ys: memref<?x1xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<6x256x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<6x2x2xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x128xf8E4M3FN>) result_scale(%ys : memref<?x1xf32>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %p = arith.mulf %g, %u : f32
        tile.yield %p : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16,
         config = #tile.sm90_gemm<block_m = [64, 128], block_n = 128, block_k = 128, stages = 4, map_rows, no_swap_ab>}
  tile.return
}

// -----

// Both consumers hold columns of all rows: magnitudes are shared, one thread computes the divisor of a row, all read
// it.
// CHECK-LABEL: func.func @halves
// CHECK: nvvm.setmaxregister increase
// CHECK: nvvm.shfl.sync bfly
// CHECK: llvm.store {{.*}} {alignment = 2 : i64} : i16, !llvm.ptr<3>
// CHECK: nvvm.barrier id
// CHECK: nvvm.vote.sync ballot
// CHECK-COUNT-2: llvm.load {{.*}} {alignment = 2 : i64} : !llvm.ptr<3> -> f16
// CHECK-NOT: -> f16
// CHECK: nvvm.rcp.approx.ftz.f
// CHECK: llvm.store {{.*}} {alignment = 8 : i64} : vector<2xf32>, !llvm.ptr<3>
// CHECK: llvm.store {{.*}} {alignment = 4 : i64} : f32, !llvm.ptr<1>
// CHECK: nvvm.barrier id
// CHECK: nvvm.vote.sync ballot
// CHECK-COUNT-2: llvm.load {{.*}} {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xf32>
// CHECK: nvvm.convert.f32x2.to.f8x2
// CHECK-NOT: nvvm.barrier id
tile.kernel @halves(%x: memref<?x256xf8E4M3FN>, %w: memref<6x256x256xf8E4M3FN>, %xs: memref<?x2xf32>,
    %ws: memref<6x2x2xf32>, %o: memref<7xi32>, %y: memref<?x256xf8E4M3FN>, %ys: memref<?x2xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<6x256x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<6x2x2xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x256xf8E4M3FN>) result_scale(%ys : memref<?x2xf32>)
      {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = f16,
       config = #tile.sm90_gemm<block_m = [64], block_n = 128, block_k = 128, stages = 4, map_rows, no_swap_ab>}
  tile.return
}

// -----

// Weights on M: lanes reduce eight octets of rows, and eight warps hold columns of a row.
// CHECK-LABEL: func.func @weights_on_m
// CHECK: nvvm.setmaxregister increase
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// CHECK-NOT: nvvm.shfl.sync
// CHECK: llvm.store {{.*}} {alignment = 4 : i64} : i32, !llvm.ptr<3>
// CHECK: nvvm.barrier id
// CHECK-COUNT-8: llvm.load {{.*}} {alignment = 2 : i64} : !llvm.ptr<3> -> bf16
// CHECK-NOT: -> bf16
// CHECK: llvm.store {{.*}} {alignment = 8 : i64} : vector<2xf32>, !llvm.ptr<3>
// CHECK: nvvm.barrier id
// Two rows' divisors.
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xf32>
// CHECK-COUNT-2: nvvm.convert.f32x2.to.f8x2
// A neighbouring lane holds the next column.
// CHECK: nvvm.shfl.sync bfly
// CHECK-COUNT-2: llvm.store {{.*}} {alignment = 2 : i64} : i16, !llvm.ptr<3>
// 16 quantized values of a row, written by two warps.
// CHECK: nvvm.barrier id = {{.*}} number_of_threads = %c128_i32
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xi32>
// CHECK-NEXT: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
// CHECK-NOT: number_of_threads = %c256_i32
tile.kernel @weights_on_m(%x: memref<?x256xf8E4M3FN>, %w: memref<6x256x256xf8E4M3FN>, %xs: memref<?x2xf32>,
    %ws: memref<6x2x2xf32>, %o: memref<7xi32>, %y: memref<?x128xf8E4M3FN>, %ys: memref<?x1xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf8E4M3FN>, memref<6x256x256xf8E4M3FN>)
      input_scale(%xs : memref<?x2xf32>) weight_scale(%ws : memref<6x2x2xf32>)
      offsets(%o : memref<7xi32>) outs(%y : memref<?x128xf8E4M3FN>) result_scale(%ys : memref<?x1xf32>) epilogue {
      ^bb0(%g: f32, %u: f32):
        %p = arith.mulf %g, %u : f32
        tile.yield %p : f32
      } {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, layout = #moe.weight_layout<order = gate_up>, result_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, rounded_to = bf16,
         config = #tile.sm90_gemm<block_m = [16], block_n = 128, block_k = 128, stages = 4, map_rows>}
  tile.return
}
