// RUN: moe-opt %s --split-input-file --cpu-kernel-entry --verify-diagnostics

func.func @dim(%x: memref<?x8xf32>, %tokens: i64, %cta: index) attributes {moec.kernel} {
  // expected-error@+1 {{reads an extent that a kernel does not have; derive it from the token count}}
  %0 = memref.dim %x, %cta : memref<?x8xf32>
  return
}

// -----

// expected-error@+1 {{a kernel takes row-major memrefs of which at most the first dimension is dynamic}}
func.func @inner(%x: memref<?x?xf32>, %tokens: i64, %cta: index) attributes {moec.kernel} {
  return
}

// -----

// expected-error@+1 {{a kernel takes row-major memrefs of which at most the first dimension is dynamic}}
func.func @strided(%x: memref<4x4xf32, strided<[8, 1]>>, %tokens: i64, %cta: index) attributes {moec.kernel} {
  return
}
