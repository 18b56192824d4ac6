//===- RunWatch.h - looks at the runs of a layer ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_RUNWATCH_H
#define MOERT_SRC_RUNWATCH_H

#include "moert/Device.h"
#include "moert/Status.h"

#include <cstdint>
#include <memory>

struct moert_layer;

namespace moert {

/// Looks at the runs of a layer of the C API, for code that the runtime may not
/// include: the compiler's library compares runs with the reference. Calls come
/// from the threads that call the layer, one at a time.
class RunWatch {
public:
  virtual ~RunWatch() = default;

  /// Ahead of a run on `stream`, null being the layer's own; an error refuses
  /// the run.
  virtual Status beforeRun(Stream *stream) = 0;
  /// After a run of `tokens` tokens was enqueued.
  virtual void afterRun(int64_t tokens, Stream *stream) = 0;
  /// Ahead of a call that changes or frees weights: waits until none is read.
  virtual void settle() = 0;
  /// Waits likewise, and returns an error found since the last call, once.
  virtual Status report() = 0;
  /// An error if weights must stay bound as they are.
  virtual Status checkKept() const = 0;
  /// The same for a clone of the layer, with a count of its own.
  virtual std::unique_ptr<RunWatch> clone(moert_layer &layer) const = 0;
};

} // namespace moert

#endif // MOERT_SRC_RUNWATCH_H
