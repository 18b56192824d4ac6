//===- Staging.cpp - a collective's data in host memory ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Staging.h"

#include "../support/Check.h"
#include "Collectives.h"
#include "RankSum.h"

#include <cstddef>
#include <cstring>

namespace moert {

const char *sentTo(const Collective &collective, size_t part, int64_t index) {
  const CollectivePart &own = collective.parts[part];
  const auto *sent = static_cast<const char *>(own.send);
  return collective.kind == CollectiveKind::ReduceScatter
             ? sent + partBytes(own) * static_cast<size_t>(index)
             : sent;
}

size_t Staging::sentBytes(const CollectivePart &part) const {
  bool scatters = hosted.kind == CollectiveKind::ReduceScatter;
  return partBytes(part) *
         (scatters ? static_cast<size_t>(mesh.size(hosted.axis)) : 1);
}

size_t Staging::receivedBytes(const CollectivePart &part) const {
  bool gathers = hosted.kind == CollectiveKind::AllGather;
  return partBytes(part) *
         (gathers ? static_cast<size_t>(mesh.size(hosted.axis)) : 1);
}

Status Staging::copyOut(Stream &stream, const Collective &collective) {
  MOERT_CHECK(checkCollective(mesh, collective));
  MOERT_CHECK(device.synchronize(stream).withContext(collective.where));
  hosted = collective;
  parts.assign(collective.parts, collective.parts + collective.numParts);
  hosted.parts = parts.data();
  // Sums read elements as numbers, so they must be aligned.
  auto roundedUp = [](size_t bytes) {
    constexpr size_t alignment = alignof(std::max_align_t);
    return (bytes + alignment - 1) / alignment * alignment;
  };
  size_t total = 0;
  for (const CollectivePart &part : parts)
    total += roundedUp(sentBytes(part)) + roundedUp(receivedBytes(part));
  memory.resize(total);
  char *next = memory.data();
  for (CollectivePart &part : parts) {
    if (sentBytes(part) > 0)
      MOERT_CHECK(device.copyOut(next, part.send, sentBytes(part)));
    part.send = next;
    next += roundedUp(sentBytes(part));
    part.receive = next;
    next += roundedUp(receivedBytes(part));
  }
  return Status::ok();
}

void Staging::receive(size_t part,
                      const std::vector<const void *> &sources) const {
  const CollectivePart &own = parts[part];
  size_t bytes = partBytes(own);
  if (bytes == 0)
    return;
  auto *out = static_cast<char *>(own.receive);
  if (hosted.kind != CollectiveKind::AllGather)
    return sumRanks(own.dtype, sources, out, static_cast<size_t>(own.count));
  for (size_t i = 0; i < sources.size(); ++i)
    memcpy(out + i * bytes, sources[i], bytes);
}

Status Staging::copyIn(const Collective &collective) const {
  for (size_t i = 0; i < parts.size(); ++i)
    if (size_t bytes = receivedBytes(parts[i]); bytes > 0)
      MOERT_CHECK(
          device.copyIn(collective.parts[i].receive, parts[i].receive, bytes));
  return Status::ok();
}

} // namespace moert
