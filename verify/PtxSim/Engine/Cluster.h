//===- Cluster.h - CTAs that share their memory -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_ENGINE_CLUSTER_H
#define MOEC_VERIFY_PTXSIM_ENGINE_CLUSTER_H

#include "../Machine/Machine.h"

namespace moec::ptx {

/// A cluster: CTAs that start together and access each other's shared memory.
struct Cluster {
  explicit Cluster(uint32_t firstSerial) : firstSerial(firstSerial) {}

  /// Ends the phase of barrier.cluster if all threads that have not ended have
  /// arrived.
  void finishPhaseIfComplete();

  /// The serial of the CTA of rank 0. Earlier CTAs cannot access the memory.
  const uint32_t firstSerial;
  /// By rank; null after the end of the CTA.
  std::vector<Cta *> ctas;
  /// Clocks of the arrivals of this phase, and of the last complete one.
  ClockRef collecting, completed;
};

/// An address of shared memory of the CTA with that rank, as mapa makes it. A
/// shared::cta address is an address of the thread's own CTA.
inline uint64_t makeClusterAddress(uint64_t address, uint64_t rank) {
  return (rank + 1) << kClusterRankShift | address;
}

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_ENGINE_CLUSTER_H
