// Every attribute with every parameter, through the printer and back.
// RUN: moe-opt %s | moe-opt | FileCheck %s

// CHECK-LABEL: module @routing
// CHECK-SAME: all = #moe.routing<top_k = 8, num_groups = 8, topk_groups = 4, group_score = top2_sum, softmax = selected, renormalize = true, renormalize_epsilon = {{[0-9.eE-]+}} : f32, scale = 2.500000e+00 : f32, nonfinite = neg_inf>
// CHECK-SAME: defaults = #moe.routing<top_k = 1>
// CHECK-SAME: hash = #moe.routing<top_k = 6, select = hash, nonfinite = lowest>
// CHECK-SAME: mixer = #moe.routing<top_k = 2, select = sparsemixer, nonfinite = neg_inf>
// CHECK-SAME: per_group = #moe.routing<top_k = 8, select = per_group, num_groups = 4, softmax = all>
module @routing attributes {test.values = {
  all = #moe.routing<top_k = 8, num_groups = 8, topk_groups = 4, group_score = top2_sum,
                     softmax = selected, renormalize = true,
                     renormalize_epsilon = 1.0e-20 : f32, scale = 2.5 : f32,
                     nonfinite = neg_inf>,
  // Defaults are not printed.
  defaults = #moe.routing<top_k = 1, select = top_k, num_groups = 1, topk_groups = 1,
                          group_score = max, softmax = none, renormalize = false,
                          nonfinite = zero>,
  hash = #moe.routing<top_k = 6, select = hash, nonfinite = lowest>,
  mixer = #moe.routing<top_k = 2, select = sparsemixer, nonfinite = neg_inf>,
  per_group = #moe.routing<top_k = 8, select = per_group, num_groups = 4, softmax = all>
}} {}

// CHECK-LABEL: module @layout
// CHECK-SAME: a = #moe.weight_layout<order = gate_up>
// CHECK-SAME: b = #moe.weight_layout<order = up_gate>
// CHECK-SAME: c = #moe.weight_layout<order = interleaved>
module @layout attributes {test.values = {
  a = #moe.weight_layout<order = gate_up>,
  b = #moe.weight_layout<order = up_gate>,
  c = #moe.weight_layout<order = interleaved>
}} {}

// CHECK-LABEL: module @quant
// CHECK-SAME: block = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>
// CHECK-SAME: book = !moe.code_book<[0.000000e+00, 5.000000e-01, 1.000000e+00, 1.500000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00, 6.000000e+00, -0.000000e+00, -5.000000e-01, -1.000000e+00, -1.500000e+00, -2.000000e+00, -3.000000e+00, -4.000000e+00, -6.000000e+00]>
// CHECK-SAME: channel = #moe.quant<storage = f8E5M2, scale = bf16, granularity = channel>
// CHECK-SAME: group = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>
// CHECK-SAME: minimum = #moe.quant<storage = i4, scale = f32, granularity = group, block = [1, 32], packing = pairs, minimum = true>
// CHECK-SAME: nf4 = #moe.quant<storage = !moe.nf4, scale = f32, granularity = group, block = [1, 64], packing = pairs>
// CHECK-SAME: packed = #moe.quant<storage = f4E2M1FN, scale = f8E4M3FN, granularity = group, block = [1, 16], packing = pairs, second_scale = f32>
// CHECK-SAME: power = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true, power_of_two = true>
// CHECK-SAME: tensor = #moe.quant<storage = i8, scale = f32, granularity = tensor>
// CHECK-SAME: token = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>
// CHECK-SAME: zero_point = #moe.quant<storage = i4, scale = bf16, granularity = group, block = [1, 64], zero_point = true, packing = pairs>
module @quant attributes {test.values = {
  block = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>,
  channel = #moe.quant<storage = f8E5M2, scale = bf16, granularity = channel>,
  group = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>,
  book = !moe.code_book<[0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]>,
  minimum = #moe.quant<storage = i4, scale = f32, granularity = group, block = [1, 32], packing = pairs, minimum = true>,
  nf4 = #moe.quant<storage = !moe.nf4, scale = f32, granularity = group, block = [1, 64], packing = pairs>,
  power = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 32], dynamic = true,
                     power_of_two = true>,
  packed = #moe.quant<storage = f4E2M1FN, scale = f8E4M3FN, granularity = group, block = [1, 16], packing = pairs,
                      second_scale = f32>,
  tensor = #moe.quant<storage = i8, scale = f32, granularity = tensor, dynamic = false>,
  token = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = token, dynamic = true>,
  zero_point = #moe.quant<storage = i4, scale = bf16, granularity = group, block = [1, 64],
                          zero_point = true, packing = pairs>
}} {}

// CHECK-LABEL: module @product_quant
// CHECK-SAME: both = #moe.product_quant<weight = <storage = i8, scale = f32, granularity = channel>, activation = <storage = i8, scale = f32, granularity = token, dynamic = true>>
// CHECK-SAME: weight = #moe.product_quant<weight = <storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group, block = [1, 32], packing = pairs>>
module @product_quant attributes {test.values = {
  both = #moe.product_quant<weight = <storage = i8, scale = f32, granularity = channel>,
                            activation = #moe.quant<storage = i8, scale = f32, granularity = token, dynamic = true>>,
  weight = #moe.product_quant<weight = #moe.quant<storage = f4E2M1FN, scale = f8E8M0FNU, granularity = group,
                                                  block = [1, 32], packing = pairs>>
}} {}

// CHECK-LABEL: module @ranks
// CHECK-SAME: batched = #moe.activation_format<format = batched_experts>
// CHECK-SAME: contiguous = #moe.activation_format<format = contiguous, alignment = 128>
// CHECK-SAME: mesh = #moe.mesh<dp = 4, tp = 2, num_experts = 64>
// CHECK-SAME: one = #moe.mesh<tp = 3>
// CHECK-SAME: placement = #moe.placement<8, local = [4, 5, 6, 7]>
// CHECK-SAME: prompts = #moe.mesh<dp = 2, pcp = 4, tp = 2, sp = true>
// CHECK-SAME: standard = #moe.activation_format<format = standard>
module @ranks attributes {test.values = {
  batched = #moe.activation_format<format = batched_experts>,
  contiguous = #moe.activation_format<format = contiguous, alignment = 128>,
  mesh = #moe.mesh<dp = 4, tp = 2, num_experts = 64>,
  one = #moe.mesh<dp = 1, pcp = 1, tp = 3, num_experts = 0>,
  placement = #moe.placement<8, local = [4, 5, 6, 7]>,
  prompts = #moe.mesh<dp = 2, pcp = 4, tp = 2, sp = true>,
  standard = #moe.activation_format<format = standard, alignment = 1>
}} {}
