//===- Config.td - configs of the schedules that quantize rows *- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_QUANTIZE_CONFIG_TD
#define MOEC_SCHEDULES_QUANTIZE_CONFIG_TD

include "TileConfigBase.td"

def Tile_GpuTensorScaleAttr : Tile_Config<"gpu", "tensor_scale", "GpuTensorScale", [Tile_VectorWidth]> {
  let summary = "config of gpu.tensor_scale, which runs in one CTA";
}

def Tile_GpuQuantizeAttr : Tile_Config<"gpu", "quantize", "GpuQuantize", [
    Tile_Number<"elements_per_cta", "elements that one CTA quantizes at a time, in whole groups across rows">,
    Tile_VectorWidth]> {
  let summary = "config of gpu.quantize";
}

#endif
