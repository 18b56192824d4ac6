// RUN: moe-opt %s --verify-diagnostics --pass-pipeline='builtin.module(plan.program(plan-assign-slots))'

plan.program @huge max_tokens 2147483647 {
  // expected-error @below {{has a size that overflows at up to 2147483647 tokens}}
  %a = plan.buffer "a" rows <"tokens * 1000000000"> : memref<?x8xf32>
  plan.variant tokens 0 to 2147483647 {
  }
}
