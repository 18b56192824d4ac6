// RUN: moe-opt %s --pass-pipeline='builtin.module(llvm.func(verify-gpu-dependents))' --split-input-file --verify-diagnostics

llvm.mlir.global private constant @table(dense<[1, 2]> : tensor<2xi32>) {addr_space = 1 : i32} : !llvm.array<2 x i32>
llvm.mlir.global external @shared() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// Reads of memory that no launch writes may precede the wait.
llvm.func @good(%x: !llvm.ptr<1>, %map: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>}, %c: i32, %p: i1) attributes {nvvm.kernel} {
  %0 = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %1 = llvm.mlir.addressof @table : !llvm.ptr<1>
  %2 = llvm.load %1 : !llvm.ptr<1> -> i32
  %3 = llvm.alloca %c x i32 : (i32) -> !llvm.ptr
  llvm.store %2, %3 : i32, !llvm.ptr
  %4 = llvm.addrspacecast %0 : !llvm.ptr<3> to !llvm.ptr
  llvm.store %2, %4 : i32, !llvm.ptr
  nvvm.griddepcontrol launch_dependents
  nvvm.prefetch tensormap, %map : !llvm.ptr
  nvvm.mbarrier.init %0, %c : !llvm.ptr<3>, i32
  nvvm.prefetch level = L2, %x {moec.weights} : !llvm.ptr<1>
  nvvm.cp.async.bulk.prefetch %x, %c {moec.weights} : !llvm.ptr<1>
  %5 = llvm.getelementptr %x[%c] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
  llvm.cond_br %p, ^bb1, ^bb2
^bb1:
  nvvm.griddepcontrol wait
  %6 = llvm.load %5 : !llvm.ptr<1> -> f32
  llvm.br ^bb3
^bb2:
  nvvm.griddepcontrol wait
  llvm.br ^bb3
^bb3:
  llvm.store %c, %x : i32, !llvm.ptr<1>
  llvm.return
}

// Weights chosen by ids are read early; each role waits before other accesses.
llvm.func @roles(%ids: !llvm.ptr<1>, %x: !llvm.ptr<1>, %c: i32, %p: i1) attributes {nvvm.kernel} {
  %0 = llvm.mlir.addressof @table : !llvm.ptr<1>
  %1 = llvm.mlir.poison : !llvm.struct<(ptr<1>, ptr<1>, i64)>
  %2 = llvm.insertvalue %ids, %1[0] : !llvm.struct<(ptr<1>, ptr<1>, i64)>
  %3 = llvm.insertvalue %0, %2[1] : !llvm.struct<(ptr<1>, ptr<1>, i64)>
  %4 = llvm.extractvalue %3[1] : !llvm.struct<(ptr<1>, ptr<1>, i64)>
  %5 = llvm.load %ids {moec.weights} : !llvm.ptr<1> -> i32
  %6 = llvm.getelementptr %4[%5] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
  %7 = llvm.load %6 : !llvm.ptr<1> -> i32
  llvm.cond_br %p, ^bb1, ^bb2
^bb1:
  nvvm.griddepcontrol wait
  llvm.store %7, %x : i32, !llvm.ptr<1>
  llvm.br ^bb3
^bb2:
  llvm.br ^bb3
^bb3:
  nvvm.griddepcontrol wait
  llvm.return
}

// Not a kernel.
llvm.func @other(%x: !llvm.ptr<1>) {
  %0 = llvm.load %x : !llvm.ptr<1> -> f32
  llvm.return
}

// -----

llvm.func @load(%x: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %0 = llvm.getelementptr %x[1] : (!llvm.ptr<1>) -> !llvm.ptr<1>, f32
  // expected-error@+1 {{accesses global memory on a path without a wait for the launch before this one, which may still run; insert 'nvvm.griddepcontrol wait' before it on every path, or at the kernel's entry}}
  %1 = llvm.load %0 : !llvm.ptr<1> -> f32
  nvvm.griddepcontrol wait
  llvm.return
}

// -----

// May overlap all running launches, but must wait for them at its end.
llvm.func @independent(%x: !llvm.ptr<1>) attributes {nvvm.kernel, moec.form = #tile.kernel_form<independent = true>} {
  %0 = llvm.load %x : !llvm.ptr<1> -> f32
  nvvm.griddepcontrol wait
  llvm.return
}
llvm.func @independent_ends(%x: !llvm.ptr<1>) attributes {nvvm.kernel, moec.form = #tile.kernel_form<independent = true>} {
  %0 = llvm.load %x : !llvm.ptr<1> -> f32
  // expected-error@+1 {{ends the kernel on a path}}
  llvm.return
}

// -----

// Behind an await, launches before the one before have ended: what they wrote is read, and counters change.
llvm.func @awaits(%x: !llvm.ptr<1>, %counter: !llvm.ptr<1>, %c: i32) attributes {nvvm.kernel} {
  llvm.br ^bb1
^bb1:
  %0 = llvm.load %counter atomic syncscope("device") acquire {alignment = 4 : i64, moec.signal} : !llvm.ptr<1> -> i32
  %1 = llvm.icmp "sge" %0, %c : i32
  llvm.cond_br %1, ^bb1, ^bb2
^bb2:
  nvvm.bar.warp.sync %c {moec.ends_await} : i32
  %2 = llvm.load %x : !llvm.ptr<1> -> i32
  %3 = llvm.atomicrmw add %counter, %2 syncscope("device") monotonic : !llvm.ptr<1>, i32
  nvvm.griddepcontrol wait
  llvm.store %3, %x : i32, !llvm.ptr<1>
  llvm.return
}
llvm.func @polls_another(%x: !llvm.ptr<1>) attributes {nvvm.kernel} {
  // expected-error@+1 {{accesses global memory}}
  %0 = llvm.load %x atomic syncscope("device") acquire {alignment = 4 : i64} : !llvm.ptr<1> -> i32
  nvvm.griddepcontrol wait
  llvm.return
}
llvm.func @awaits_and_stores(%x: !llvm.ptr<1>, %c: i32) attributes {nvvm.kernel} {
  nvvm.bar.warp.sync %c {moec.ends_await} : i32
  // expected-error@+1 {{accesses global memory}}
  llvm.store %c, %x : i32, !llvm.ptr<1>
  nvvm.griddepcontrol wait
  llvm.return
}

// -----

// The reads are not marked as weights.
llvm.func @prefetch(%x: !llvm.ptr<1>, %c: i32) attributes {nvvm.kernel} {
  // expected-error@+1 {{accesses global memory}}
  nvvm.cp.async.bulk.prefetch %x, %c : !llvm.ptr<1>
  nvvm.griddepcontrol wait
  llvm.return
}

// -----

// A reader of the launch before may not have ended.
llvm.func @store(%x: !llvm.ptr<1>, %v: f32) attributes {nvvm.kernel} {
  // expected-error@+1 {{accesses global memory}}
  llvm.store %v, %x : f32, !llvm.ptr<1>
  nvvm.griddepcontrol wait
  llvm.return
}

// -----

// One role has waited, the other not.
llvm.func @role(%ids: !llvm.ptr<1>, %x: !llvm.ptr<1>, %p: i1) attributes {nvvm.kernel} {
  %0 = llvm.load %ids {moec.weights} : !llvm.ptr<1> -> i32
  llvm.cond_br %p, ^bb1, ^bb2
^bb1:
  nvvm.griddepcontrol wait
  llvm.store %0, %x : i32, !llvm.ptr<1>
  llvm.br ^bb3
^bb2:
  // expected-error@+1 {{accesses global memory}}
  llvm.store %0, %x : i32, !llvm.ptr<1>
  llvm.br ^bb3
^bb3:
  nvvm.griddepcontrol wait
  llvm.return
}

// -----

// The other member of the descriptor.
llvm.func @member(%x: !llvm.ptr<1>, %y: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %0 = llvm.mlir.poison : !llvm.struct<(ptr<1>, ptr<1>, i64)>
  %1 = llvm.insertvalue %x, %0[0] : !llvm.struct<(ptr<1>, ptr<1>, i64)>
  %2 = llvm.extractvalue %1[0] : !llvm.struct<(ptr<1>, ptr<1>, i64)>
  // expected-error@+1 {{accesses global memory}}
  %3 = llvm.load %2 : !llvm.ptr<1> -> i32
  nvvm.griddepcontrol wait
  llvm.return
}

// -----

// Later kernels rely on this kernel to wait, though it reads nothing.
llvm.func @ends(%p: i1) attributes {nvvm.kernel} {
  llvm.cond_br %p, ^bb1, ^bb2
^bb1:
  nvvm.griddepcontrol wait
  llvm.return
^bb2:
  // expected-error@+1 {{ends the kernel on a path}}
  llvm.return
}

// -----

// One path into the block has not waited. The error is reported once.
llvm.func @join(%x: !llvm.ptr<1>, %p: i1) attributes {nvvm.kernel} {
  llvm.cond_br %p, ^bb1, ^bb2
^bb1:
  nvvm.griddepcontrol wait
  llvm.br ^bb2
^bb2:
  // expected-error@+1 {{accesses global memory}}
  %0 = llvm.load %x : !llvm.ptr<1> -> f32
  llvm.br ^bb3
^bb3:
  llvm.return
}

// -----

// A generic pointer of unknown origin may lead anywhere; a tensor map leads to
// a tensor.
llvm.func @generic(%x: !llvm.ptr<1>, %p: i1) attributes {nvvm.kernel} {
  %0 = llvm.addrspacecast %x : !llvm.ptr<1> to !llvm.ptr
  // expected-error@+1 {{accesses global memory}}
  %1 = llvm.load %0 : !llvm.ptr -> f32
  nvvm.griddepcontrol wait
  llvm.return
}

// -----

llvm.func @box(%to: !llvm.ptr<7>, %map: !llvm.ptr, %bar: !llvm.ptr<3>, %c: i32) attributes {nvvm.kernel} {
  // expected-error@+1 {{accesses global memory}}
  nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map, %bar, box[%c, %c] : !llvm.ptr<7>, !llvm.ptr
  nvvm.griddepcontrol wait
  llvm.return
}

// -----

llvm.func @weights(%to: !llvm.ptr<7>, %map: !llvm.ptr, %bar: !llvm.ptr<3>, %c: i32) attributes {nvvm.kernel} {
  nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map, %bar, box[%c, %c] {moec.weights} : !llvm.ptr<7>, !llvm.ptr
  nvvm.griddepcontrol wait
  llvm.return
}

// -----

llvm.mlir.global external @counter() {addr_space = 1 : i32} : i32

llvm.func @text(%x: !llvm.ptr<1>, %v: i32) attributes {nvvm.kernel} {
  // expected-error@+1 {{accesses global memory}}
  nvvm.inline_ptx "red.global.add.u32 [$0], $1;" ro(%x, %v : !llvm.ptr<1>, i32)
  nvvm.griddepcontrol wait
  llvm.return
}

llvm.func @variable(%v: i32) attributes {nvvm.kernel} {
  %0 = llvm.mlir.addressof @counter : !llvm.ptr<1>
  // expected-error@+1 {{accesses global memory}}
  %1 = llvm.atomicrmw add %0, %v monotonic : !llvm.ptr<1>, i32
  nvvm.griddepcontrol wait
  llvm.return
}

// -----

// Accesses before the barrier do not conflict with other launches.
llvm.func @ahead(%x: !llvm.ptr<1>, %v: f32, %p: i1) attributes {nvvm.kernel, moec.form = #tile.kernel_form<ahead = true>} {
  llvm.cond_br %p, ^bb1, ^bb2
^bb1:
  llvm.store %v, %x : f32, !llvm.ptr<1>
  llvm.br ^bb2
^bb2:
  nvvm.barrier0 {moec.ends_ahead}
  nvvm.griddepcontrol wait
  %0 = llvm.load %x : !llvm.ptr<1> -> f32
  llvm.return
}

// -----

llvm.func @behind(%x: !llvm.ptr<1>, %v: f32, %p: i1) attributes {nvvm.kernel, moec.form = #tile.kernel_form<ahead = true>} {
  llvm.cond_br %p, ^bb1, ^bb2
^bb1:
  nvvm.barrier0 {moec.ends_ahead}
  llvm.br ^bb2
^bb2:
  // expected-error@+1 {{accesses global memory}}
  %0 = llvm.load %x : !llvm.ptr<1> -> f32
  nvvm.griddepcontrol wait
  llvm.return
}

// -----

// The barrier without the kernel's form has no effect.
llvm.func @alone(%x: !llvm.ptr<1>, %v: f32) attributes {nvvm.kernel} {
  // expected-error@+1 {{accesses global memory}}
  llvm.store %v, %x : f32, !llvm.ptr<1>
  nvvm.barrier0 {moec.ends_ahead}
  nvvm.griddepcontrol wait
  llvm.return
}
