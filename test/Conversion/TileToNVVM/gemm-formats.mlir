// Weights of 4 and 8 bits that are decoded on their way to the tensor cores, with zero points and scales of few elements.
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_80 --convert-tile-to-nvvm=target=sm_80 --cse | FileCheck %s

// mxfp4: a lane has eight adjacent inputs in the order of the pairs of a word of weights. Scales are exponents, applied
// to sums of 32.
// CHECK-LABEL: func.func @mxfp4
// CHECK: scf.for
// CHECK: %[[BYTE:.*]] = llvm.load {{.*}} -> i8
// CHECK: arith.extui %[[BYTE]] : i8 to i32
// CHECK: arith.shli
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> vector<4xi32>
// CHECK: nvvm.prmt
// CHECK-NOT: nvvm.ldmatrix
// CHECK: llvm.load {{.*}} -> i32
// CHECK: math.fma {{.*}} : vector<2xbf16>
// CHECK: nvvm.mma.sync {{.*}}multiplicandBPtxType = #nvvm.mma_type<bf16>
// CHECK: scf.yield
// CHECK: math.fma {{.*}} : f32
tile.kernel @mxfp4(%x: memref<?x256xbf16>, %w: memref<4x96x128xi8>, %b: memref<4x96x8xf8E8M0FNU>, %o: memref<5xi32>,
    %y: memref<?x96xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<4x96x128xi8>)
      weight_scale(%b : memref<4x96x8xf8E8M0FNU>) offsets(%o : memref<5xi32>) outs(%y : memref<?x96xf32>)
      {weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>}
  tile.return
}

// -----

// nvfp4: scales of 16 multiply the elements, the global scale the sums of a row.
// CHECK-LABEL: func.func @nvfp4
// CHECK: scf.for
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> i8
// CHECK: %[[MOVED:.*]] = math.fma {{.*}} : vector<2xbf16>
// CHECK: nvvm.mma.sync
// CHECK: scf.yield
// CHECK-NOT: math.fma {{.*}} : f32
// CHECK: memref.load {{.*}} : memref<4x1xf32
// CHECK: arith.mulf {{.*}} : vector<4xf32>
tile.kernel @nvfp4(%x: memref<?x256xbf16>, %w: memref<4x96x128xi8>, %b: memref<4x96x16xf8E4M3FN>, %e: memref<4x1xf32>,
    %o: memref<5xi32>, %y: memref<?x96xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<4x96x128xi8>)
      weight_scale(%b : memref<4x96x16xf8E4M3FN>) weight_global_scale(%e : memref<4x1xf32>)
      offsets(%o : memref<5xi32>) outs(%y : memref<?x96xf32>)
      {weight_quant = #moe.quant<storage = f4E2M1FN, scale = f8E4M3FN, granularity = group, block = [1, 16], packing = pairs, second_scale = f32>}
  tile.return
}

// -----

// int8 with zero points next to f16: bytes become the low bits of 1024, and the zero point of the lane's row is
// subtracted.
// CHECK-LABEL: func.func @zero_points
// CHECK: scf.for
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> i8
// CHECK: arith.sitofp {{.*}} : i32 to f32
// CHECK: nvvm.ldmatrix
// CHECK: nvvm.prmt
// CHECK: math.fma {{.*}} : vector<2xf16>
// CHECK: math.fma {{.*}} : vector<2xf16>
// CHECK: nvvm.mma.sync
tile.kernel @zero_points(%x: memref<?x256xf16>, %w: memref<96x256xi8>, %b: memref<96x1xf16>, %z: memref<96x1xi8>,
    %y: memref<?x96xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xf16>, memref<96x256xi8>)
      weight_scale(%b : memref<96x1xf16>) weight_zero_point(%z : memref<96x1xi8>) outs(%y : memref<?x96xf32>)
      {weight_quant = #moe.quant<storage = i8, scale = f16, granularity = channel, zero_point = true>}
  tile.return
}

// -----

// int4 with minima, as in q4_K: a multiplication by ones sums the rows of a part, and the sums are multiplied by the
// minima, which have the same distance from the scales for all columns.
// CHECK-LABEL: func.func @minima
// CHECK: llvm.ptrtoint
// CHECK: arith.subi {{.*}} : i64
// CHECK: scf.for
// CHECK: %[[MINIMUM:.*]] = llvm.load {{.*}} -> f32
// CHECK: arith.negf {{.*}} : f32
// CHECK: scf.for
// CHECK: %[[ONES:.*]] = arith.constant 1065369472 : i32
// CHECK: nvvm.mma.sync {{.*}}B[%[[ONES]], %[[ONES]]]
// CHECK: nvvm.mma.sync
// CHECK: scf.yield
// CHECK: math.fma {{.*}} : f32
tile.kernel @minima(%x: memref<?x256xbf16>, %w: memref<4x96x128xi8>, %b: memref<4x96x8xf32>, %m: memref<4x96x8xf32>,
    %o: memref<5xi32>, %y: memref<?x96xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<4x96x128xi8>)
      weight_scale(%b : memref<4x96x8xf32>) weight_zero_point(%m : memref<4x96x8xf32>)
      offsets(%o : memref<5xi32>) outs(%y : memref<?x96xf32>)
      {weight_quant = #moe.quant<storage = i4, scale = f32, granularity = group, block = [1, 32], packing = pairs, minimum = true>}
  tile.return
}

// -----

// int8 in groups of 16, as in q6_K: a part is one of the two instructions that are dequantized at once.
// CHECK-LABEL: func.func @few
// CHECK: scf.for
// CHECK: scf.for
// CHECK: nvvm.ldmatrix
// CHECK: nvvm.mma.sync
// CHECK: scf.yield
// CHECK: math.fma {{.*}} : f32
tile.kernel @few(%x: memref<?x256xbf16>, %w: memref<96x256xi8>, %b: memref<96x16xf32>, %y: memref<?x96xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xbf16>, memref<96x256xi8>) weight_scale(%b : memref<96x16xf32>)
      outs(%y : memref<?x96xf32>)
      {weight_quant = #moe.quant<storage = i8, scale = f32, granularity = group, block = [1, 16]>}
  tile.return
}

// -----

// Both operands are int8, which f16 represents exactly.
// CHECK-LABEL: func.func @int8
// CHECK: nvvm.mma.sync {{.*}}(vector<2xf16>, vector<2xf16>, f32)
tile.kernel @int8(%x: memref<?x256xi8>, %w: memref<96x256xi8>, %a: memref<?x1xf32>, %b: memref<96x1xf32>,
    %y: memref<?x96xf32>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x256xi8>, memref<96x256xi8>) input_scale(%a : memref<?x1xf32>)
      weight_scale(%b : memref<96x1xf32>) outs(%y : memref<?x96xf32>)
      {input_quant = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>, weight_quant = #moe.quant<storage = i8, scale = f32, granularity = channel>}
  tile.return
}

// -----

// Rows as int8: rounded to integers from -127 to 127.
// CHECK-LABEL: func.func @quantize
// CHECK: llvm.call_intrinsic "llvm.nvvm.f2i.rn"
// CHECK: arith.minsi
// CHECK: arith.maxsi
tile.kernel @quantize(%x: memref<?x256xbf16>, %q: memref<?x256xi8>, %s: memref<?x1xf32>, %t: i64) {
  tile.quantize <storage = i8, scale = f32, granularity = token, dynamic = true> tokens(%t) ins(%x : memref<?x256xbf16>)
      outs(%q, %s : memref<?x256xi8>, memref<?x1xf32>)
  tile.return
}
