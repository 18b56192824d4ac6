//===- Mesh.cpp - the ranks that share a layer ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Mesh.h"

namespace moert {

const char *meshAxisName(MeshAxis axis) {
  return axis == MeshAxis::Data ? "dp" : "tp";
}

const char *collectiveKindName(CollectiveKind kind) {
  switch (kind) {
  case CollectiveKind::AllGather:
    return "all_gather";
  case CollectiveKind::ReduceScatter:
    return "reduce_scatter";
  case CollectiveKind::AllReduce:
    return "all_reduce";
  }
  return "";
}

std::optional<MeshAxis> parseMeshAxis(std::string_view name) {
  for (MeshAxis axis : {MeshAxis::Data, MeshAxis::Tensor})
    if (name == meshAxisName(axis))
      return axis;
  return std::nullopt;
}

std::optional<CollectiveKind> parseCollectiveKind(std::string_view name) {
  for (CollectiveKind kind :
       {CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
        CollectiveKind::AllReduce})
    if (name == collectiveKindName(kind))
      return kind;
  return std::nullopt;
}

std::string Mesh::str() const {
  return "dp " + std::to_string(dp) + " x tp " + std::to_string(tp) +
         (sp ? ", sp" : "");
}

} // namespace moert
