// RUN: moe-opt %s --pass-pipeline='builtin.module(llvm.func(verify-gpu-fences))' --split-input-file --verify-diagnostics

#async = #nvvm.proxy_kind<async.shared>
#cta = #nvvm.shared_space<cta>

llvm.mlir.global external @shared() {addr_space = 3 : i32} : !llvm.array<0 x i8>
llvm.mlir.global external @scratch() {addr_space = 3 : i32} : !llvm.array<128 x i8>

// A fence in the writing thread, before the barrier. Other variables, and other sections of the same variable, need
// none.
llvm.func @good(%to: !llvm.ptr<1>, %x: f32, %thread: i32, %size: i32) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %table = llvm.getelementptr %shared[1024] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
  %entry = llvm.getelementptr %table[%thread] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, f32
  llvm.store %x, %entry : f32, !llvm.ptr<3>
  %scratch = llvm.mlir.addressof @scratch : !llvm.ptr<3>
  llvm.store %x, %scratch : f32, !llvm.ptr<3>
  nvvm.barrier0
  %own = llvm.getelementptr %shared[%thread] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, f32
  llvm.store %x, %own : f32, !llvm.ptr<3>
  nvvm.fence.proxy {kind = #async, space = #cta}
  nvvm.barrier0
  nvvm.cp.async.bulk.global.shared.cta %to, %shared, %size : !llvm.ptr<1>, !llvm.ptr<3>
  llvm.return
}

// -----

llvm.mlir.global external @shared() {addr_space = 3 : i32} : !llvm.array<0 x i8>

llvm.func @store(%to: !llvm.ptr<1>, %x: f32, %thread: i32, %size: i32) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %own = llvm.getelementptr %shared[%thread] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, f32
  // expected-note@+1 {{written here by 'llvm.store'}}
  llvm.store %x, %own : f32, !llvm.ptr<3>
  // expected-error@+1 {{publishes shared memory that this thread wrote and that copies or tensor cores access, with no fence since on some path; insert 'nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}' between the write and here}}
  nvvm.barrier0
  nvvm.cp.async.bulk.global.shared.cta %to, %shared, %size : !llvm.ptr<1>, !llvm.ptr<3>
  llvm.return
}

// -----

llvm.mlir.global external @shared() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// Without a barrier in between, in the thread that copies.
llvm.func @same_thread(%map: !llvm.ptr, %x: f32, %c: i32) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  // expected-note@+1 {{written here by 'llvm.store'}}
  llvm.store %x, %shared : f32, !llvm.ptr<3>
  // expected-error@+1 {{accesses shared memory that this thread wrote}}
  nvvm.cp.async.bulk.tensor.global.shared.cta %map, %shared, box[%c, %c] : !llvm.ptr, !llvm.ptr<3>
  llvm.return
}

// -----

#async = #nvvm.proxy_kind<async.shared>
#cta = #nvvm.shared_space<cta>
llvm.mlir.global external @shared() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// The fence is on one of two paths.
llvm.func @one_path(%map: !llvm.ptr, %bar: !llvm.ptr<3>, %r: i32, %c: i32, %b: i1) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  // expected-note@+1 {{written here by 'nvvm.stmatrix'}}
  nvvm.stmatrix %shared, %r {layout = #nvvm.mma_layout<row>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>} : !llvm.ptr<3>, i32
  llvm.cond_br %b, ^fence, ^after
^fence:
  nvvm.fence.proxy {kind = #async, space = #cta}
  llvm.br ^after
^after:
  // expected-error@+1 {{publishes shared memory that this thread wrote}}
  nvvm.mbarrier.arrive %bar : !llvm.ptr<3>
  nvvm.cp.async.bulk.tensor.global.shared.cta %map, %shared, box[%c, %c] : !llvm.ptr, !llvm.ptr<3>
  llvm.return
}

// -----

#async = #nvvm.proxy_kind<async.shared>
#cta = #nvvm.shared_space<cta>
llvm.mlir.global external @shared() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// The write reaches the access through the loop, by a pointer that the loop carries, and by a generic pointer.
llvm.func @loop(%map: !llvm.ptr, %x: f32, %c: i32, %b: i1) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %generic = llvm.addrspacecast %shared : !llvm.ptr<3> to !llvm.ptr
  nvvm.fence.proxy {kind = #async, space = #cta}
  llvm.br ^loop(%generic : !llvm.ptr)
^loop(%p: !llvm.ptr):
  // expected-error@+1 {{publishes shared memory that this thread wrote}}
  nvvm.barrier0
  %next = llvm.getelementptr %p[16] : (!llvm.ptr) -> !llvm.ptr, i8
  // expected-note@+1 {{written here by 'llvm.store'}}
  llvm.store %x, %next : f32, !llvm.ptr
  llvm.cond_br %b, ^loop(%next : !llvm.ptr), ^end
^end:
  nvvm.fence.proxy {kind = #async, space = #cta}
  nvvm.barrier0
  nvvm.cp.async.bulk.tensor.global.shared.cta %map, %shared, box[%c, %c] : !llvm.ptr, !llvm.ptr<3>
  llvm.return
}

// -----

#async = #nvvm.proxy_kind<async.shared>
#cta = #nvvm.shared_space<cta>
!acc = !llvm.struct<(f32, f32, f32, f32)>
llvm.mlir.global external @shared() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// A copy is done after a wait; a fence before the wait does not cover it. Copies that the wait leaves open are not
// published.
llvm.func @copies(%x: !llvm.ptr<1>, %bar: !llvm.ptr<3>, %acc: !acc, %b: i1) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %number = llvm.ptrtoint %shared : !llvm.ptr<3> to i64
  // expected-note@+1 {{written here by 'nvvm.cp.async.shared.global'}}
  nvvm.cp.async.shared.global %shared, %x, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
  nvvm.cp.async.commit.group
  nvvm.mbarrier.arrive %bar : !llvm.ptr<3>
  nvvm.fence.proxy {kind = #async, space = #cta}
  // expected-note@+1 {{written here by 'nvvm.cp.async.shared.global'}}
  nvvm.cp.async.shared.global %shared, %x, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
  nvvm.cp.async.commit.group
  llvm.cond_br %b, ^first, ^all
^first:
  nvvm.cp.async.wait.group 1
  // expected-error@+1 {{publishes shared memory}}
  nvvm.mbarrier.arrive %bar : !llvm.ptr<3>
  llvm.return
^all:
  nvvm.cp.async.wait.group 0
  // expected-error@+1 {{publishes shared memory}}
  nvvm.mbarrier.arrive %bar : !llvm.ptr<3>
  %sum = nvvm.wgmma.mma_async %number, %number, %acc, #nvvm.shape<m = 64, n = 8, k = 16>,
      D [<f32>, <one>], A [<bf16>, <one>, <row>], B [<bf16>, <one>, <col>] : !acc -> !acc
  llvm.return
}

// -----

!acc = !llvm.struct<(f32, f32, f32, f32)>
llvm.mlir.global external @shared() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// The arrival happens when the copies are done, without a chance for a fence.
llvm.func @copies_arrive(%x: !llvm.ptr<1>, %bar: !llvm.ptr<3>, %acc: !acc, %d: i64) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  // expected-note@+1 {{written here by 'nvvm.cp.async.shared.global'}}
  nvvm.cp.async.shared.global %shared, %x, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
  // expected-error@+1 {{publishes shared memory}}
  nvvm.cp.async.mbarrier.arrive %bar : !llvm.ptr<3>
  %sum = nvvm.wgmma.mma_async %d, %d, %acc, #nvvm.shape<m = 64, n = 8, k = 16>,
      D [<f32>, <one>], A [<bf16>, <one>, <row>], B [<bf16>, <one>, <col>] : !acc -> !acc
  llvm.return
}

// -----

llvm.mlir.global external @shared() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// Scales that tensor cores copy to tensor memory, and their operands.
llvm.func @scales(%x: i32, %bar: !llvm.ptr<3>, %to: !llvm.ptr<6>, %d: i64) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  // expected-note@+1 {{written here by 'llvm.store'}}
  llvm.store %x, %shared : i32, !llvm.ptr<3>
  // expected-error@+1 {{publishes shared memory}}
  nvvm.mbarrier.arrive %bar : !llvm.ptr<3>
  nvvm.tcgen05.cp %to, %d {shape = #nvvm.tcgen05_cp_shape<shape_32x128b>, multicast = #nvvm.tcgen05_cp_multicast<warpx4>}
  llvm.return
}

// -----

llvm.mlir.global external @shared() {addr_space = 3 : i32} : !llvm.array<0 x i8>

llvm.func @blocks(%x: i32, %bar: !llvm.ptr<3>, %d: i64) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  // expected-note@+1 {{written here by 'llvm.store'}}
  llvm.store %x, %shared : i32, !llvm.ptr<3>
  // expected-error@+1 {{publishes shared memory}}
  nvvm.mbarrier.arrive %bar : !llvm.ptr<3>
  llvm.inline_asm has_side_effects "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [$0], $1, $1, $0, [$0], [$0], 1;", "r,l" %x, %d : (i32, i64) -> ()
  llvm.return
}

// -----

llvm.mlir.global external @shared() {addr_space = 3 : i32} : !llvm.array<0 x i8>
llvm.mlir.global external @scratch() {addr_space = 3 : i32} : !llvm.array<128 x i8>

// A store to another CTA of the cluster writes where its first operand says.
llvm.func @words(%to: !llvm.ptr<1>, %x: i32, %bar: !llvm.ptr<3>, %size: i32) attributes {nvvm.kernel} {
  %scratch = llvm.mlir.addressof @scratch : !llvm.ptr<3>
  %there = nvvm.mapa %scratch, %x : !llvm.ptr<3> -> !llvm.ptr<7>
  llvm.inline_asm has_side_effects "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [$0], $1, [$2];", "l,r,l" %there, %x, %there : (!llvm.ptr<7>, i32, !llvm.ptr<7>) -> ()
  nvvm.mbarrier.arrive %bar : !llvm.ptr<3>
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %copied = nvvm.mapa %shared, %x : !llvm.ptr<3> -> !llvm.ptr<7>
  // expected-note@+1 {{written here by 'llvm.inline_asm'}}
  llvm.inline_asm has_side_effects "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [$0], $1, [$2];", "l,r,l" %copied, %x, %there : (!llvm.ptr<7>, i32, !llvm.ptr<7>) -> ()
  // expected-error@+1 {{publishes shared memory}}
  nvvm.mbarrier.arrive %bar : !llvm.ptr<3>
  nvvm.cp.async.bulk.global.shared.cta %to, %shared, %size : !llvm.ptr<1>, !llvm.ptr<3>
  llvm.return
}

// -----

#async = #nvvm.proxy_kind<async.shared>
#cta = #nvvm.shared_space<cta>

// Barriers that bulk copies complete on.
llvm.func @barriers(%to: !llvm.ptr<7>, %map: !llvm.ptr, %bar: !llvm.ptr<3>, %n: i32) attributes {nvvm.kernel} {
  // expected-note@+1 {{written here by 'nvvm.mbarrier.init'}}
  nvvm.mbarrier.init %bar, %n : !llvm.ptr<3>, i32
  // expected-error@+2 {{insert 'nvvm.fence.proxy}}
  // expected-error@+1 {{insert 'nvvm.fence.mbarrier.init'}}
  nvvm.barrier0
  nvvm.mbarrier.init %bar, %n : !llvm.ptr<3>, i32
  nvvm.fence.mbarrier.init
  nvvm.fence.proxy {kind = #async, space = #cta}
  nvvm.barrier0
  nvvm.cp.async.bulk.tensor.shared.cluster.global %to, %map, %bar, box[%n, %n] : !llvm.ptr<7>, !llvm.ptr
  llvm.return
}

// -----

// Without asynchronous accesses there is nothing to fence.
llvm.mlir.global external @shared() {addr_space = 3 : i32} : !llvm.array<0 x i8>
llvm.func @generic(%x: f32) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  llvm.store %x, %shared : f32, !llvm.ptr<3>
  nvvm.barrier0
  llvm.return
}
