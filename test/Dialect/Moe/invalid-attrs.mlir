// RUN: moe-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'top_k' is 0; at least 1 is accepted}}
module attributes {test.a = #moe.routing<top_k = 0>} {}

// -----

// expected-error@+1 {{'num_groups' is 0; at least 1 (no groups) is accepted}}
module attributes {test.a = #moe.routing<top_k = 1, num_groups = 0>} {}

// -----

// expected-error@+1 {{'topk_groups' is 3; 1 to 'num_groups' = 2 is accepted}}
module attributes {test.a = #moe.routing<top_k = 1, num_groups = 2, topk_groups = 3>} {}

// -----

// expected-error@+1 {{'num_groups' has no meaning with select 'hash'; remove it}}
module attributes {test.a = #moe.routing<top_k = 1, select = hash, num_groups = 2>} {}

// -----

// expected-error@+1 {{'top_k' is 3, which must be a multiple of 'num_groups' = 2 with select 'per_group'}}
module attributes {test.a = #moe.routing<top_k = 3, select = per_group, num_groups = 2>} {}

// -----

// expected-error@+1 {{'topk_groups' has no meaning with select 'per_group', where every group contributes; remove it}}
module attributes {test.a = #moe.routing<top_k = 4, select = per_group, num_groups = 2, topk_groups = 2>} {}

// -----

// expected-error@+1 {{'top_k' is 3, but select 'sparsemixer' chooses 2 experts}}
module attributes {test.a = #moe.routing<top_k = 3, select = sparsemixer, nonfinite = neg_inf>} {}

// -----

// expected-error@+1 {{'softmax' must be 'none' with select 'sparsemixer', which defines its own softmax}}
module attributes {test.a = #moe.routing<top_k = 2, select = sparsemixer, softmax = all, nonfinite = neg_inf>} {}

// -----

// expected-error@+1 {{'nonfinite' must be 'neg_inf' with select 'sparsemixer'}}
module attributes {test.a = #moe.routing<top_k = 2, select = sparsemixer>} {}

// -----

// expected-error@+1 {{'scale' must be f32, not 'f64'; write 'scale = 1.0 : f32'}}
module attributes {test.a = #moe.routing<top_k = 2, scale = 2.5>} {}

// -----

// expected-error@+1 {{'scale' must be a finite number}}
module attributes {test.a = #moe.routing<top_k = 2, scale = 0x7FC00000 : f32>} {}

// -----

// expected-error@+1 {{'renormalize_epsilon' has no meaning without 'renormalize = true'}}
module attributes {test.a = #moe.routing<top_k = 2, renormalize_epsilon = 1.0e-20 : f32>} {}

// -----

// expected-error@+1 {{'renormalize_epsilon' must not be negative}}
module attributes {test.a = #moe.routing<top_k = 2, renormalize = true, renormalize_epsilon = -1.0 : f32>} {}

// -----

// expected-error@+1 {{'storage' is 'f32'; f8E4M3FN, f8E5M2, f4E2M1FN, !moe.nf4, !moe.code_book, i8 and i4 are accepted}}
module attributes {test.a = #moe.quant<storage = f32, scale = f32, granularity = tensor>} {}

// -----

// expected-error@+1 {{'scale' is 'f64'; f32, bf16, f16, f8E8M0FNU and f8E4M3FN are accepted}}
module attributes {test.a = #moe.quant<storage = i8, scale = f64, granularity = tensor>} {}

// -----

// expected-error@+1 {{'block' has no meaning with granularity 'token'; remove it}}
module attributes {test.a = #moe.quant<storage = i8, scale = f32, granularity = token, block = [1, 32]>} {}

// -----

// expected-error@+1 {{granularity 'group' needs 'block = [rows, contracted]' with two sizes above 0}}
module attributes {test.a = #moe.quant<storage = i8, scale = f32, granularity = group>} {}

// -----

// expected-error@+1 {{granularity 'block' needs 'block = [rows, contracted]' with two sizes above 0}}
module attributes {test.a = #moe.quant<storage = i8, scale = f32, granularity = block, block = [128, 0]>} {}

// -----

// expected-error@+1 {{a 'group' lies in one row; write 'block = [1, 32]', or granularity 'block'}}
module attributes {test.a = #moe.quant<storage = i8, scale = f32, granularity = group, block = [2, 32]>} {}

// -----

// expected-error@+1 {{'zero_point' belongs to integer storage; remove it for 'f8E4M3FN'}}
module attributes {test.a = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor, zero_point = true>} {}

// -----

// expected-error@+1 {{'minimum' needs weights of i8 or i4 in groups, with scales of f32, bf16 or f16, without zero points and, unless prepacked, without second scales; remove it}}
module attributes {test.a = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], minimum = true>} {}

// -----

// expected-error@+1 {{'minimum' needs weights of i8 or i4 in groups}}
module attributes {test.a = #moe.quant<storage = i8, scale = f32, granularity = channel, minimum = true>} {}

// -----

// expected-error@+1 {{'minimum' needs weights of i8 or i4 in groups}}
module attributes {test.a = #moe.quant<storage = i8, scale = f8E8M0FNU, granularity = group, block = [1, 32], minimum = true>} {}

// -----

// expected-error@+1 {{'minimum' needs weights of i8 or i4 in groups}}
module attributes {test.a = #moe.quant<storage = i4, scale = f32, granularity = group, block = [1, 32], zero_point = true, packing = pairs, minimum = true>} {}

// -----

// expected-error@+1 {{'dynamic' is for activations, which have no granularity 'channel'; write 'tensor', 'token' or 'group'}}
module attributes {test.a = #moe.quant<storage = i8, scale = f32, granularity = channel, dynamic = true>} {}

// -----

// expected-error@+1 {{'alignment' is 0; at least 1 row is accepted}}
module attributes {test.a = #moe.activation_format<format = contiguous, alignment = 0>} {}

// -----

// expected-error@+1 {{'alignment' has no meaning with format 'standard'; remove it or write 'contiguous'}}
module attributes {test.a = #moe.activation_format<format = standard, alignment = 16>} {}

// -----

// expected-error@+1 {{'dp' is 0; give 1 to 65536}}
module attributes {test.a = #moe.mesh<dp = 0>} {}

// -----

// expected-error@+1 {{'tp' is 65537; give 1 to 65536}}
module attributes {test.a = #moe.mesh<tp = 65537>} {}

// -----

// expected-error@+1 {{'pcp' is -2; give 1 to 65536}}
module attributes {test.a = #moe.mesh<pcp = -2>} {}

// -----

// expected-error@+1 {{'dp' * 'pcp' is 131072; give 1 to 65536}}
module attributes {test.a = #moe.mesh<dp = 512, pcp = 256>} {}

// -----

// expected-error@+1 {{'num_experts' is -1; give the number of experts of the whole layer, or 0 for a slice of every expert on each rank}}
module attributes {test.a = #moe.mesh<num_experts = -1>} {}

// -----

// expected-error@+1 {{'num_experts' is 0; 1 to 2147483647 is accepted}}
module attributes {test.a = #moe.placement<0, local = [0]>} {}

// -----

// expected-error@+1 {{local expert 8 is out of range; ids are 0 to 7}}
module attributes {test.a = #moe.placement<8, local = [0, 8]>} {}

// -----

// expected-error@+1 {{local expert 3 is named twice; name each expert once}}
module attributes {test.a = #moe.placement<8, local = [3, 1, 3]>} {}

// -----

// expected-error@+1 {{'packing' is 'pairs', which needs 4-bit elements, but 'storage' is 'f8E4M3FN'; remove it}}
func.func private @f() attributes {q = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = tensor, packing = pairs>}

// -----

// expected-error@+1 {{'storage' is 'i4', which has two elements per byte; write 'packing = pairs'}}
func.func private @f() attributes {q = #moe.quant<storage = i4, scale = f32, granularity = tensor>}

// -----

// expected-error@+1 {{'second_scale' is 'bf16'; f32 is accepted}}
func.func private @f() attributes {q = #moe.quant<storage = f4E2M1FN, scale = f8E4M3FN, granularity = group, block = [1, 16], packing = pairs, second_scale = bf16>}

// -----

// expected-error@+1 {{'second_scale' is a factor of the scales of groups or blocks, but granularity 'channel' has one scale per row or tensor; remove it}}
func.func private @f() attributes {q = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel, second_scale = f32>}

// -----

// expected-error@+1 {{'storage' is '!moe.nf4', which has two elements per byte; write 'packing = pairs'}}
func.func private @f() attributes {q = #moe.quant<storage = !moe.nf4, scale = f32, granularity = group, block = [1, 64]>}

// -----

// expected-error@+1 {{a code book has 3 entries; give 16, one for each 4-bit index}}
func.func private @f() attributes {t = !moe.code_book<[1.0, 2.0, 3.0]>}

// -----

// expected-error@+1 {{entry 2 of a code book is not finite or exceeds 65504, the largest f16; move a common factor of all entries into the scales}}
func.func private @f() attributes {t = !moe.code_book<[1.0, 2.0, 7.0e4, 4.0, 5.0, 6.0, 7.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]>}

// -----

// expected-error@+1 {{entry 15 of a code book is not finite or exceeds 65504}}
func.func private @f() attributes {t = !moe.code_book<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 1.0e39]>}

// -----

!book = !moe.code_book<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]>
// expected-error@+1 {{which has two elements per byte; write 'packing = pairs'}}
func.func private @f() attributes {q = #moe.quant<storage = !book, scale = f32, granularity = channel>}

// -----

!book = !moe.code_book<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]>
// expected-error@+1 {{'zero_point' belongs to integer storage}}
func.func private @f() attributes {q = #moe.quant<storage = !book, scale = f32, granularity = channel, zero_point = true, packing = pairs>}

// -----

!small = !moe.code_book<[0.0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007, 0.0, -0.001, -0.002, -0.003, -0.004, -0.005, -0.006, -0.007]>
// expected-error@+1 {{'packing' is 'prepacked_f16', but f16 needs a code book whose largest magnitude is 0.5 to 32768, unlike}}
func.func private @f() attributes {q = #moe.quant<storage = !small, scale = f32, granularity = channel, packing = prepacked_f16, second_scale = f32>}

// -----

// expected-error@+1 {{'power_of_two' needs dynamic f32 scales in groups of an 8-bit float; remove it, or write 'dynamic = true' and 'granularity = group'}}
func.func private @f() attributes {q = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true, power_of_two = true>}

// -----

// expected-error@+1 {{'packing = bf16' needs f8E4M3FN, or i8 without zero points, with scales of granularity 'token' or 'tensor' or powers of two; remove it}}
func.func private @f() attributes {q = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true, packing = bf16>}

// -----

// expected-error@+1 {{'packing = bf16' needs f8E4M3FN, or i8 without zero points, with scales of granularity 'token' or 'tensor' or powers of two; remove it}}
func.func private @f() attributes {q = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = channel, packing = bf16>}

// -----

// expected-error@+1 {{'packing = bf16' needs f8E4M3FN, or i8 without zero points, with scales of granularity 'token' or 'tensor' or powers of two; remove it}}
func.func private @f() attributes {q = #moe.quant<storage = i8, scale = f32, granularity = tensor, zero_point = true, packing = bf16>}

// -----

// expected-error@+1 {{'packing = bf16' needs f8E4M3FN, or i8 without zero points, with scales of granularity 'token' or 'tensor' or powers of two; remove it}}
func.func private @f() attributes {q = #moe.quant<storage = f8E5M2, scale = f32, granularity = token, dynamic = true, packing = bf16>}
