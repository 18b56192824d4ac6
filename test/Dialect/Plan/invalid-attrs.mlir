// RUN: moe-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{expression 'tokens +', column 9: an operand expected, the end found}}
module attributes {test.a = #plan.expr<"tokens +">} {}

// -----

// expected-error@+1 {{unknown name 'batch'; tokens, ceildiv, min and max are known}}
module attributes {test.a = #plan.expr<"batch * 2">} {}

// -----

// expected-error@+1 {{expression '8*tokens' is not in canonical form; write '8 * tokens'}}
module attributes {test.a = #plan.expr<"8*tokens">} {}

// -----

// expected-error@+1 {{expression '2 + 3' is not in canonical form; write '5'}}
module attributes {test.a = #plan.expr<"2 + 3">} {}
