// If no schedule can run an op, the message has the reason of each.
// RUN: not moe-opt %s --tile-assign-config=target=sm_90a 2>&1 | FileCheck %s

// CHECK: op cannot run as #tile.sm90_gemm<{{.*}}>: tensor cores multiply {{.*}}; sm80.gemm dequantizes other operands; nor as
// CHECK-SAME: {{^}} #tile.sm80_gemm<{{[^>]*}}>: a row has 24 4-bit elements; give a multiple of 32; nor as
// CHECK-SAME: {{^}} #tile.gpu_gemv<{{[^>]*}}>: the gemm has quantized operands; only elements of 16 and 32 bits are supported{{$}}
tile.kernel @k(%x: memref<?x24xbf16>, %w: memref<64x12xi8>, %b: memref<64x1xf32>, %y: memref<?x64xbf16>, %t: i64) {
  tile.gemm tokens(%t) ins(%x, %w : memref<?x24xbf16>, memref<64x12xi8>) weight_scale(%b : memref<64x1xf32>)
      outs(%y : memref<?x64xbf16>)
      {weight_quant = #moe.quant<storage = i4, scale = f32, granularity = channel, packing = pairs>, strategy = #moe.strategy<dequantize>}
  tile.return
}
