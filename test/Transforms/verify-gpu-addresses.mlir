// RUN: moe-opt %s --pass-pipeline='builtin.module(llvm.func(verify-gpu-addresses))' --split-input-file --verify-diagnostics

// A row index, which fits 32 bits, times a pitch in 64 bits.
llvm.func @good(%x: !llvm.ptr<1>, %row: i32, %t: i64) attributes {nvvm.kernel} {
  %pitch = arith.constant 2048 : i64
  %wide = arith.extsi %row : i32 to i64
  %offset = arith.muli %wide, %pitch : i64
  %p = llvm.getelementptr %x[%offset] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, bf16
  llvm.return
}

// -----

llvm.func @widened_late(%x: !llvm.ptr<1>, %row: i32, %t: i64) attributes {nvvm.kernel} {
  %pitch = arith.constant 2048 : i32
  // expected-error@+1 {{is part of an offset into global memory and may need more than the 32 bits that it keeps; extend the factors to 64 bits before the multiplication}}
  %offset = arith.muli %row, %pitch : i32
  %wide = arith.extsi %offset : i32 to i64
  // expected-note@+1 {{the offset is used here, by 'llvm.getelementptr'}}
  %p = llvm.getelementptr %x[%wide] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, bf16
  llvm.return
}

// -----

// A factor for the bytes of an element is not a pitch; the multiplication before it has one.
llvm.func @scaled(%x: !llvm.ptr, %row: i32, %t: i64) attributes {nvvm.kernel} {
  %pitch = arith.constant 2048 : i32
  %bytes = arith.constant 2 : i64
  // expected-error@+1 {{the 32 bits that it keeps}}
  %offset = arith.muli %row, %pitch : i32
  %wide = arith.extui %offset : i32 to i64
  %scaled = arith.muli %wide, %bytes : i64
  // expected-note@+1 {{the offset is used here}}
  %p = llvm.getelementptr %x[%scaled] : (!llvm.ptr, i64) -> !llvm.ptr, i8
  llvm.return
}

// -----

// As an offset in elements, the same multiplication has a pitch.
llvm.func @few_columns(%x: !llvm.ptr<1>, %tile: i32, %t: i64) attributes {nvvm.kernel} {
  %rows = arith.constant 128 : i32
  %pitch = arith.constant 2 : i64
  %row = arith.muli %tile, %rows : i32
  %wide = arith.extui %row : i32 to i64
  %offset = arith.muli %wide, %pitch : i64
  %p = llvm.getelementptr %x[%offset] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, bf16
  llvm.return
}

// -----

llvm.func @narrow_index(%x: !llvm.ptr<1>, %row: i32, %t: i64) attributes {nvvm.kernel} {
  %shift = llvm.mlir.constant(11 : i32) : i32
  // expected-error@+1 {{the 32 bits that it keeps}}
  %offset = llvm.shl %row, %shift : i32
  // expected-note@+1 {{the offset is used here}}
  %p = llvm.getelementptr %x[%offset] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, bf16
  llvm.return
}

// -----

// A multiplication in 64 bits, truncated to 32.
llvm.func @truncated(%x: !llvm.ptr<1>, %row: i64, %t: i64) attributes {nvvm.kernel} {
  %pitch = arith.constant 2048 : i64
  // expected-error@+1 {{the 32 bits that it keeps}}
  %offset = arith.muli %row, %pitch : i64
  %narrow = arith.trunci %offset : i64 to i32
  %wide = arith.extsi %narrow : i32 to i64
  // expected-note@+1 {{the offset is used here}}
  %p = llvm.getelementptr %x[%wide] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, bf16
  llvm.return
}

// -----

// The offset is carried by a loop.
llvm.func @carried(%x: !llvm.ptr<1>, %row: i32, %t: i64) attributes {nvvm.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.index_cast %t : i64 to index
  %pitch = arith.constant 2048 : i32
  // expected-error@+1 {{the 32 bits that it keeps}}
  %first = arith.muli %row, %pitch : i32
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%offset = %first) -> (i32) {
    %wide = arith.extsi %offset : i32 to i64
    // expected-note@+1 {{the offset is used here}}
    %p = llvm.getelementptr %x[%wide] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, bf16
    scf.yield %offset : i32
  }
  llvm.return
}

// -----

// Ranges exclude overflow: thread indices, loops with constant bounds, counts of bits, remainders. Operations with
// overflow flags and shared memory are not checked.
llvm.func @bounded(%x: !llvm.ptr<1>, %s: !llvm.ptr<3>, %n_tile: i32, %t: i64) attributes {nvvm.kernel} {
  %thread = nvvm.read.ptx.sreg.tid.x : i32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c100 = arith.constant 100 : index
  %c16 = arith.constant 16 : i32
  %c128 = arith.constant 128 : i32
  %all = arith.constant -1 : i32
  %own = arith.muli %thread, %c16 : i32
  %other = nvvm.shfl.sync idx %all, %own, %c16, %c128 : i32 -> i32
  %double = arith.muli %other, %c16 : i32
  %bits = math.ctpop %n_tile : i32
  %lanes = arith.muli %bits, %c16 : i32
  %ballot = arith.extui %lanes : i32 to i64
  %o = llvm.getelementptr %x[%ballot] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
  scf.for %i = %c0 to %c100 step %c1 {
    %step = arith.index_cast %i : index to i32
    %chunk = arith.muli %step, %c128 : i32
    %sum = arith.addi %chunk, %double : i32
    %wide = arith.extui %sum : i32 to i64
    %p = llvm.getelementptr %x[%wide] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, bf16
  }
  %column = arith.muli %n_tile, %c128 overflow<nsw> : i32
  %wide = arith.extsi %column : i32 to i64
  %p = llvm.getelementptr %x[%wide] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, bf16
  %stage = arith.muli %n_tile, %c128 : i32
  %q = llvm.getelementptr %s[%stage] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
  llvm.return
}

// -----

// Row indices of a memref are multiplied by strides later, in 64 bits; column indices are added.
llvm.func @memref(%x: !llvm.ptr<1>, %i: i32, %t: i64) attributes {nvvm.kernel} {
  %m = builtin.unrealized_conversion_cast %x : !llvm.ptr<1> to memref<?x?xf32>
  %pitch = arith.constant 2048 : i32
  // expected-error@+1 {{the 32 bits that it keeps}}
  %number = arith.muli %i, %pitch : i32
  %row = arith.index_cast %number : i32 to index
  %c0 = arith.constant 0 : index
  %0 = memref.load %m[%row, %c0] : memref<?x?xf32>
  // expected-note@+1 {{the offset is used here, by 'memref.load'}}
  %1 = memref.load %m[%c0, %row] : memref<?x?xf32>
  llvm.return
}
