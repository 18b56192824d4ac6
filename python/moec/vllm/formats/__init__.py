# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's quantization formats, one module each, so that an import error disables only its own formats."""

#: Modules of moec.vllm.formats; each defines CONFIGS.
NAMES = ("fp8", "compressed_tensors", "gptq_awq", "experts_int8", "modelopt", "mxfp4")
