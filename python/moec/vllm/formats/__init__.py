# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's quantizations, a module each: what one cannot import takes only its own formats with it."""

#: In moec.vllm.formats. Each has CONFIGS.
NAMES = ("fp8", "compressed_tensors", "gptq_awq", "experts_int8", "modelopt", "mxfp4")
